package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestMaps creates, lists, gets and deletes maps: M1, M2, M4, M5.
func TestMaps(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg := e.empty(t)
		c := rg.client(catalog.Config{})
		check := func(want ...string) {
			t.Helper()
			maps, err := c.ShardMaps(t.Context())
			var got []string
			for _, m := range maps {
				got = append(got, fmt.Sprint(m.Name, " ", m.Kind, " ", m.KeyKind))
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("ShardMaps: %v (-want +got):\n%s", err, diff)
			}
		}
		check()
		if _, err := c.ShardMap(t.Context(), "tenants"); !errors.Is(err, shardway.ErrMapNotFound) || !strings.Contains(err.Error(), "tenants") {
			t.Errorf("ShardMap of nothing = %v", err)
		}
		tenants := do(t, c, catalog.CreateShardMap{Name: "tenants", Kind: shardway.ListMap, KeyKind: shardway.KindUUID}).Map
		// Names are bytes: another letter case is another map.
		upper := do(t, c, catalog.CreateShardMap{Name: "Tenants", Kind: shardway.RangeMap, KeyKind: shardway.KindTime}).Map
		check("Tenants range time", "tenants list uuid")
		for _, m := range []shardway.ShardMap{tenants, upper} {
			got, err := c.ShardMap(t.Context(), m.Name)
			if diff := cmp.Diff(m, got); err != nil || diff != "" {
				t.Errorf("ShardMap: %v (-made +got):\n%s", err, diff)
			}
		}
		do(t, c, catalog.DeleteShardMap{Map: tenants})
		check("Tenants range time")
		do(t, c, catalog.DeleteShardMap{Map: tenants})
		again := do(t, c, catalog.CreateShardMap{Name: "tenants", Kind: shardway.ListMap, KeyKind: shardway.KindUUID}).Map
		if again.ID == tenants.ID {
			t.Error("the id of a deleted map was used again")
		}
		do(t, c, catalog.DeleteShardMap{Map: tenants}) // must not hit the new one
		check("Tenants range time", "tenants list uuid")
	})
}

// TestGoneMap uses a map that somebody else has deleted: M7.
func TestGoneMap(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		gone := w.empty
		do(t, rg.client(catalog.Config{}), catalog.DeleteShardMap{Map: gone})
		mapping := shardway.Mapping{ID: 1, MapID: gone.ID, Range: r(0, 1)}
		for _, ch := range []catalog.Change{
			catalog.AddShard{Map: gone, Name: "x", Location: at("x")},
			catalog.AddMappings{Map: gone, New: []catalog.NewMapping{newRange(1, 0, 1)}},
			catalog.UnlockOwner{Map: gone, Token: token},
			catalog.SplitMapping{Mapping: mapping, At: k(1)},
			catalog.LockMapping{Mapping: mapping, Lock: shardway.Lock{Token: "t", Owner: "bob"}},
			catalog.DeleteShard{Shard: shardway.Shard{ID: 1, MapID: gone.ID}},
		} {
			refused(t, c, ch, shardway.ErrMapNotFound)
		}
		_, err := c.Shards(t.Context(), gone)
		_, err2 := c.Shard(t.Context(), gone, "x")
		_, err3 := c.MappingForKey(t.Context(), gone, k(1))
		for i, err := range []error{err, err2, err3} {
			if !errors.Is(err, shardway.ErrMapNotFound) {
				t.Errorf("reading %d: %v", i, err)
			}
		}
		for _, err := range c.Mappings(t.Context(), store.MappingQuery{Map: gone}) {
			if !errors.Is(err, shardway.ErrMapNotFound) {
				t.Errorf("Mappings: %v", err)
			}
			return
		}
		t.Error("Mappings of a map that is gone lists nothing, without an error")
	})
}

// odd are names that careless programs stumble over.
var odd = []string{
	"order", `a"b`, "a`b", "a.b", "a'b", "x'); DROP TABLE shardway_mappings;--", "Ünïcode", "日本", "%s%d?$1:x@p1", `back\slash`, "[a]", "/*", "ab cd",
	strings.Repeat("n", 63), strings.Repeat("n", 64), strings.Repeat("n", 65), strings.Repeat("ü", shardway.MaxNameBytes/2),
}

// TestOddNames takes SEC-05's names for maps, shards, databases, servers, tags, owners,
// tokens and reasons: all arrive as they are, and run no statement.
func TestOddNames(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg := e.empty(t)
		for _, name := range odd {
			c := rg.client(catalog.Config{Who: name})
			m := do(t, c, catalog.CreateShardMap{Name: name, Kind: shardway.ListMap, KeyKind: shardway.KindString, Reason: name}).Map
			l := shardway.Location{Engine: "test", Database: name, Servers: []shardway.Server{{Address: "one", Tags: map[string]string{name: name}}}}
			shard := do(t, c, catalog.AddShard{Map: m, Name: name, Location: l, Reason: name}).Shards[0]
			key, err := shardway.StringKey(name)
			if err != nil {
				t.Fatal(err)
			}
			mapping := do(t, c, catalog.AddMappings{Map: m, New: []catalog.NewMapping{{Range: shardway.RangeFrom(key), ShardID: shard.ID}}}).Mappings[0]
			lock := shardway.Lock{Token: shardway.LockToken(name), Owner: name, Reason: name}
			locked := do(t, c, catalog.LockMapping{Mapping: mapping, Lock: lock}).Mappings[0]

			got, err := c.ShardMap(t.Context(), name)
			if err != nil || got.ID != m.ID {
				t.Errorf("%q: ShardMap = %v, %v", name, got, err)
			}
			found, err := c.Shard(t.Context(), m, name)
			if diff := cmp.Diff(shard, found); err != nil || diff != "" {
				t.Errorf("%q: Shard: %v (-made +got):\n%s", name, err, diff)
			}
			at, err := c.MappingForKey(t.Context(), m, key)
			if err != nil || at != locked || at.Lock != lock {
				t.Errorf("%q: MappingForKey = %+v, %v; made %+v", name, at, err, locked)
			}
			history, err := c.History(t.Context(), m.ID, 0)
			if err != nil || len(history) != 4 || history[3].Reason != name || history[0].Who != name || history[0].MapName != name {
				t.Errorf("%q: History = %+v, %v", name, history, err)
			}
			refused(t, c, catalog.UpdateMapping{Mapping: at, Status: ptr(shardway.Offline)}, shardway.ErrMappingLocked)
			do(t, c, catalog.UnlockOwner{Map: m, Token: shardway.LockToken(name)})
			off := do(t, c, catalog.UpdateMapping{Mapping: at, Status: ptr(shardway.Offline)}).Mappings[0]
			do(t, c, catalog.DeleteMapping{Mapping: off})
			do(t, c, catalog.DeleteShard{Shard: shard})
		}
		maps, err := rg.client(catalog.Config{}).ShardMaps(t.Context())
		if err != nil || len(maps) != len(odd) {
			t.Errorf("%d maps of %d, %v", len(maps), len(odd), err)
		}
		rg.look(t).checkSettled(t)
	})
}

// TestKeysOfAllKinds uses keys of every kind, their ends among them, in list and
// range maps: K2, K7, P6, P7, KEY-04, KEY-06, KEY-07.
func TestKeysOfAllKinds(t *testing.T) {
	t.Parallel()
	texts := map[shardway.KeyKind][]string{ // in order, the smallest first
		shardway.KindInt32:    {"-2147483648", "-1", "0", "1", "2147483647"},
		shardway.KindInt64:    {"-9223372036854775808", "-1000", "-1", "0", "1", "9223372036854775807"},
		shardway.KindUint64:   {"0", "1", "9223372036854775808", "18446744073709551615"},
		shardway.KindUUID:     {"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001", "01000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
		shardway.KindString:   {"", "A", "A ", "a", "a0", "Ä", "日"},
		shardway.KindBytes:    {"0x", "0x00", "0x0003", "0x000300", "0x0004", "0xff", "0xffff"},
		shardway.KindTime:     {"1500-01-01", "1970-01-01", "2026-01-31T12:00:00.000001Z", "2026-01-31T12:00:00.5Z", "9999-12-31"},
		shardway.KindDuration: {"-1h", "0s", "1ns", "36h15m"},
	}
	each(t, engines(t), func(t *testing.T, e engine) {
		rg := e.empty(t)
		c := rg.client(catalog.Config{})
		for kind, texts := range texts {
			t.Run(kind.String(), func(t *testing.T) {
				keys := []shardway.Key{shardway.MinKey(kind)}
				for _, text := range texts {
					key, err := shardway.ParseKey(kind, text)
					if err != nil {
						t.Fatal(err)
					}
					if key != keys[len(keys)-1] {
						keys = append(keys, key)
					}
				}
				checkKind(t, c, kind, shardway.ListMap, keys)
				checkKind(t, c, kind, shardway.RangeMap, keys)
			})
		}
		rg.look(t).checkSettled(t)
	})
}

// checkKind maps every key, or every range from one key to the next, in a map
// of its own, and asks for each.
func checkKind(t *testing.T, c *catalog.Catalog, kind shardway.KeyKind, mapKind shardway.MapKind, keys []shardway.Key) {
	t.Helper()
	m := do(t, c, catalog.CreateShardMap{Name: fmt.Sprint(kind, " ", mapKind), Kind: mapKind, KeyKind: kind}).Map
	shard := do(t, c, catalog.AddShard{Map: m, Name: "s", Location: at("db")}).Shards[0]
	var news []catalog.NewMapping
	for i, key := range keys {
		n := catalog.NewMapping{Range: shardway.RangeFrom(key), ShardID: shard.ID}
		if mapKind == shardway.RangeMap && i+1 < len(keys) {
			n.Range.High = keys[i+1]
		}
		news = append([]catalog.NewMapping{n}, news...) // the last first: order must not matter
	}
	made := do(t, c, catalog.AddMappings{Map: m, New: news}).Mappings
	for i, key := range keys {
		got, err := c.MappingForKey(t.Context(), m, key)
		if want := made[len(made)-1-i]; err != nil || got != want {
			t.Errorf("MappingForKey(%s) = %+v, %v, want %+v", key, got, err, want)
		}
	}
	listed := list(t, c, store.MappingQuery{Map: m})
	for i, mp := range listed {
		if mp.Range.Low != keys[i] {
			t.Errorf("mapping %d begins at %s, want %s", i, mp.Range.Low, keys[i])
		}
	}
	if len(listed) != len(keys) {
		t.Errorf("%d mappings listed of %d", len(listed), len(keys))
	}
	refused(t, c, catalog.AddMappings{Map: m, New: news[:1]}, shardway.ErrExists)
	refused(t, c, catalog.AddMappings{Map: m, New: news[len(news)-1:]}, shardway.ErrExists)
	if mapKind == shardway.ListMap {
		return
	}
	// The smallest key belongs to the mapping that starts at it, through a split and a merge.
	whole := listed[0]
	for _, next := range listed[1:] {
		whole = do(t, c, catalog.MergeMappings{Left: whole, Right: next}).Mappings[0]
	}
	if whole.Range != shardway.RangeFrom(keys[0]) {
		t.Errorf("everything merged is %s", whole.Range)
	}
	parts := do(t, c, catalog.SplitMapping{Mapping: whole, At: keys[1]}).Mappings
	for i, part := range parts {
		if got, err := c.MappingForKey(t.Context(), m, keys[i]); err != nil || got != part {
			t.Errorf("after the split, MappingForKey(%s) = %+v, %v, want %+v", keys[i], got, err, part)
		}
	}
	refused(t, c, catalog.SplitMapping{Mapping: parts[0], At: keys[0]}, shardway.ErrInvalid)
}

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// everything returns all rows of all stores as text, ids, versions, locks and
// history included.
func (r *rig) everything(t *testing.T) (lines []string) {
	t.Helper()
	s := r.look(t)
	add := func(what string, v any) { lines = append(lines, fmt.Sprintf("%s %+v", what, v)) }
	for _, m := range s.maps {
		add("map", m)
	}
	for _, row := range s.shards {
		add("shard", row)
	}
	for _, row := range s.mappings {
		add("mapping", row)
	}
	for _, o := range s.owned {
		add("owned", o)
	}
	for shard, n := range s.local {
		add("local shard "+shard, n)
	}
	for _, op := range s.operations {
		add("operation", op.ID)
	}
	for _, e := range r.history(t, 0) {
		add("history", e)
	}
	slices.Sort(lines)
	return lines
}

func (r *rig) history(t *testing.T, m shardway.MapID) (entries []store.Entry) {
	t.Helper()
	err := r.global.View(t.Context(), func(tx store.Reader) error {
		entries = nil
		for e, err := range tx.History(t.Context(), store.HistoryQuery{Map: m}) {
			if err != nil {
				return err
			}
			entries = append(entries, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// list returns the mappings that q selects.
func list(t *testing.T, c *catalog.Catalog, q store.MappingQuery) (all []shardway.Mapping) {
	t.Helper()
	for m, err := range c.Mappings(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// forPeople returns ranges and statuses of mappings, in their order.
func forPeople(m shardway.ShardMap, mappings []shardway.Mapping) []string {
	texts := make([]string, len(mappings))
	for i, mp := range mappings {
		texts[i] = mp.Format(m.Kind) + " " + mp.Status.String()
	}
	return texts
}

// refused makes a change that must be refused, previewed and for good, with an
// error that matches want and has some words in it.
func refused(t *testing.T, c *catalog.Catalog, ch catalog.Change, want error, words ...string) {
	t.Helper()
	check := func(how string, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s = %v, want %v", how, err, want)
			return
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s = %q, which does not say %q", how, err, word)
			}
		}
	}
	_, err := c.Preview(t.Context(), ch)
	check("Preview", err)
	res, err := c.Do(t.Context(), ch)
	check("Do", err)
	if res.Operation != 0 {
		t.Errorf("Do has begun operation %s", res.Operation)
	}
}

func newRange(shard shardway.ShardID, low, high int64) catalog.NewMapping {
	return catalog.NewMapping{Range: r(low, high), ShardID: shard}
}

// refusals are changes of the world that are wrong from the start.
var refusals = []struct {
	name   string
	change func(w world) catalog.Change
	want   error
	words  []string
}{
	{"create map: taken, M3", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "ranges", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	}, shardway.ErrExists, []string{`"ranges"`}},
	{"create map: taken by another kind, M3", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "ranges", Kind: shardway.ListMap, KeyKind: shardway.KindUUID}
	}, shardway.ErrExists, nil},
	{"create map: no name", func(world) catalog.Change {
		return catalog.CreateShardMap{Kind: shardway.ListMap, KeyKind: shardway.KindUUID}
	}, shardway.ErrInvalid, []string{"shard map name", "empty"}},
	{"create map: name with a line break", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "a\nb", Kind: shardway.ListMap, KeyKind: shardway.KindUUID}
	}, shardway.ErrInvalid, nil},
	{"create map: no kind", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "x", KeyKind: shardway.KindUUID}
	}, shardway.ErrInvalid, []string{"map kind"}},
	{
		"create map: no key kind, K4", func(world) catalog.Change { return catalog.CreateShardMap{Name: "x", Kind: shardway.ListMap} },
		shardway.ErrInvalid,
		[]string{"key kind"},
	},
	{"create map: unknown key kind, K4", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "x", Kind: shardway.ListMap, KeyKind: 99}
	}, shardway.ErrInvalid, nil},
	{
		"delete map with shards", func(w world) catalog.Change { return catalog.DeleteShardMap{Map: w.ranges} },
		shardway.ErrInUse,
		[]string{`"ranges"`, "3 shards"},
	},

	{"add shard: taken name", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s1", Location: at("elsewhere")}
	}, shardway.ErrExists, []string{`"s1"`}},
	{"add shard: taken location, S2 and VAL-01", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: at("db-s1")}
	}, shardway.ErrExists, []string{"db-s1", `"s1"`}},
	{"add shard: taken location in other letters, ADM-03", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: at("DB-S1")}
	}, shardway.ErrExists, nil},
	{"add shard: one of two servers taken", func(w world) catalog.Change {
		l := at("other")
		l.Servers = append(l.Servers, shardway.Server{Address: "db-s2"})
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: l}
	}, shardway.ErrExists, nil},
	{
		"add shard: no location, S3", func(w world) catalog.Change { return catalog.AddShard{Map: w.ranges, Name: "s9"} },
		shardway.ErrInvalid,
		[]string{"location"},
	},
	{"add shard: one server twice", func(w world) catalog.Change {
		l := at("other")
		l.Servers = append(l.Servers, shardway.Server{Address: "Other"})
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: l}
	}, shardway.ErrInvalid, []string{"twice"}},
	{"add shard: unknown status", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: at("other"), Status: 7}
	}, shardway.ErrInvalid, []string{"status"}},
	{"add shard: bad name", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: " s9", Location: at("other")}
	}, shardway.ErrInvalid, []string{"shard name"}},
	{"add shard: unreachable", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s9", Location: at("dead-s9")}
	}, shardway.ErrUnavailable, []string{`"s9"`, "dead-s9"}},
	{"add shard: unknown map", func(world) catalog.Change {
		return catalog.AddShard{Map: shardway.ShardMap{ID: 77, Name: "ghost"}, Name: "s9", Location: at("other")}
	}, shardway.ErrMapNotFound, []string{`"ghost"`}},

	{
		"update shard: taken name", func(w world) catalog.Change { return catalog.UpdateShard{Shard: w.s1, Name: ptr("s2")} },
		shardway.ErrExists,
		[]string{`"s2"`},
	},
	{"update shard: taken location", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Location: ptr(at("db-s2"))}
	}, shardway.ErrExists, []string{"db-s2"}},
	{"update shard: location without a store", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Location: ptr(at("nothing-here"))}
	}, shardway.ErrNoStore, []string{"nothing-here"}},
	{"update shard: unreachable location", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Location: ptr(at("dead-s1"))}
	}, shardway.ErrUnavailable, []string{"dead-s1"}},
	{"update shard: no server", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Location: &shardway.Location{}}
	}, shardway.ErrInvalid, nil},
	{"update shard: unknown status", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Status: ptr(shardway.ShardStatus(9))}
	}, shardway.ErrInvalid, nil},
	{"update shard: unknown", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: shardway.Shard{ID: 5, MapID: w.ranges.ID, Name: "ghost"}, Name: ptr("x")}
	}, shardway.ErrShardNotFound, nil},
	{
		"delete shard with mappings", func(w world) catalog.Change { return catalog.DeleteShard{Shard: w.s1} },
		shardway.ErrInUse,
		[]string{`"s1"`, "[0, 100)"},
	},
	{"delete shard with offline mappings only", func(w world) catalog.Change { return catalog.DeleteShard{Shard: w.p2} }, shardway.ErrInUse, nil},

	{"add mapping: the same range, P4", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s3.ID, 0, 100)}}
	}, shardway.ErrExists, nil},
	{"add mapping: the same point, P4", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(2)), ShardID: w.p1.ID}}}
	}, shardway.ErrExists, []string{"2", `"s2"`}},
	{"add mapping: open range over all, P5 and KEY-10", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(-5)), ShardID: w.s3.ID}}}
	}, shardway.ErrExists, []string{"[-5, +inf)", "[0, 100)", `"s1"`, "split"}},
	{"add mapping: bound in the middle, P5", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s3.ID, 499, 600)}}
	}, shardway.ErrExists, []string{"[499, 600)", "[400, 500)", `"s2"`}},
	{"add mapping: inside, P5", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 10, 11)}}
	}, shardway.ErrExists, nil},
	{"add mapping: around, P5", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, -10, 1000)}}
	}, shardway.ErrExists, nil},
	{"add mapping: low above high, R2", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 700, 600)}}
	}, shardway.ErrInvalid, []string{"[700, 600)"}},
	{"add mapping: low equals high, R2", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 700, 700)}}
	}, shardway.ErrInvalid, nil},
	{"add mapping: no key, KEY-05", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{ShardID: w.s1.ID}}}
	}, shardway.ErrKeyRequired, nil},
	{"add mapping: range in a list map, P1", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{newRange(w.p1.ID, 7, 8)}}
	}, shardway.ErrWrongType, []string{`"points"`}},
	{"add mapping: key of another kind, M6", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: shardway.RangeFrom(shardway.Uint64Key(9)), ShardID: w.s1.ID}}}
	}, shardway.ErrWrongType, []string{"uint64", "int64"}},
	{"add mapping: ends of two kinds", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: shardway.Range{Low: k(600), High: shardway.Uint64Key(900)}, ShardID: w.s1.ID}}}
	}, shardway.ErrInvalid, nil},
	{"add mapping: unknown shard", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(4711, 600, 700)}}
	}, shardway.ErrShardNotFound, []string{"4711"}},
	{"add mapping: shard of another map", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.p1.ID, 600, 700)}}
	}, shardway.ErrShardNotFound, nil},
	{"add mapping: none", func(w world) catalog.Change { return catalog.AddMappings{Map: w.ranges} }, shardway.ErrInvalid, nil},
	{"add mappings: the last is taken", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{
			newRange(w.s1.ID, 500, 510), newRange(w.s2.ID, 510, 520), newRange(w.s3.ID, 450, 451),
		}}
	}, shardway.ErrExists, []string{"[450, 451)"}},
	{"add mappings: two overlap each other", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{
			newRange(w.s1.ID, 520, 530), newRange(w.s2.ID, 500, 510), newRange(w.s3.ID, 509, 515),
		}}
	}, shardway.ErrExists, []string{"[500, 510)", "[509, 515)"}},
	{"add mappings: one point twice", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{
			{Range: shardway.RangeFrom(k(9)), ShardID: w.p1.ID}, {Range: shardway.RangeFrom(k(8)), ShardID: w.p1.ID}, {Range: shardway.RangeFrom(k(9)), ShardID: w.p2.ID},
		}}
	}, shardway.ErrExists, nil},
	{"add mappings: a point between others is taken", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{
			{Range: shardway.RangeFrom(k(-1)), ShardID: w.p1.ID}, {Range: shardway.RangeFrom(k(1)), ShardID: w.p1.ID}, {Range: shardway.RangeFrom(k(3)), ShardID: w.p2.ID},
		}}
	}, shardway.ErrExists, nil},

	{
		"move online, P17", func(w world) catalog.Change { return catalog.UpdateMapping{Mapping: w.a, ShardID: &w.s2.ID} },
		shardway.ErrMappingOnline,
		[]string{"[0, 100)", "offline first"},
	},
	{"update: unknown status", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.MappingStatus(5))}
	}, shardway.ErrInvalid, nil},
	{"update: unknown shard", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.b, ShardID: ptr(shardway.ShardID(4711))}
	}, shardway.ErrShardNotFound, nil},
	{"update: locked, L6", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.c, Status: ptr(shardway.Offline)}
	}, shardway.ErrMappingLocked, []string{`"ann"`}},
	{"update: wrong token, ADM-05", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.c, Status: ptr(shardway.Offline), Token: "wrong"}
	}, shardway.ErrMappingLocked, nil},
	{"delete online, P12", func(w world) catalog.Change { return catalog.DeleteMapping{Mapping: w.a} }, shardway.ErrMappingOnline, []string{"[0, 100)"}},
	{"delete: never there, P13", func(w world) catalog.Change {
		return catalog.DeleteMapping{Mapping: shardway.Mapping{ID: 4711, MapID: w.ranges.ID, Range: r(0, 1)}}
	}, shardway.ErrStale, nil},
	{"delete: no mapping", func(w world) catalog.Change {
		return catalog.DeleteMapping{Mapping: shardway.Mapping{MapID: w.ranges.ID}}
	}, shardway.ErrInvalid, nil},
	{"delete: locked", func(w world) catalog.Change { return catalog.DeleteMapping{Mapping: w.c} }, shardway.ErrMappingLocked, nil},

	{
		"split at low, P24", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(0)} },
		shardway.ErrInvalid,
		[]string{"split point", "[0, 100)"},
	},
	{"split at high, P24", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(100)} }, shardway.ErrInvalid, nil},
	{"split below, P24", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(-1)} }, shardway.ErrInvalid, nil},
	{"split above, P24", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(101)} }, shardway.ErrInvalid, nil},
	{"split nowhere", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a} }, shardway.ErrKeyRequired, nil},
	{"split at a key of another kind", func(w world) catalog.Change {
		return catalog.SplitMapping{Mapping: w.a, At: shardway.Int32Key(5)}
	}, shardway.ErrWrongType, []string{"split point", "int32"}},
	{"split a point, P1", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.one, At: k(1)} }, shardway.ErrWrongType, nil},
	{"split: locked", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.c, At: k(250)} }, shardway.ErrMappingLocked, nil},

	{
		"merge swapped, P27", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.e, Right: w.d} },
		shardway.ErrInvalid,
		[]string{"neighbours", "[400, 500)", "[300, 400)"},
	},
	{"merge with a gap, P27", func(w world) catalog.Change {
		return catalog.MergeMappings{Left: w.a, Right: w.c, RightToken: token}
	}, shardway.ErrInvalid, nil},
	{"merge with itself", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.a, Right: w.a} }, shardway.ErrInvalid, nil},
	{"merge on two shards, P26", func(w world) catalog.Change {
		return catalog.MergeMappings{Left: w.c, Right: w.d, Token: token}
	}, shardway.ErrInvalid, []string{"two shards"}},
	{
		"merge with two statuses", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.a, Right: w.b} },
		shardway.ErrInvalid,
		[]string{"online", "offline"},
	},
	{"merge points, P1", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.one, Right: w.two} }, shardway.ErrWrongType, nil},
	{"merge of two maps", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.a, Right: w.one} }, shardway.ErrStale, nil},
	{"merge: right is locked", func(w world) catalog.Change {
		return catalog.MergeMappings{Left: w.b, Right: w.c, Token: token}
	}, shardway.ErrMappingLocked, nil},

	{"lock: locked with the same token, L1", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.c, Lock: shardway.Lock{Token: token, Owner: "ann"}}
	}, shardway.ErrMappingLocked, []string{`"ann"`, "test"}},
	{"lock: no token, L2", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Owner: "bob"}}
	}, shardway.ErrInvalid, []string{"lock token"}},
	{"lock: blank token, L2", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: " \t", Owner: "bob"}}
	}, shardway.ErrInvalid, nil},
	{"lock: token too long", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: shardway.LockToken(strings.Repeat("x", shardway.MaxNameBytes+1)), Owner: "bob"}}
	}, shardway.ErrInvalid, nil},
	{"lock: no owner", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: "t"}}
	}, shardway.ErrInvalid, []string{"lock owner"}},
	{"unlock: wrong token, L4", func(w world) catalog.Change { return catalog.UnlockMapping{Mapping: w.c, Token: "wrong"} }, shardway.ErrMappingLocked, nil},
	{"unlock: no token, L4", func(w world) catalog.Change { return catalog.UnlockMapping{Mapping: w.c} }, shardway.ErrMappingLocked, nil},
	{"unlock: not locked", func(w world) catalog.Change { return catalog.UnlockMapping{Mapping: w.a, Token: token} }, shardway.ErrMappingLocked, nil},
	{"unlock: no token, not locked", func(w world) catalog.Change { return catalog.UnlockMapping{Mapping: w.a} }, shardway.ErrMappingLocked, nil},
	{"unlock owner: no token", func(w world) catalog.Change { return catalog.UnlockOwner{Map: w.ranges} }, shardway.ErrInvalid, nil},

	{"zero value: add shard", func(world) catalog.Change { return catalog.AddShard{} }, shardway.ErrMapNotFound, nil},
	{"zero value: update shard", func(world) catalog.Change { return catalog.UpdateShard{} }, shardway.ErrMapNotFound, nil},
	{"zero value: delete shard", func(world) catalog.Change { return catalog.DeleteShard{} }, shardway.ErrMapNotFound, nil},
	{"zero value: add mappings", func(world) catalog.Change { return catalog.AddMappings{} }, shardway.ErrMapNotFound, nil},
	{"zero value: update mapping", func(world) catalog.Change { return catalog.UpdateMapping{} }, shardway.ErrInvalid, nil},
	{"zero value: delete mapping", func(world) catalog.Change { return catalog.DeleteMapping{} }, shardway.ErrInvalid, nil},
	{"zero value: split", func(world) catalog.Change { return catalog.SplitMapping{} }, shardway.ErrInvalid, nil},
	{"zero value: merge", func(world) catalog.Change { return catalog.MergeMappings{} }, shardway.ErrInvalid, nil},
	{"zero value: lock", func(world) catalog.Change { return catalog.LockMapping{} }, shardway.ErrInvalid, nil},
	{"zero value: unlock", func(world) catalog.Change { return catalog.UnlockMapping{} }, shardway.ErrMapNotFound, nil},
}

// TestRefused makes every wrong change: each is a typed error that says what is
// wrong, and changes nothing in any store.
func TestRefused(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		before := rg.everything(t)
		for _, x := range refusals {
			if !t.Run(x.name, func(t *testing.T) { refused(t, c, x.change(w), x.want, x.words...) }) {
				t.Log(x.name)
			}
		}
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("refused changes have changed something (-before +after):\n%s", diff)
		}
	})
}

// TestPreview previews every kind of change: the result is what Do leaves
// behind, but for new ids, and no store changes.
func TestPreview(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		before := rg.everything(t)
		for _, kc := range killCases {
			res, err := c.Preview(t.Context(), kc.change(w))
			if err != nil || res.Operation != 0 {
				t.Errorf("%s: Preview = operation %s, %v", kc.name, res.Operation, err)
			}
			m, mw := memory.world(t)
			made := do(t, m.client(catalog.Config{}), kc.change(mw))
			if res.Kind != made.Kind || res.Summary != made.Summary || res.Kind == "" || res.Summary == "" ||
				len(res.Shards) != len(made.Shards) ||
				cmp.Diff(forPeople(res.Map, res.Mappings), forPeople(made.Map, made.Mappings)) != "" {
				t.Errorf("%s: Preview = %+v, Do = %+v", kc.name, res, made)
			}
		}
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("previews have changed something (-before +after):\n%s", diff)
		}
	})
}

// TestHistory makes every kind of change: each leaves one entry that says who,
// when, what, why and how it ended, under the id that Do has returned.
func TestHistory(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{Who: "ann@desk"})
		m := w.ranges
		made := []catalog.Result{
			do(t, c, catalog.UpdateShard{Shard: w.s3, Name: ptr("third"), Reason: "why 1"}),
			do(t, c, catalog.AddMappings{Map: m, New: []catalog.NewMapping{newRange(w.s3.ID, 500, 600)}, Reason: "why 2"}),
			do(t, c, catalog.SplitMapping{Mapping: w.a, At: k(50), Reason: "why 3"}),
			do(t, c, catalog.LockMapping{Mapping: w.d, Lock: shardway.Lock{Token: "t", Owner: "ann", Reason: "why 4"}}),
			do(t, c, catalog.UnlockOwner{Map: m, Token: "t", Reason: "why 5"}),
			do(t, c, catalog.MergeMappings{Left: w.d, Right: w.e, Reason: "why 6"}),
			do(t, c, catalog.DeleteMapping{Mapping: w.b, Reason: "why 7"}),
		}
		entries, err := c.History(t.Context(), m.ID, len(made))
		if err != nil || len(entries) != len(made) {
			t.Fatalf("History = %d entries, %v", len(entries), err)
		}
		slices.Reverse(entries)
		for i, e := range entries {
			want := store.Entry{
				Operation: made[i].Operation, MapID: m.ID, MapName: m.Name, Kind: made[i].Kind, Outcome: store.Done,
				Who: "ann@desk", Reason: fmt.Sprint("why ", i+1), Summary: made[i].Summary,
			}
			got := e
			got.Generation, got.Ranges, got.ShardsOnly, got.At = 0, nil, false, want.At
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("entry %d (-want +got):\n%s", i, diff)
			}
			if e.At.IsZero() || i > 0 && e.At.Before(entries[i-1].At) {
				t.Errorf("entry %d was made at %v", i, e.At)
			}
			if o, err := c.Outcome(t.Context(), e.Operation); o != store.Done || err != nil {
				t.Errorf("Outcome = %s, %v", o, err)
			}
		}
		for i, ranges := range []bool{1: true, 2: true, 5: true, 6: true} {
			if ranges != (len(entries[i].Ranges) > 0) {
				t.Errorf("entry %d (%s) has %d ranges: without, routers would load the whole map", i, entries[i].Kind, len(entries[i].Ranges))
			}
			if only := i == 0; entries[i].ShardsOnly != only {
				t.Errorf("entry %d (%s) is of shards only: %t", i, entries[i].Kind, entries[i].ShardsOnly)
			}
		}
		all, err := c.History(t.Context(), 0, 0)
		if err != nil || len(all) <= len(entries) || all[0].Operation != made[len(made)-1].Operation {
			t.Errorf("the whole history has %d entries, %v", len(all), err)
		}
		if o, err := c.Outcome(t.Context(), 4711); o != store.Unknown || err != nil {
			t.Errorf("Outcome of nothing = %s, %v", o, err)
		}
	})
}

// TestNothingToDo makes changes that come to nothing: they succeed and leave no trace.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		gone := do(t, c, catalog.CreateShardMap{Name: "gone", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}).Map
		do(t, c, catalog.DeleteShardMap{Map: gone})
		before := rg.everything(t)
		for _, ch := range []catalog.Change{
			catalog.DeleteShardMap{Map: gone}, // M5
			catalog.UpdateShard{Shard: w.s1},
			catalog.UpdateMapping{Mapping: w.a},
			catalog.UnlockOwner{Map: w.ranges, Token: "nobody's"},
		} {
			if res := do(t, c, ch); res.Operation != 0 {
				t.Errorf("%T has made operation %s", ch, res.Operation)
			}
		}
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("something has changed (-before +after):\n%s", diff)
		}
	})
}

// TestConfig refuses settings that cannot work.
func TestConfig(t *testing.T) {
	t.Parallel()
	rg := memory.empty(t)
	for name, cfg := range map[string]catalog.Config{"short lease": {Lease: 1}, "negative lease": {Lease: -1}, "negative wait": {Wait: -1}} {
		if _, err := catalog.New(rg.global, rg, cfg); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("%s: New = %v", name, err)
		}
	}
	if _, err := catalog.New(nil, rg, catalog.Config{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("without a store: New = %v", err)
	}
}

// TestCancelled makes a change under a context that has ended before it.
func TestCancelled(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		before := rg.everything(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := rg.client(catalog.Config{}).Do(ctx, catalog.SplitMapping{Mapping: w.a, At: k(50)}); !errors.Is(err, context.Canceled) {
			t.Errorf("Do = %v", err)
		}
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("something has changed (-before +after):\n%s", diff)
		}
	})
}

func TestNoChange(t *testing.T) {
	t.Parallel()
	rg, _ := memory.world(t)
	c := rg.client(catalog.Config{})
	if _, err := c.Do(t.Context(), nil); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("Do = %v", err)
	}
	if _, err := c.Preview(t.Context(), nil); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("Preview = %v", err)
	}
}

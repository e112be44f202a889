package catalog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestUpdateMatrix is P17, complete: every status before, every status and
// shard given, in list and range maps. P15, P16: what is accepted is what stands.
func TestUpdateMatrix(t *testing.T) {
	t.Parallel()
	statuses := []*shardway.MappingStatus{nil, ptr(shardway.Offline), ptr(shardway.Online)}
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		// on and off are a mapping of each status, home and away the shards.
		for _, x := range []struct {
			m          shardway.ShardMap
			on, off    shardway.Mapping
			home, away [2]shardway.ShardID // of on, of off
		}{
			{w.ranges, w.a, w.b, [2]shardway.ShardID{w.s1.ID, w.s1.ID}, [2]shardway.ShardID{w.s2.ID, w.s3.ID}},
			{w.points, w.one, w.two, [2]shardway.ShardID{w.p1.ID, w.p2.ID}, [2]shardway.ShardID{w.p2.ID, w.p1.ID}},
		} {
			for i, from := range []shardway.Mapping{x.on, x.off} {
				for _, status := range statuses {
					for _, shard := range []*shardway.ShardID{nil, &x.home[i], &x.away[i]} {
						from = checkUpdate(t, c, x.m, from, status, shard)
					}
				}
			}
		}
		rg.look(t).checkSettled(t)
	})
}

// checkUpdate makes one update and takes it back. It returns the mapping as it
// is then.
func checkUpdate(t *testing.T, c *catalog.Catalog, m shardway.ShardMap, from shardway.Mapping, status *shardway.MappingStatus, shard *shardway.ShardID) shardway.Mapping {
	t.Helper()
	want := from
	if status != nil {
		want.Status = *status
	}
	if shard != nil {
		want.ShardID = *shard
	}
	name := fmt.Sprintf("%s: %s %s → %s, moved: %t", m.Name, from.Range, from.Status, want.Status, want.ShardID != from.ShardID)
	ch := catalog.UpdateMapping{Mapping: from, Status: status, ShardID: shard}
	if want.ShardID != from.ShardID && from.Status == shardway.Online && want.Status == shardway.Online {
		refused(t, c, ch, shardway.ErrMappingOnline)
		return from
	}
	res, err := c.Do(t.Context(), ch)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return from
	}
	got := res.Mappings[0]
	if want.ID = got.ID; got != want || (got.ID == from.ID) != (status == nil && shard == nil) {
		t.Errorf("%s: is %+v now, was %+v", name, got, from)
	}
	if found, err := c.MappingForKey(t.Context(), m, from.Range.Low); err != nil || found != got {
		t.Errorf("%s: MappingForKey = %+v, %v, want %+v", name, found, err, got)
	}
	if got.ShardID != from.ShardID {
		got = do(t, c, catalog.UpdateMapping{Mapping: got, Status: ptr(shardway.Offline), ShardID: &from.ShardID}).Mappings[0]
	}
	return do(t, c, catalog.UpdateMapping{Mapping: got, Status: &from.Status}).Mappings[0]
}

// TestStale makes each kind of change and then uses the mappings it has
// replaced, in each kind of change: P14.
func TestStale(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		for name, change := range map[string]func(c *catalog.Catalog, w world) (old []shardway.Mapping){
			"update": func(c *catalog.Catalog, w world) []shardway.Mapping {
				do(t, c, catalog.UpdateMapping{Mapping: w.d, Status: ptr(shardway.Online)})
				return []shardway.Mapping{w.d}
			},
			"move": func(c *catalog.Catalog, w world) []shardway.Mapping {
				do(t, c, catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID})
				return []shardway.Mapping{w.b}
			},
			"split": func(c *catalog.Catalog, w world) []shardway.Mapping {
				do(t, c, catalog.SplitMapping{Mapping: w.d, At: k(350)})
				return []shardway.Mapping{w.d}
			},
			"merge": func(c *catalog.Catalog, w world) []shardway.Mapping {
				do(t, c, catalog.MergeMappings{Left: w.d, Right: w.e})
				return []shardway.Mapping{w.d, w.e}
			},
			"delete": func(c *catalog.Catalog, w world) []shardway.Mapping {
				do(t, c, catalog.DeleteMapping{Mapping: w.b})
				return []shardway.Mapping{w.b}
			},
		} {
			//nolint:paralleltest // the engines are parallel; more would only need more databases
			t.Run(name, func(t *testing.T) {
				rg, w := e.world(t)
				c := rg.client(catalog.Config{})
				for _, old := range change(rg.client(catalog.Config{}), w) {
					for _, ch := range []catalog.Change{
						catalog.UpdateMapping{Mapping: old, Status: ptr(shardway.Offline)},
						catalog.DeleteMapping{Mapping: old},
						catalog.SplitMapping{Mapping: old, At: k(460)},
						catalog.MergeMappings{Left: old, Right: w.c, RightToken: token},
						catalog.MergeMappings{Left: w.c, Right: old, Token: token},
						catalog.LockMapping{Mapping: old, Lock: shardway.Lock{Token: "t", Owner: "bob"}},
						catalog.UnlockMapping{Mapping: old, Token: "t"},
						catalog.UnlockMapping{Mapping: old, Force: true},
					} {
						//nolint:paralleltest // as above
						t.Run(fmt.Sprintf("%T", ch), func(t *testing.T) { refused(t, c, ch, shardway.ErrStale, "ranges") })
					}
				}
			})
		}
	})
}

// TestNotStale locks and unlocks: the id of a mapping stays, objects stay good.
func TestNotStale(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		do(t, c, catalog.UnlockMapping{Mapping: w.c, Token: token})
		do(t, c, catalog.UpdateMapping{Mapping: w.c, Status: ptr(shardway.Offline)})
		rg.look(t).checkSettled(t)
	})
}

// TestSplitAndMerge splits in the middle and merges again, online, offline and
// open-ended: P23, P25. Adjacent keys go to the right side.
func TestSplitAndMerge(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		open := do(t, c, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(500)), ShardID: w.s2.ID}}}).Mappings[0]
		for _, old := range []shardway.Mapping{w.a, w.b, open} {
			start := rg.look(t).published
			at := old.Range.Low.Uint64() - 1<<63 + 7
			parts := do(t, c, catalog.SplitMapping{Mapping: old, At: k(int64(at))}).Mappings
			want := []shardway.Mapping{old, old}
			want[0].ID, want[0].Range.High, want[1].ID, want[1].Range.Low = parts[0].ID, k(int64(at)), parts[1].ID, k(int64(at))
			if diff := cmp.Diff(want, parts, cmp.Comparer(func(a, b shardway.Key) bool { return a == b })); diff != "" || parts[0].ID == parts[1].ID {
				t.Errorf("parts of %s (-want +got):\n%s", old.Range, diff)
			}
			for i, key := range []int64{int64(at) - 1, int64(at)} {
				if got, err := c.MappingForKey(t.Context(), w.ranges, k(key)); err != nil || got != parts[i] {
					t.Errorf("MappingForKey(%d) = %+v, %v, want %+v", key, got, err, parts[i])
				}
			}
			merged := do(t, c, catalog.MergeMappings{Left: parts[0], Right: parts[1]}).Mappings[0]
			if old.ID = merged.ID; merged != old {
				t.Errorf("merged is %+v, was %+v", merged, old)
			}
			rg.look(t).checkPublished(t, "split and merged again", start)
		}
		rg.look(t).checkSettled(t)
	})
}

// TestMappings lists by range, shard, status, limit and all: P10; and by key,
// mapped or not: P2, P3, P8, L3.
func TestMappings(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		for name, x := range map[string]struct {
			q    store.MappingQuery
			want []shardway.Mapping
		}{
			"all":             {store.MappingQuery{}, []shardway.Mapping{w.a, w.b, w.c, w.d, w.e}},
			"partly in range": {store.MappingQuery{Within: r(199, 301)}, []shardway.Mapping{w.b, w.c, w.d}},
			"only touching":   {store.MappingQuery{Within: r(200, 300)}, []shardway.Mapping{w.c}},
			"open range":      {store.MappingQuery{Within: shardway.RangeFrom(k(450))}, []shardway.Mapping{w.e}},
			"beyond":          {store.MappingQuery{Within: shardway.RangeFrom(k(500))}, nil},
			"by shard":        {store.MappingQuery{ShardID: w.s2.ID}, []shardway.Mapping{w.d, w.e}},
			"shard and range": {store.MappingQuery{ShardID: w.s1.ID, Within: r(150, 350)}, []shardway.Mapping{w.b, w.c}},
			"offline":         {store.MappingQuery{Status: ptr(shardway.Offline)}, []shardway.Mapping{w.b}},
			"of a token":      {store.MappingQuery{Token: token}, []shardway.Mapping{w.c}},
			"limited":         {store.MappingQuery{Limit: 2}, []shardway.Mapping{w.a, w.b}},
			"behind a key":    {store.MappingQuery{After: k(200), Limit: 1}, []shardway.Mapping{w.d}},
		} {
			x.q.Map = w.ranges
			if diff := cmp.Diff(fmt.Sprint(x.want), fmt.Sprint(list(t, c, x.q))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		points := list(t, c, store.MappingQuery{Map: w.points, Within: r(1, 2)})
		if diff := cmp.Diff(fmt.Sprint([]shardway.Mapping{w.one}), fmt.Sprint(points)); diff != "" {
			t.Errorf("points (-want +got):\n%s", diff)
		}
		for key, want := range map[int64]shardway.Mapping{0: w.a, 99: w.a, 100: w.b, 299: w.c, 499: w.e} {
			if got, err := c.MappingForKey(t.Context(), w.ranges, k(key)); err != nil || got != want {
				t.Errorf("MappingForKey(%d) = %+v, %v, want %+v", key, got, err, want)
			}
		}
		for name, x := range map[string]struct {
			m    shardway.ShardMap
			key  shardway.Key
			want error
		}{
			"below":        {w.ranges, k(-1), shardway.ErrKeyNotMapped},
			"above":        {w.ranges, k(500), shardway.ErrKeyNotMapped},
			"between":      {w.points, k(3), shardway.ErrKeyNotMapped},
			"no key":       {w.ranges, shardway.Key{}, shardway.ErrKeyRequired},
			"another kind": {w.ranges, shardway.Int32Key(1), shardway.ErrWrongType},
		} {
			var at *shardway.LookupError
			if got, err := c.MappingForKey(t.Context(), x.m, x.key); !errors.Is(err, x.want) || !errors.As(err, &at) || at.Map != x.m.Name || got.ID != 0 {
				t.Errorf("%s: MappingForKey = %+v, %v, want %v", name, got, err, x.want)
			}
		}
		for name, q := range map[string]store.MappingQuery{
			"range of another kind": {Within: shardway.RangeFrom(shardway.Int32Key(1))},
			"high of another kind":  {Within: shardway.Range{Low: k(1), High: shardway.Int32Key(1)}},
			"after of another kind": {After: shardway.Int32Key(1)},
			"range without low":     {Within: shardway.Range{High: k(1)}},
		} {
			q.Map = w.ranges
			var last error
			for _, last = range c.Mappings(t.Context(), q) {
			}
			if !errors.Is(last, shardway.ErrWrongType) && !errors.Is(last, shardway.ErrKeyRequired) {
				t.Errorf("%s: Mappings = %v", name, last)
			}
		}
	})
}

// TestManyMappings adds more mappings at once than one page, one statement or
// one history entry holds: all of them, or, with one that is taken, none.
func TestManyMappings(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		const n = 2500
		news := make([]catalog.NewMapping, n)
		for i := range news {
			news[i] = newRange([]shardway.ShardID{w.s1.ID, w.s2.ID, w.s3.ID}[i%3], int64(1000+i), int64(1001+i))
		}
		before := rg.everything(t)
		bad := append(append([]catalog.NewMapping{}, news...), newRange(w.s1.ID, 450, 460))
		refused(t, c, catalog.AddMappings{Map: w.ranges, New: bad}, shardway.ErrExists, "[450, 460)")
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("one bad mapping, and something has changed (-before +after):\n%s", diff)
		}
		made := do(t, c, catalog.AddMappings{Map: w.ranges, New: news}).Mappings
		listed := list(t, c, store.MappingQuery{Map: w.ranges, Within: shardway.RangeFrom(k(1000))})
		if len(made) != n || len(listed) != n {
			t.Fatalf("made %d, listed %d", len(made), len(listed))
		}
		for i := range made {
			if made[i] != listed[i] || made[i].Range != news[i].Range || made[i].ShardID != news[i].ShardID {
				t.Fatalf("mapping %d: made %+v, listed %+v", i, made[i], listed[i])
			}
		}
		s := rg.look(t)
		if len(s.byID) != len(s.owned) || len(s.owned) != n+7 {
			t.Errorf("%d mappings published, %d in local stores", len(s.byID), len(s.owned))
		}
	})
}

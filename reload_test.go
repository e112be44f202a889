package shardway_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
)

// Changes that overlap or touch are read again together, and each point once.
func TestJoinedChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := eager(t)
		f.put("customers", ints(0, 50), "s2")
		f.put("customers", ints(50, 100), "s3")
		f.put("customers", ints(40, 60), "s1")
		f.put("customers", ints(300, 400), "s3")
		f.put("customers", ints(350, 0), "s1")
		f.put("customers", ints(900, 950), "")
		poll()
		if loads, rows := f.loads.Load(), f.rows.Load(); loads != 2 || rows != 1 {
			t.Errorf("%d reads with %d mappings; want two reads, and the one mapping that is left there", loads, rows)
		}
		for k, shard := range map[int64]string{0: "", 45: "s1", 59: "s1", 60: "", 99: "", 100: "s2", 300: "", 360: "", 1000: ""} {
			cached(t, m, k, shard)
		}
		r.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.addMap("tenants", shardway.ListMap, shardway.KindInt64)
		r := f.open(t, shardway.Config{LoadPolicy: shardway.Eager})
		m, err := shardway.OpenListShardMap[int64](t.Context(), r, "tenants")
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range []string{"s1", "s2", "", "s3"} {
			f.put("tenants", ints(7, 0), shard)
			f.put("tenants", ints(8, 0), shard)
		}
		f.moveShard("tenants", "s3", "/far")
		poll()
		for k := range int64(10) {
			route, err := m.LookupIn(t.Context(), k, shardway.CacheOnly)
			if k == 7 || k == 8 {
				want(t, route, err, "s3")
				if at := route.Shard.Location.Servers[0].Address; at != "/far" {
					t.Errorf("key %d is at %s", k, at)
				}
			} else if !errors.Is(err, shardway.ErrKeyNotMapped) {
				t.Errorf("key %d: %+v, %v", k, route, err)
			}
		}
		f.wantLookups(t, 2)
		r.Close()
	})
}

// slowSource takes a second for a whole map, and none to fail.
type slowSource struct {
	*fakeSource
	broken *atomic.Bool
}

func (s slowSource) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	if within.Low.IsZero() {
		if s.broken.Load() {
			return shardway.MapState{}, shardway.ErrUnavailable
		}
		time.Sleep(time.Second) // fake time
	}
	return s.fakeSource.Load(ctx, m, within, each)
}

// Many routers that have to read the whole map do not do so in the same second,
// not even when the store was broken for all of them, and all of them have it in
// the end.
func TestFeedsReloadApart(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]time.Duration{"at once": 0, "after an outage": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { reloadApart(t, outage) })
		})
	}
}

func reloadApart(t *testing.T, outage time.Duration) {
	t.Helper()
	f, first, _ := customers(t, shardway.Config{})
	first.Close()
	s := slowSource{f, new(atomic.Bool)}
	var routers []*shardway.Router
	var maps []*shardway.RangeShardMap[int64]
	for range 100 {
		r, err := shardway.Open(t.Context(), s, shardway.Config{LoadPolicy: shardway.Eager})
		if err != nil {
			t.Fatal(err)
		}
		routers = append(routers, r)
	}
	opened := make(chan *shardway.RangeShardMap[int64], len(routers))
	for _, r := range routers {
		go func() {
			m, err := shardway.OpenRangeShardMap[int64](t.Context(), r, "customers")
			if err != nil {
				t.Error(err)
			}
			opened <- m
		}()
	}
	for range routers {
		maps = append(maps, <-opened)
	}
	f.put("customers", ints(0, 100), "s3")
	f.set(func(f *fakeSource) { f.history = f.maps["customers"].described.Generation })
	f.loads.Store(0)
	s.broken.Store(outage > 0)
	time.Sleep(outage) // fake time
	s.broken.Store(false)
	most, all := int64(0), int64(0)
	for range 23 { // polled after one second, read within 20 more, in one
		poll()
		n := f.loads.Swap(0)
		most, all = max(most, n), all+n
	}
	if all != int64(len(routers)) || most > 30 {
		t.Errorf("%d readings by %d routers, %d of them in one second", all, len(routers), most)
	}
	for _, m := range maps {
		cached(t, m, 5, "s3")
	}
	for _, r := range routers {
		r.Close()
	}
}

// loadedSource calls back when a whole map was read, before the router has it.
type loadedSource struct {
	*fakeSource
	loaded atomic.Pointer[func()]
}

func (s *loadedSource) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	state, err := s.fakeSource.Load(ctx, m, within, each)
	if loaded := s.loaded.Load(); within.Low.IsZero() && loaded != nil {
		(*loaded)()
	}
	return state, err
}

// A key that is looked up while the whole map is read brings an answer that is
// newer than the map: what else changed in between is taken in all the same.
func TestLookupDuringReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, first, _ := customers(t, shardway.Config{})
		first.Close()
		s := &loadedSource{fakeSource: f}
		_, m := eagerOf(t, s)
		f.put("customers", ints(0, 100), "s2")
		f.set(func(f *fakeSource) { f.history = f.maps["customers"].described.Generation })
		change := func() {
			f.put("customers", ints(0, 100), "s3")
			f.put("customers", ints(500, 600), "s2")
			if _, err := m.Lookup(t.Context(), 500); err != nil {
				t.Error(err)
			}
		}
		s.loaded.Store(&change)
		poll()
		s.loaded.Store(nil)
		cached(t, m, 5, "s2")
		cached(t, m, 500, "s2")
		poll()
		cached(t, m, 5, "s3")
		cached(t, m, 500, "s2")
	})
}

// trickleSource takes ten milliseconds for each mapping.
type trickleSource struct{ *fakeSource }

func (s trickleSource) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	state, err := s.fakeSource.Load(ctx, m, within, each)
	if !within.Low.IsZero() {
		time.Sleep(time.Duration(s.rows.Swap(0)) * 10 * time.Millisecond) // fake time
	}
	if ctx.Err() != nil {
		return shardway.MapState{}, ctx.Err()
	}
	return state, err
}

// Many changes side by side are not read in one go that takes longer than the
// store may: the feed would never get beyond them.
func TestManyJoinedChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, first, _ := customers(t, shardway.Config{})
		first.Close()
		r, m := eagerOf(t, trickleSource{f})
		f.rows.Store(0)
		f.loads.Store(0)
		for i := range int64(600) {
			f.put("customers", ints(1000+i, 1001+i), "s3")
		}
		time.Sleep(20 * time.Second) // fake time: 6 s of reading
		synctest.Wait()
		if err := r.Stats().Maps[0].FeedError; err != nil {
			t.Errorf("the feed's error is %v", err)
		}
		if n := f.loads.Load(); n > 10 {
			t.Errorf("%d reads for 600 changes side by side", n)
		}
		cached(t, m, 1000, "s3")
		cached(t, m, 1599, "s3")
	})
}

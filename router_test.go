package shardway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/shardway/shardway"
)

// MAP-01, P9: the store is asked once; then the cache answers.
func TestLookupModes(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	ctx := t.Context()

	if _, err := m.LookupIn(ctx, 5, shardway.CacheOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("an empty cache answered %v", err)
	}
	f.wantLookups(t, 0)
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	if route.FromCache {
		t.Error("the first answer came from the cache")
	}
	f.wantLookups(t, 1)
	for _, k := range []int64{5, 0, 99} { // one mapping holds them all
		route, err := m.Lookup(ctx, k)
		want(t, route, err, "s1")
		if !route.FromCache || route.Status != shardway.Online {
			t.Errorf("key %d: %+v", k, route)
		}
	}
	route, err = m.LookupIn(ctx, 42, shardway.CacheOnly)
	want(t, route, err, "s1")
	f.wantLookups(t, 0)

	f.put("customers", ints(0, 100), "s3")
	route, err = m.Lookup(ctx, 5)
	want(t, route, err, "s1") // a hint, not the truth
	f.wantLookups(t, 0)
	route, err = m.LookupIn(ctx, 5, shardway.StoreOnly)
	want(t, route, err, "s3")
	route, err = m.LookupIn(ctx, 6, shardway.CacheOnly)
	want(t, route, err, "s3") // what the store said replaces what was cached
	f.wantLookups(t, 1)

	f.put("customers", ints(0, 100), "")
	if _, err := m.LookupIn(ctx, 5, shardway.StoreOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("an unmapped key gave %v", err)
	}
	if _, err := m.LookupIn(ctx, 7, shardway.CacheOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("the cache keeps what the store says is gone: %v", err)
	}
	if _, err := m.LookupIn(ctx, 7, 9); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("mode 9 gave %v", err)
	}
	got := r.Stats().Maps[0]
	if got.Hits != 6 || got.Misses != 3 || got.StoreLookups != 3 || got.Evictions != 1 || got.Mappings != 0 {
		t.Errorf("%+v", got)
	}
}

// M9: with the cache left out everything still works.
func TestStoreOnlyWorksAlone(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	for i := range 3 {
		shard := []string{"s1", "s2", "s3"}[i]
		f.put("customers", ints(0, 100), shard)
		route, err := m.LookupIn(t.Context(), 1, shardway.StoreOnly)
		want(t, route, err, shard)
		if route.FromCache {
			t.Error("from cache")
		}
	}
	f.wantLookups(t, 3)
}

// MAP-12, KEY-05, P8: three causes, three errors, each with map and key.
func TestLookupErrors(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	ctx := t.Context()
	_, err := m.Lookup(ctx, 999)
	var where *shardway.LookupError
	if !errors.Is(err, shardway.ErrKeyNotMapped) || !errors.As(err, &where) || where.Map != "customers" || where.Key != "999" {
		t.Errorf("unknown key: %v", err)
	}
	if errors.Is(err, shardway.ErrKeyRequired) {
		t.Errorf("unknown key is also a missing one: %v", err)
	}
	_, err = m.Map().Lookup(ctx, shardway.Key{}, shardway.CacheAndStore)
	if !errors.Is(err, shardway.ErrKeyRequired) || errors.Is(err, shardway.ErrKeyNotMapped) || !strings.Contains(err.Error(), "customers") {
		t.Errorf("no key: %v", err)
	}
	_, err = m.Map().Lookup(ctx, shardway.Int32Key(5), shardway.CacheAndStore)
	if !errors.Is(err, shardway.ErrWrongType) || !strings.Contains(err.Error(), "int32") || !strings.Contains(err.Error(), "int64") {
		t.Errorf("key of another kind: %v", err)
	}

	f.addMap("blobs", shardway.ListMap, shardway.KindBytes)
	blobs, err := shardway.OpenListShardMap[[]byte](ctx, r, "blobs")
	if err != nil {
		t.Fatal(err)
	}
	if route, err := blobs.Lookup(ctx, nil); !errors.Is(err, shardway.ErrKeyRequired) || route.Shard != nil {
		t.Errorf("nil bytes: %v, %v", route, err)
	}
	empty := shardway.Range{Low: key(t, []byte{})}
	f.put("blobs", empty, "s1")
	route, err := blobs.Lookup(ctx, []byte{})
	want(t, route, err, "s1")

	_, err = r.Map(ctx, "nowhere")
	if !errors.Is(err, shardway.ErrMapNotFound) || !strings.Contains(err.Error(), `"nowhere"`) {
		t.Errorf("unknown map: %v", err)
	}
	if _, err = r.Map(ctx, ""); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("empty name: %v", err)
	}
}

// MAP-09: an error leaves nothing behind.
func TestUnknownThenKnown(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	ctx := t.Context()
	if _, err := m.Lookup(ctx, 500); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Fatal(err)
	}
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	f.put("customers", ints(500, 600), "s2")
	route, err = m.Lookup(ctx, 500) // no negative entry
	want(t, route, err, "s2")

	if _, err := r.Map(ctx, "orders"); !errors.Is(err, shardway.ErrMapNotFound) {
		t.Fatal(err)
	}
	f.addMap("orders", shardway.ListMap, shardway.KindString)
	if _, err := r.Map(ctx, "orders"); err != nil {
		t.Errorf("a map created meanwhile: %v", err)
	}
}

// M6, P1: the wrong kind or key type says what it should be.
func TestWrongType(t *testing.T) {
	t.Parallel()
	_, r, _ := customers(t, shardway.Config{})
	for name, open := range map[string]func() error{
		"a list map of int64": func() error { _, err := shardway.OpenListShardMap[int64](t.Context(), r, "customers"); return err },
		"a range map of int32": func() error {
			_, err := shardway.OpenRangeShardMap[int32](t.Context(), r, "customers")
			return err
		},
		"a range map of uuid": func() error {
			_, err := shardway.OpenRangeShardMap[uuid.UUID](t.Context(), r, "customers")
			return err
		},
	} {
		err := open()
		if !errors.Is(err, shardway.ErrWrongType) || !strings.Contains(err.Error(), `"customers" as `+name+" keys: it is a range map of int64 keys") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// MAP-03: one router has one cache for a map, however often it is opened.
func TestOneHandlePerMap(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	again, err := shardway.OpenRangeShardMap[int64](t.Context(), r, "customers")
	if err != nil || again.Map() != m.Map() {
		t.Fatalf("second handle: %v", err)
	}
	if _, err := m.Lookup(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	route, err := again.LookupIn(t.Context(), 5, shardway.CacheOnly)
	want(t, route, err, "s1")
	f.wantLookups(t, 1)
}

// M7: a map deleted by somebody else is forgotten by its handles and the router.
func TestMapVanishes(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	ctx := t.Context()
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	f.dropMap("customers")
	f.addMap("customers", shardway.RangeMap, shardway.KindInt64)
	f.put("customers", ints(0, 0), "s3")
	if _, err := m.Lookup(ctx, 150); !errors.Is(err, shardway.ErrMapNotFound) {
		t.Errorf("a key of a map that is gone: %v", err)
	}
	if _, err := m.LookupIn(ctx, 5, shardway.CacheOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("the cache of a map that is gone: %v", err)
	}
	fresh, err := shardway.OpenRangeShardMap[int64](ctx, r, "customers")
	if err != nil {
		t.Fatal(err)
	}
	route, err = fresh.Lookup(ctx, 5)
	want(t, route, err, "s3")
	if fresh.Map() == m.Map() || fresh.Map().ShardMap().ID == m.Map().ShardMap().ID {
		t.Error("the new map has the old handle")
	}
}

// MAP-10: known keys route while the store is down; others fail fast.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	f, r, m := customers(t, shardway.Config{})
	ctx := t.Context()
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	refused := fmt.Errorf("connection refused: %w", shardway.ErrUnavailable)
	f.set(func(f *fakeSource) { f.down = refused })
	route, err = m.Lookup(ctx, 50)
	want(t, route, err, "s1")
	_, err = m.Lookup(ctx, 150)
	if !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), "150") {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := r.Map(ctx, "customers"); err != nil {
		t.Errorf("the open map: %v", err)
	}
	if _, err := r.Map(ctx, "orders"); !errors.Is(err, shardway.ErrUnavailable) || errors.Is(err, shardway.ErrMapNotFound) {
		t.Errorf("another map: %v", err)
	}
	if _, err := m.Map().Shards(ctx); !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("shards: %v", err)
	}
	f.set(func(f *fakeSource) { f.down = nil })
	route, err = m.Lookup(ctx, 150)
	want(t, route, err, "s2")
}

// hang makes every lookup of the store wait for its context.
func (f *fakeSource) hang() {
	f.set(func(f *fakeSource) {
		f.before = func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("driver: bad connection")
		}
	})
}

// MAP-10: a store that does not answer costs no more than the deadline.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		f.hang()
		start := time.Now()
		_, err := m.Lookup(t.Context(), 5)
		if !errors.Is(err, shardway.ErrUnavailable) || time.Since(start) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		for _, mode := range []shardway.LookupMode{shardway.CacheAndStore, shardway.StoreOnly} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start = time.Now()
			_, err = m.LookupIn(ctx, 5, mode)
			if !errors.Is(err, shardway.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("%s, after %v: %v", mode, time.Since(start), err)
			}
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err = m.LookupIn(ctx, 5, mode)
			if !errors.Is(err, context.Canceled) || errors.Is(err, shardway.ErrUnavailable) {
				t.Errorf("%s, cancelled: %v", mode, err)
			}
		}
		synctest.Wait()
		if n := f.running.Load(); n != 0 {
			t.Errorf("%d lookups go on that nobody waits for", n)
		}
		r.Close()
	})
}

// MAP-11: a cold cache asks once for each mapping, and only some at a time.
func TestColdCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.addMap("customers", shardway.RangeMap, shardway.KindInt64)
		for i := range int64(10) {
			f.put("customers", ints(i*100, i*100+100), "s1")
		}
		f.set(func(f *fakeSource) {
			f.before = func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil } // fake time
		})
		r := f.open(t, shardway.Config{MaxStoreReads: 4})
		m, err := shardway.OpenRangeShardMap[int64](t.Context(), r, "customers")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range int64(1000) {
			wg.Go(func() {
				if _, err := m.Lookup(t.Context(), i); err != nil {
					t.Errorf("key %d: %v", i, err)
				}
			})
			wg.Go(func() { // the same key again
				if _, err := m.Lookup(t.Context(), i); err != nil {
					t.Errorf("key %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if n := f.most.Load(); n > 4 {
			t.Errorf("%d lookups at a time", n)
		}
		// In the worst case all four that run at a time are for one mapping.
		if n := f.lookups.Load(); n < 10 || n > 4*10 {
			t.Errorf("%d lookups for 10 mappings", n)
		}
		r.Close()
	})
}

// MAP-11: those who wait share the answer, an error too, and give up alone.
func TestSingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		gate := make(chan error)
		f.set(func(f *fakeSource) { f.before = func(context.Context) error { return <-gate } })
		first, giveUp := context.WithCancel(t.Context())
		errs := make(chan error, 100)
		for i := range 100 {
			ctx := t.Context()
			if i == 0 {
				ctx = first
			}
			go func() { _, err := m.Lookup(ctx, 5); errs <- err }()
			synctest.Wait()
		}
		giveUp()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		synctest.Wait()
		if len(errs) != 0 || f.running.Load() != 1 {
			t.Errorf("%d others ended, %d lookups run", len(errs), f.running.Load())
		}
		gate <- fmt.Errorf("too many connections: %w", shardway.ErrUnavailable)
		for range 99 {
			if err := <-errs; !errors.Is(err, shardway.ErrUnavailable) {
				t.Errorf("who waited got %v", err)
			}
		}
		f.wantLookups(t, 1)
		close(gate)
		route, err := m.Lookup(t.Context(), 5)
		want(t, route, err, "s1")
		f.wantLookups(t, 1)
		r.Close()
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{LoadPolicy: shardway.Eager})
		f.hang()
		errs := make(chan error)
		go func() { _, err := m.Lookup(t.Context(), 777); errs <- err }()
		synctest.Wait()
		go r.Close()
		err := <-errs
		if !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("a lookup under way: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		for _, mode := range []shardway.LookupMode{shardway.CacheAndStore, shardway.StoreOnly} {
			if _, err := m.LookupIn(t.Context(), 5, mode); !errors.Is(err, shardway.ErrUnavailable) {
				t.Errorf("%s: %v", mode, err)
			}
		}
		if _, err := r.Map(t.Context(), "customers"); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("opening: %v", err)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []shardway.Config{
		{PollInterval: -1}, {StoreTimeout: -time.Second}, {MaxStoreReads: -1}, {LoadPolicy: 2},
	} {
		if _, err := shardway.Open(t.Context(), newFake(), cfg); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := shardway.Open(t.Context(), nil, shardway.Config{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("no source: %v", err)
	}
	missing := pinged{newFake(), fmt.Errorf("database is empty: %w", shardway.ErrNoStore)}
	if _, err := shardway.Open(t.Context(), missing, shardway.Config{}); !errors.Is(err, shardway.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
}

type pinged struct {
	*fakeSource
	err error
}

func (p pinged) Ping(context.Context) error { return p.err }

// MAP-07: shards are read from the store, never from the cache.
func TestShards(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	ctx := t.Context()
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	f.moveShard("customers", "s1", "/elsewhere")
	shard, err := m.Map().Shard(ctx, "s1")
	if err != nil || shard.Location.Servers[0].Address != "/elsewhere" {
		t.Errorf("s1 is %v, %v", shard.Location, err)
	}
	route, err = m.LookupIn(ctx, 5, shardway.CacheOnly)
	want(t, route, err, "s1")
	if got := route.Shard.Location.Servers[0].Address; got != "/elsewhere" {
		t.Errorf("the cached mapping leads to %s", got)
	}
	if got, stored := route.Generation, f.maps["customers"].described.Generation; got != stored {
		t.Errorf("the route is of generation %d, its shard of %d: of two routes nobody could tell the newer one", got, stored)
	}
	f.set(func(f *fakeSource) { f.maps["customers"].shards = f.maps["customers"].shards[:2] })
	shards, err := m.Map().Shards(ctx)
	if err != nil || len(shards) != 2 {
		t.Errorf("%d shards, %v", len(shards), err)
	}
	var where *shardway.LookupError
	if _, err := m.Map().Shard(ctx, "s3"); !errors.Is(err, shardway.ErrShardNotFound) || !errors.As(err, &where) || where.Shard != "s3" || where.Map != "customers" {
		t.Errorf("a deleted shard: %v", err)
	}
}

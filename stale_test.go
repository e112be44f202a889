package shardway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
)

// fail tells the map that the shard of key 5 cannot be reached.
func fail(t *testing.T, m *shardway.RangeShardMap[int64]) (retry bool) {
	t.Helper()
	route, err := m.LookupIn(t.Context(), 5, shardway.CacheOnly)
	want(t, route, err, "s1")
	fresh, retry, err := m.Map().Unreachable(t.Context(), shardway.Int64Key(5), route)
	want(t, fresh, err, "s1")
	return retry
}

// T1, T2, T3: how often the store is asked about a shard that is down.
func TestUnreachablePauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		route, err := m.Lookup(t.Context(), 5)
		want(t, route, err, "s1")
		f.wantLookups(t, 1)
		if _, retry, err := m.Map().Unreachable(t.Context(), shardway.Int64Key(5), route); retry || err != nil {
			t.Errorf("a route fresh from the store: retry %v, %v", retry, err)
		}
		f.wantLookups(t, 0)

		for i := range 10 { // T1
			if retry := fail(t, m); retry != (i == 0) {
				t.Errorf("failure %d: retry %v", i, retry)
			}
		}
		f.wantLookups(t, 1)
		for _, seconds := range []int{5, 10, 20, 30, 30, 30} { // T2
			time.Sleep(time.Duration(seconds)*time.Second - 1) // fake time
			if fail(t, m) {
				t.Errorf("asked before %d s were over", seconds)
			}
			f.wantLookups(t, 0)
			time.Sleep(time.Nanosecond) // fake time
			if !fail(t, m) || fail(t, m) {
				t.Errorf("after %d s: want one question", seconds)
			}
			f.wantLookups(t, 1)
		}
		if n := m.Map().Stats().Failing; n != 1 {
			t.Errorf("%d mappings fail", n)
		}
		m.Map().Reached(route) // T3
		if n := m.Map().Stats().Failing; n != 0 {
			t.Errorf("%d mappings fail after success", n)
		}
		if !fail(t, m) || fail(t, m) {
			t.Error("after success the first failure asks at once, the second not")
		}
		time.Sleep(5 * time.Second) // fake time
		if !fail(t, m) {
			t.Error("after success pauses begin at 5 s")
		}
		f.wantLookups(t, 2)
		r.Close()
	})
}

func TestUnreachableAsksOnceForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		route, err := m.Lookup(t.Context(), 5)
		want(t, route, err, "s1")
		f.set(func(f *fakeSource) {
			f.before = func(context.Context) error { time.Sleep(time.Second); return nil } // fake time
		})
		route.FromCache = true
		var wg sync.WaitGroup
		for k := range int64(100) { // other keys of the same mapping
			wg.Go(func() {
				fresh, retry, err := m.Map().Unreachable(t.Context(), shardway.Int64Key(k), route)
				want(t, fresh, err, "s1")
				if !retry {
					t.Error("no retry though the store was asked")
				}
			})
		}
		wg.Wait()
		f.lookups.Add(-1)
		f.wantLookups(t, 1)
		time.Sleep(5*time.Second - 1) // fake time
		if fail(t, m) {
			t.Error("a hundred failures at a time made the pause shorter than 5 s")
		}
		time.Sleep(time.Nanosecond) // fake time
		if !fail(t, m) {
			t.Error("a hundred failures at a time made the pause longer than 5 s")
		}
		r.Close()
	})
}

// News about the mapping or its shard end the pauses.
func TestUnreachableFindsNews(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	ctx, five := t.Context(), shardway.Int64Key(5)
	route, err := m.Lookup(ctx, 5)
	want(t, route, err, "s1")
	route.FromCache = true

	f.moveShard("customers", "s1", "/elsewhere")
	fresh, retry, err := m.Map().Unreachable(ctx, five, route)
	want(t, fresh, err, "s1")
	if !retry || fresh.Shard.Location.Servers[0].Address != "/elsewhere" || fresh.MappingID != route.MappingID {
		t.Errorf("a shard that moved: retry %v, %+v", retry, fresh)
	}
	f.wantLookups(t, 2)
	known, retry, err := m.Map().Unreachable(ctx, five, route) // one who failed at the old place, later
	want(t, known, err, "s1")
	if !retry || !known.FromCache || known.Shard.Location.Servers[0].Address != "/elsewhere" {
		t.Errorf("a shard known to have moved: retry %v, %+v", retry, known)
	}
	f.wantLookups(t, 0)
	f.put("customers", ints(0, 100), "s3")
	fresh.FromCache = true
	latest, retry, err := m.Map().Unreachable(ctx, five, fresh)
	want(t, latest, err, "s3")
	if !retry {
		t.Error("no retry with a new mapping")
	}
	f.wantLookups(t, 1)
	again, retry, err := m.Map().Unreachable(ctx, five, route) // one who has slept
	want(t, again, err, "s3")
	if !retry {
		t.Error("no retry with what others found out")
	}
	f.wantLookups(t, 0)
	if n := m.Map().Stats().Failing; n != 0 {
		t.Errorf("%d mappings fail", n)
	}
}

// With the store down as well, it is not asked on every failure either.
func TestUnreachableWithStoreDown(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	route, err := m.Lookup(t.Context(), 5)
	want(t, route, err, "s1")
	route.FromCache = true
	f.lookups.Store(0)
	f.set(func(f *fakeSource) { f.down = shardway.ErrUnavailable })
	_, retry, err := m.Map().Unreachable(t.Context(), shardway.Int64Key(5), route)
	if retry || !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("retry %v, %v", retry, err)
	}
	for range 10 {
		if fail(t, m) {
			t.Error("retry")
		}
	}
	f.wantLookups(t, 1)
}

// Connecting took all the time that the request had: the store is asked all
// the same, so that the next request knows better.
func TestUnreachableAfterDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		route, err := m.Lookup(t.Context(), 5)
		want(t, route, err, "s1")
		route.FromCache = true
		f.put("customers", ints(0, 100), "s2")
		f.set(func(f *fakeSource) {
			f.before = func(ctx context.Context) error {
				time.Sleep(time.Second) // fake time
				return ctx.Err()
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, retry, err := m.Map().Unreachable(ctx, shardway.Int64Key(5), route); retry || !errors.Is(err, context.Canceled) {
			t.Errorf("retry %v, %v", retry, err)
		}
		time.Sleep(time.Second) // fake time
		synctest.Wait()
		route, err = m.LookupIn(t.Context(), 5, shardway.CacheOnly)
		want(t, route, err, "s2")
		r.Close()
	})
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	ctx, five := t.Context(), shardway.Int64Key(5)
	stale, err := m.Lookup(ctx, 5)
	want(t, stale, err, "s1")
	f.put("customers", ints(0, 50), "s3")
	f.put("customers", ints(50, 100), "s2")
	f.wantLookups(t, 1)

	route, err := m.Map().Refresh(ctx, five, stale)
	want(t, route, err, "s3")
	f.wantLookups(t, 1)
	if _, err := m.LookupIn(ctx, 60, shardway.CacheOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("the rest of the old mapping: %v", err)
	}
	route, err = m.Map().Refresh(ctx, five, stale) // another caller was faster
	want(t, route, err, "s3")
	f.wantLookups(t, 0)
	route, err = m.Map().Refresh(ctx, shardway.Int64Key(60), stale)
	want(t, route, err, "s2")
	f.wantLookups(t, 1)

	f.put("customers", ints(0, 50), "")
	if _, err := m.Map().Refresh(ctx, five, route); err != nil { // not the route of this key
		t.Errorf("a key whose mapping is not stale: %v", err)
	}
	route, err = m.Lookup(ctx, 5)
	want(t, route, err, "s3")
	if _, err := m.Map().Refresh(ctx, five, route); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("a key that is not mapped any more: %v", err)
	}
	if m.Map().Evict(five, route) {
		t.Error("evicted twice")
	}
	f.put("customers", ints(0, 50), "s1")
	if _, err = m.Lookup(ctx, 5); err != nil || m.Map().Evict(five, route) {
		t.Errorf("a newer mapping was evicted for an older one, %v", err)
	}
	route, err = m.LookupIn(ctx, 5, shardway.CacheOnly)
	want(t, route, err, "s1")
}

// The store still says what the shard denies: the map is just being changed.
func TestRefreshDuringChange(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	stale, err := m.Lookup(t.Context(), 5)
	want(t, stale, err, "s1")
	route, err := m.Map().Refresh(t.Context(), shardway.Int64Key(5), stale)
	want(t, route, err, "s1")
	if route.MappingID != stale.MappingID || route.FromCache {
		t.Errorf("%+v", route)
	}
	f.wantLookups(t, 2)
}

// Nobody uses a route again that its shard has denied, store or no store.
func TestRefreshWithStoreDown(t *testing.T) {
	t.Parallel()
	f, _, m := customers(t, shardway.Config{})
	stale, err := m.Lookup(t.Context(), 5)
	want(t, stale, err, "s1")
	f.set(func(f *fakeSource) { f.down = shardway.ErrUnavailable })
	for range 2 {
		if _, err := m.Map().Refresh(t.Context(), shardway.Int64Key(5), stale); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := m.LookupIn(t.Context(), 5, shardway.CacheOnly); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("the mapping is still cached: %v", err)
	}
}

// A mapping with many keys has moved: the store is asked once, not for each.
func TestRefreshAsksOnceForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		stale, err := m.Lookup(t.Context(), 5)
		want(t, stale, err, "s1")
		f.put("customers", ints(0, 50), "s3")
		f.put("customers", ints(50, 100), "s2")
		f.wantLookups(t, 1)
		f.set(func(f *fakeSource) {
			f.before = func(context.Context) error { time.Sleep(time.Second); return nil } // fake time
		})
		var wg sync.WaitGroup
		for k := range int64(100) {
			wg.Go(func() {
				shard := "s3"
				if k >= 50 {
					shard = "s2"
				}
				route, err := m.Map().Refresh(t.Context(), shardway.Int64Key(k), stale)
				want(t, route, err, shard)
			})
		}
		wg.Wait()
		// One for the mapping, then those of the other half miss: each key
		// asks, at most 16 at a time, until the first answer is there.
		if n := f.lookups.Load(); n > 1+16 {
			t.Errorf("%d lookups", n)
		}
		r.Close()
	})
}

// A caller who joins a question that was asked before the change asks again.
func TestRefreshIsFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		stale, err := m.Lookup(t.Context(), 5)
		want(t, stale, err, "s1")
		gate := make(chan bool)
		f.set(func(f *fakeSource) { f.after = func(*shardway.Answer) { <-gate } })
		go func() {
			route, err := m.Map().Refresh(t.Context(), shardway.Int64Key(5), stale)
			want(t, route, err, "s1")
		}()
		synctest.Wait() // it has its answer, which is the old one
		f.put("customers", ints(0, 100), "s3")
		done := make(chan struct{})
		go func() {
			defer close(done)
			route, err := m.Map().Refresh(t.Context(), shardway.Int64Key(5), stale)
			want(t, route, err, "s3")
		}()
		synctest.Wait()
		close(gate)
		<-done
		r.Close()
	})
}

// An answer that was read before a change and arrives after it does not undo it.
func TestOlderAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		changed func(f *fakeSource) // after the slow answer was read
		learn   int64               // a key read after the change; -1 for none
		want    map[int64]string    // cached afterwards; "" is nothing
	}{
		{"nothing newer known", func(*fakeSource) {}, -1, map[int64]string{5: "s1", 150: ""}},
		{"newer answer elsewhere", func(f *fakeSource) { f.put("customers", ints(100, 200), "s3") }, 150, map[int64]string{5: "s1", 150: "s3"}},
		{"moved", func(f *fakeSource) { f.put("customers", ints(0, 100), "s3") }, 5, map[int64]string{5: "s3"}},
		{"split", func(f *fakeSource) { f.put("customers", ints(0, 5), "s2"); f.put("customers", ints(5, 100), "s3") }, 50, map[int64]string{1: "", 5: "s3", 99: "s3"}},
		{"split below", func(f *fakeSource) { f.put("customers", ints(0, 5), "s2"); f.put("customers", ints(5, 100), "s3") }, 3, map[int64]string{3: "s2", 5: ""}},
		{"merged", func(f *fakeSource) { f.put("customers", ints(0, 200), "s3") }, 150, map[int64]string{5: "s3", 150: "s3"}},
		{"deleted", func(f *fakeSource) { f.put("customers", ints(0, 100), "") }, 50, map[int64]string{5: ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, r, m := customers(t, shardway.Config{})
				gate := make(chan struct{})
				f.set(func(f *fakeSource) { f.after = func(*shardway.Answer) { <-gate } })
				done := make(chan struct{})
				go func() {
					defer close(done)
					route, err := m.Lookup(t.Context(), 5)
					want(t, route, err, "s1") // what it was told is what it returns
				}()
				synctest.Wait()
				f.set(func(f *fakeSource) { f.after = nil })
				c.changed(f)
				if c.learn >= 0 {
					if _, err := m.LookupIn(t.Context(), c.learn, shardway.StoreOnly); err != nil && c.want[c.learn] != "" {
						t.Error(err)
					}
				}
				close(gate)
				<-done
				for k, shard := range c.want {
					route, err := m.LookupIn(t.Context(), k, shardway.CacheOnly)
					switch {
					case shard != "":
						want(t, route, err, shard)
					case !errors.Is(err, shardway.ErrKeyNotMapped):
						t.Errorf("key %d: %+v, %v; want nothing cached", k, route, err)
					}
				}
				r.Close()
			})
		})
	}
}

// That a key was not mapped does not undo its mapping either.
func TestOlderMiss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{})
		gate, done := make(chan struct{}), make(chan struct{})
		f.set(func(f *fakeSource) { f.after = func(*shardway.Answer) { <-gate } })
		go func() {
			defer close(done)
			if _, err := m.Lookup(t.Context(), 500); !errors.Is(err, shardway.ErrKeyNotMapped) {
				t.Errorf("the slow answer: %v", err)
			}
		}()
		synctest.Wait()
		f.set(func(f *fakeSource) { f.after = nil })
		f.put("customers", ints(500, 600), "s3")
		route, err := m.LookupIn(t.Context(), 500, shardway.StoreOnly)
		want(t, route, err, "s3")
		close(gate)
		<-done
		route, err = m.LookupIn(t.Context(), 500, shardway.CacheOnly)
		want(t, route, err, "s3")
		r.Close()
	})
}

// Everything at once: what the cache says in the end is what the store says.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := customers(t, shardway.Config{LoadPolicy: shardway.Eager, PollInterval: 5 * time.Millisecond})
		ctx := t.Context()
		var wg sync.WaitGroup
		for reader := range int64(4) {
			wg.Go(func() {
				for i := range int64(2000) {
					k := (i*7 + reader) % 200
					route, err := m.Lookup(ctx, k)
					if err != nil {
						t.Errorf("key %d: %v", k, err)
						return
					}
					if i%5 == 0 {
						if _, err := m.Map().Refresh(ctx, shardway.Int64Key(k), route); err != nil {
							t.Errorf("key %d: %v", k, err)
						}
					}
					if i%50 == 0 {
						time.Sleep(time.Millisecond) // fake time
					}
				}
			})
		}
		wg.Go(func() {
			for i := range int64(300) {
				f.set(func(f *fakeSource) { // never a moment without a mapping
					c, split := f.maps["customers"], 1+i*37%198
					c.put(f, ints(0, split), fmt.Sprint("s", 1+i%2))
					c.put(f, ints(split, 200), "s3")
				})
				if i%10 == 0 {
					time.Sleep(time.Millisecond) // fake time
				}
			}
		})
		wg.Wait()
		time.Sleep(10 * time.Millisecond) // fake time
		synctest.Wait()                   // the feed has seen the last change
		for k := range int64(200) {
			cached, cerr := m.Lookup(ctx, k)
			stored, serr := m.LookupIn(ctx, k, shardway.StoreOnly)
			if cerr != nil || serr != nil || cached.MappingID != stored.MappingID {
				t.Errorf("key %d: cached %v, stored %v, %v, %v", k, cached.MappingID, stored.MappingID, cerr, serr)
			}
		}
		r.Close()
	})
}

package sqlstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
)

const mib = 1 << 20

// BenchmarkScale is what a large map costs one router, and many routers one
// store, see scaleOf. Routers and their store share the machine.
func BenchmarkScale(b *testing.B) {
	for _, e := range []dbtest.Engine{dbtest.EngineSQLite, dbtest.EnginePostgres} {
		b.Run(string(e), func(b *testing.B) {
			s := scaleOf()
			large := newCrowd(b, e, s, s.mappings)
			b.Run("eager-load", func(b *testing.B) { benchEagerLoad(b, large, s) })
			for _, callers := range []int{1, 64} {
				b.Run(fmt.Sprint("lazy-misses/", callers), func(b *testing.B) { benchMisses(b, large, s, callers) })
			}
			b.Run("feed/few-hold-it-whole", func(b *testing.B) { benchFeed(b, large, s, s.mappings, s.whole) })
			b.Run("feed/all-hold-it-whole", func(b *testing.B) {
				benchFeed(b, newCrowd(b, e, s, s.shared), s, s.shared, s.routers)
			})
		})
	}
}

// benchEagerLoad is one router that reads the whole map.
func benchEagerLoad(b *testing.B, c *crowd, s scale) {
	var most uint64
	var held int64
	for b.Loop() {
		b.StopTimer()
		before := liveHeap()
		b.StartTimer()
		var r *shardway.Router
		var m *shardway.Map
		most = max(most, peakOf(func() { r, m = c.router(b, shardway.Config{LoadPolicy: shardway.Eager, PollInterval: math.MaxInt64}) }))
		b.StopTimer()
		held = liveHeap() - before
		if n := m.Stats().Mappings; n != s.mappings {
			b.Fatalf("%d mappings", n)
		}
		_ = r.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(held)/float64(s.mappings), "B/mapping")
	b.ReportMetric(float64(most)/mib, "MiB-peak")
}

// benchMisses is the lookup of keys that a router does not know: each is one
// question to the store, by so many callers at once.
func benchMisses(b *testing.B, c *crowd, s scale, callers int) {
	var rate, held float64
	for b.Loop() {
		b.StopTimer()
		r, m := c.router(b, shardway.Config{})
		keys := rand.New(rand.NewPCG(1, 2)).Perm(s.mappings)[:s.misses]
		before, asked := liveHeap(), c.questions.Load()
		b.StartTimer()
		began := time.Now()
		var next atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(keys)); i = next.Add(1) - 1 {
					key := shardway.Int64Key(int64(keys[i]) * width)
					if _, err := m.Lookup(b.Context(), key, shardway.CacheAndStore); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		rate = float64(s.misses) / time.Since(began).Seconds()
		b.StopTimer()
		if n := c.questions.Load() - asked; n != int64(s.misses) {
			b.Fatalf("%d questions for %d misses", n, s.misses)
		}
		held = float64(liveHeap()-before) / float64(s.misses)
		runtime.KeepAlive(keys)
		_ = r.Close()
		b.StartTimer()
	}
	b.ReportMetric(rate, "misses/s")
	b.ReportMetric(held, "B/mapping")
}

// following is many routers on one map: those that hold it whole follow its
// changes, the others learn of one when a shard refuses them.
type following struct {
	*crowd

	eager, lazy []*shardway.Map
}

// benchFeed is how long it takes until all routers know of a change, and what
// that and doing nothing costs the store.
func benchFeed(b *testing.B, c *crowd, s scale, mappings, whole int) {
	before := liveHeap()
	f := &following{crowd: c}
	for i := range s.routers {
		cfg := shardway.Config{PollInterval: s.poll}
		if i < whole {
			cfg.LoadPolicy = shardway.Eager
		}
		_, m := c.router(b, cfg)
		if i < whole {
			f.eager = append(f.eager, m)
		} else {
			f.lazy = append(f.lazy, m)
		}
	}
	held := float64(liveHeap()-before) / mib
	b.Run("idle", func(b *testing.B) {
		asked, used := c.questions.Load(), c.cpu()
		for b.Loop() {
			<-time.After(s.idle)
		}
		took := b.Elapsed().Seconds()
		b.ReportMetric(float64(c.questions.Load()-asked)/took/float64(whole), "questions/s/follower")
		b.ReportMetric((c.cpu()-used).Seconds()/took*1000, "cpu-ms/s")
		b.ReportMetric(held, "MiB-held")
	})
	b.Run("mapping", func(b *testing.B) {
		f.changes(b, s, mappings, c.changeMapping, func(m *shardway.Map, key shardway.Key, stale shardway.Route) (shardway.Route, error) {
			return m.Refresh(b.Context(), key, stale)
		})
	})
	b.Run("shard", func(b *testing.B) {
		f.changes(b, s, mappings, c.changeShard, func(m *shardway.Map, key shardway.Key, stale shardway.Route) (shardway.Route, error) {
			route, _, err := m.Unreachable(b.Context(), key, stale)
			return route, err
		})
	})
}

// changes publishes changes, each when all have seen the one before.
func (f *following) changes(b *testing.B, s scale, mappings int, publish func(*testing.B, shardway.Key),
	refused func(*shardway.Map, shardway.Key, shardway.Route) (shardway.Route, error),
) {
	b.Helper()
	var followed, learned []time.Duration
	var asked, read int64
	var used time.Duration
	for b.Loop() {
		for range s.changes {
			key := shardway.Int64Key(rand.Int64N(int64(mappings)) * width)
			stale := f.warm(b, key)
			publish(b, key)
			began, questions, rows, cpu := time.Now(), f.questions.Load(), f.rows.Load(), f.cpu()
			if len(f.lazy) > 0 {
				f.learn(b, key, stale, refused)
				learned = append(learned, time.Since(began))
			}
			f.caughtUp(b)
			followed = append(followed, time.Since(began))
			asked, read, used = asked+f.questions.Load()-questions, read+f.rows.Load()-rows, used+f.cpu()-cpu
		}
	}
	n := float64(len(followed))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(quantile(followed, 0.5)), "p50-ms")
	b.ReportMetric(ms(quantile(followed, 0.99)), "p99-ms")
	if len(learned) > 0 {
		b.ReportMetric(ms(quantile(learned, 0.5)), "lazy-p50-ms")
		b.ReportMetric(ms(quantile(learned, 0.99)), "lazy-p99-ms")
	}
	b.ReportMetric(float64(asked)/n/float64(s.routers), "questions/change/router")
	b.ReportMetric(float64(read)/n/float64(s.routers), "rows/change/router")
	b.ReportMetric(ms(used)/n, "cpu-ms/change")
}

// warm lets the lazy routers know a key, and returns what they know.
func (f *following) warm(b *testing.B, key shardway.Key) []shardway.Route {
	b.Helper()
	routes := make([]shardway.Route, len(f.lazy))
	for i, m := range f.lazy {
		for !routes[i].FromCache {
			var err error
			if routes[i], err = m.Lookup(b.Context(), key, shardway.CacheAndStore); err != nil {
				b.Fatal(err)
			}
		}
	}
	return routes
}

// learn has all lazy routers be refused by the shard at the same time.
func (f *following) learn(b *testing.B, key shardway.Key, stale []shardway.Route,
	refused func(*shardway.Map, shardway.Key, shardway.Route) (shardway.Route, error),
) {
	b.Helper()
	var all sync.WaitGroup
	for i, m := range f.lazy {
		all.Go(func() {
			route, err := refused(m, key, stale[i])
			if err != nil || route.MappingID == stale[i].MappingID && route.Shard.Version == stale[i].Shard.Version {
				b.Errorf("a refused router has %+v, %v", route, err)
			}
		})
	}
	all.Wait()
}

// caughtUp waits until every eager router knows the newest generation.
func (f *following) caughtUp(b *testing.B) {
	b.Helper()
	m, err := f.ShardMap(b.Context(), f.m.Name)
	if err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, router := range f.eager {
		for router.ShardMap().Generation < m.Generation {
			<-tick.C
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile returns the value that a share q of all do not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[max(int(math.Ceil(q*float64(len(all)))), 1)-1]
}

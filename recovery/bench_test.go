package recovery_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// benchSize is a tenth of the goal in each direction, so that a run of all
// benchmarks ends. With SHARDWAY_BENCH_FULL set it is the goal: 100 shards with
// 10,000 mappings each.
func benchSize() (shards, mappings int) {
	if os.Getenv("SHARDWAY_BENCH_FULL") != "" {
		return 100, 10_000
	}
	return 10, 1_000
}

// fleet is a global store and many shards, whose keys are spread evenly: that
// of mapping i is on shard i modulo the number of shards, which is the worst
// case for whoever would read the map in ranges.
type fleet struct {
	global *sqlstore.Global
	m      shardway.ShardMap
	shards []shardway.Shard
	r      *recovery.Recovery

	mu     sync.Mutex // guards the field below
	locals map[string]*sqlstore.Local
	open   func(address string) *sqlstore.Local
}

func (f *fleet) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	address := l.Servers[0].Address
	if f.locals[address] == nil {
		f.locals[address] = f.open(address)
	}
	return f.locals[address], nil
}

func (f *fleet) Normalize(l shardway.Location) (shardway.Location, error) { return l, nil }

func newFleet(b *testing.B, e dbtest.Engine) *fleet {
	b.Helper()
	if err := e.Available(); err != nil {
		b.Skip(err)
	}
	g, err := sqlstore.NewGlobal(benchPool(b, e), string(e))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.Deploy(b.Context(), false); err != nil {
		b.Fatal(err)
	}
	f := &fleet{global: g, locals: map[string]*sqlstore.Local{}}
	f.open = func(string) *sqlstore.Local {
		pool := benchPool(b, e)
		pool.SetMaxOpenConns(2)
		pool.SetMaxIdleConns(1) // a hundred databases on one server
		l, err := sqlstore.NewLocal(pool, string(e))
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	c, err := catalog.New(g, f, catalog.Config{Who: "bench", Lease: 5 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	if f.r, err = recovery.New(g, f, c, recovery.Config{}); err != nil {
		b.Fatal(err)
	}
	f.populate(b, c)
	return f
}

// benchPool opens a new database as programs do, by the package of its engine.
func benchPool(b *testing.B, e dbtest.Engine) *sql.DB {
	b.Helper()
	var engine shardway.Engine
	var at shardway.Location
	var login shardway.Credentials
	var err error
	if db := e.NewDatabase(b); e == dbtest.EngineSQLite {
		engine, at, login, err = sqlite.Parse(db.DSN())
	} else {
		engine, at, login, err = postgres.Parse(db.DSN())
	}
	if err != nil {
		b.Fatal(err)
	}
	connector, err := engine.Connector(at.Servers[0].Address, at.Database, login)
	if err != nil {
		b.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	b.Cleanup(func() { _ = pool.Close() })
	return pool
}

// lose lets all databases of shards be lost.
func (f *fleet) lose(b *testing.B) {
	b.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.locals {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	clear(f.locals)
}

func (f *fleet) populate(b *testing.B, c *catalog.Catalog) {
	b.Helper()
	must := func(ch catalog.Change) catalog.Result {
		res, err := c.Do(b.Context(), ch)
		if err != nil {
			b.Fatal(err)
		}
		return res
	}
	f.m = must(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	shards, mappings := benchSize()
	for i := range shards {
		name := fmt.Sprintf("s%03d", i)
		f.shards = append(f.shards, must(catalog.AddShard{Map: f.m, Name: name, Location: at(name)}).Shards[0])
	}
	const batch = 50_000
	for low := 0; low < shards*mappings; low += batch {
		var n []catalog.NewMapping
		for i := low; i < min(low+batch, shards*mappings); i++ {
			n = append(n, catalog.NewMapping{Range: span(int64(i)*10, int64(i)*10+10), ShardID: f.shards[i%shards].ID})
		}
		must(catalog.AddMappings{Map: f.m, New: n})
	}
}

// peak runs fn and reports how much memory lived at most, seen every 50 ms, and
// the whole time.
func peak(b *testing.B, fn func()) {
	b.Helper()
	runtime.GC()
	var most atomic.Uint64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
		}
	})
	fn()
	close(done)
	watching.Wait()
	b.ReportMetric(float64(most.Load())/(1<<20), "MiB-peak")
}

// BenchmarkRecovery compares and rebuilds many shards. The goal is 60 s for a
// rebuild of 100 shards with 10,000 mappings each, see benchSize.
func BenchmarkRecovery(b *testing.B) {
	for _, e := range []dbtest.Engine{dbtest.EngineSQLite, dbtest.EnginePostgres} {
		b.Run(string(e), func(b *testing.B) {
			f := newFleet(b, e)
			b.Run("detect", func(b *testing.B) {
				for b.Loop() {
					peak(b, func() { f.checkClean(b) })
				}
			})
			b.Run("rebuild-local", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					f.lose(b)
					b.StartTimer()
					peak(b, func() { f.done(b)(f.r.RebuildLocal(b.Context(), f.m, recovery.Rebuild{})) })
				}
			})
			f.checkClean(b)
			b.Run("rebuild-global", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					f.forget(b)
					b.StartTimer()
					peak(b, func() { f.done(b)(f.r.RebuildGlobal(b.Context(), f.m, recovery.Rebuild{})) })
				}
			})
			f.checkClean(b)
		})
	}
}

func (f *fleet) checkClean(b *testing.B) {
	b.Helper()
	reports, err := f.r.Detect(b.Context(), f.m)
	if err != nil || len(reports) != len(f.shards) {
		b.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, rep := range reports {
		if !rep.Clean() {
			b.Fatalf("shard %q: %s, %d differences", rep.Shard.Name, rep.State, len(rep.Differences))
		}
	}
}

func (f *fleet) done(b *testing.B) func([]recovery.Rebuilt, error) {
	b.Helper()
	return func(all []recovery.Rebuilt, err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		for _, one := range all {
			if one.Err != nil {
				b.Fatal(one.Err)
			}
		}
	}
}

// forget empties the global map and leaves its shards: the backup is of a day
// before the first mapping.
func (f *fleet) forget(b *testing.B) {
	b.Helper()
	for {
		op := &store.Operation{ID: store.OperationID(store.NewID()), Kind: "forget", Map: f.m, Epoch: 1}
		err := f.global.Update(b.Context(), f.m.ID, func(tx store.Reader, _ time.Time) (store.Delta, error) {
			step := store.Step{Shard: f.shards[0], GlobalOnly: true}
			for row, err := range tx.Mappings(b.Context(), store.MappingQuery{Map: f.m, Limit: 100_000}) {
				if err != nil {
					return store.Delta{}, err
				}
				step.Remove = append(step.Remove, row.Mapping)
			}
			op.Steps = []store.Step{step}
			return store.Delta{Prepare: op, Publish: op}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if len(op.Steps[0].Remove) == 0 {
			return
		}
	}
}

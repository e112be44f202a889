package sqlstore_test

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
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// scale is how large the benchmarks of many routers are.
type scale struct {
	shards, mappings int
	routers          int
	whole            int // routers that hold the whole map while the others read what they need
	shared           int // mappings of the map that all routers hold
	changes          int // followed, for each kind of change
	poll, idle       time.Duration
	misses           int
}

// scaleOf is small, so that a run of all benchmarks ends. With
// SHARDWAY_BENCH_FULL set it is the goal: 10^6 mappings on 100 shards, 200
// routers that poll as they do by default.
func scaleOf() scale {
	if os.Getenv("SHARDWAY_BENCH_FULL") != "" {
		return scale{
			shards: 100, mappings: 1_000_000, routers: 200, whole: 10, shared: 100_000,
			changes: 30, poll: time.Second, idle: 10 * time.Second, misses: 50_000,
		}
	}
	return scale{
		shards: 10, mappings: 10_000, routers: 20, whole: 4, shared: 1_000,
		changes: 5, poll: 100 * time.Millisecond, idle: time.Second, misses: 2_000,
	}
}

// crowd is a global store with one map of even ranges, spread over its shards
// in turn, and the questions that routers ask it.
type crowd struct {
	*sqlstore.Global

	pid    int // of the database server; 0 when there is none
	m      shardway.ShardMap
	shards []shardway.Shard

	questions, rows atomic.Int64
}

// width is how many keys a mapping of a crowd has.
const width = 10

func newCrowd(b *testing.B, e dbtest.Engine, s scale, mappings int) *crowd {
	b.Helper()
	if err := e.Available(); err != nil {
		b.Skip(err)
	}
	p := placeOf(b, e.NewDatabase(b))
	connector, err := p.engine.Connector(p.location.Servers[0].Address, p.location.Database, p.credentials)
	if err != nil {
		b.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(50) // the routers stand for as many programs
	pool.SetMaxIdleConns(50)
	b.Cleanup(func() { _ = pool.Close() })
	g, err := sqlstore.NewGlobal(pool, p.engine.Name())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.Deploy(b.Context(), false); err != nil {
		b.Fatal(err)
	}
	c := &crowd{Global: g}
	if e != dbtest.EngineSQLite {
		c.pid = e.Server(b).PID()
	}
	c.populate(b, s.shards, mappings)
	return c
}

func (c *crowd) update(b *testing.B, m shardway.MapID, d store.Delta) {
	b.Helper()
	err := c.Update(b.Context(), m, func(store.Reader, time.Time) (store.Delta, error) { return d, nil })
	if err != nil {
		b.Fatal(err)
	}
}

func (c *crowd) populate(b *testing.B, shards, mappings int) {
	b.Helper()
	c.m = shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	c.update(b, 0, store.Delta{AddMap: &c.m})
	var steps []store.Step
	for i := range shards {
		s := shardway.Shard{
			ID: shardway.ShardID(store.NewID()), MapID: c.m.ID, Name: fmt.Sprintf("s%03d", i), Version: store.NewID(),
			Location: shardway.Location{Engine: "postgres", Database: "app", Servers: []shardway.Server{{Address: fmt.Sprintf("db%03d.internal:5432", i)}}},
		}
		c.shards = append(c.shards, s)
		steps = append(steps, store.Step{Shard: s, After: &s})
	}
	c.publish(b, steps, store.Entry{ShardsOnly: true})
	const batch = 50_000
	for low := 0; low < mappings; low += batch {
		step := store.Step{Shard: c.shards[0]}
		for i := low; i < min(low+batch, mappings); i++ {
			step.Add = append(step.Add, shardway.Mapping{
				ID: shardway.MappingID(store.NewID()), MapID: c.m.ID, ShardID: c.shards[i%shards].ID, Status: shardway.Online,
				Range: shardway.Range{Low: shardway.Int64Key(int64(i) * width), High: shardway.Int64Key(int64(i+1) * width)},
			})
		}
		c.publish(b, []store.Step{step}, store.Entry{})
	}
}

// publish makes a change of the global store alone.
func (c *crowd) publish(b *testing.B, steps []store.Step, e store.Entry) {
	b.Helper()
	o := &store.Operation{ID: store.OperationID(store.NewID()), Kind: "bench", Map: c.m, Steps: steps, Epoch: 1}
	e.Operation, e.MapID, e.MapName, e.Kind, e.Outcome = o.ID, c.m.ID, c.m.Name, o.Kind, store.Done
	c.update(b, c.m.ID, store.Delta{Prepare: o, Publish: o, History: []store.Entry{e}})
}

// changeMapping gives the mapping of a key a new id, as every change of one does.
func (c *crowd) changeMapping(b *testing.B, key shardway.Key) {
	b.Helper()
	a, err := c.Global.Lookup(b.Context(), c.m, key)
	if err != nil || !a.Found {
		b.Fatalf("Lookup = %+v, %v", a, err)
	}
	after := a.Mapping
	after.ID = shardway.MappingID(store.NewID())
	c.publish(b, []store.Step{{Shard: a.Shard, Remove: []shardway.Mapping{a.Mapping}, Add: []shardway.Mapping{after}}},
		store.Entry{Ranges: []shardway.Range{a.Mapping.Range, after.Range}})
}

// changeShard gives the shard of a key another address.
func (c *crowd) changeShard(b *testing.B, key shardway.Key) {
	b.Helper()
	a, err := c.Global.Lookup(b.Context(), c.m, key)
	if err != nil || !a.Found {
		b.Fatalf("Lookup = %+v, %v", a, err)
	}
	after := a.Shard
	after.Version = store.NewID()
	after.Location.Servers = []shardway.Server{{Address: fmt.Sprintf("db%d.internal:5432", after.Version)}}
	c.publish(b, []store.Step{{Shard: after, Before: &a.Shard, After: &after}}, store.Entry{ShardsOnly: true})
}

// Lookup, Load and Changes count what routers ask.
func (c *crowd) Lookup(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	c.questions.Add(1)
	c.rows.Add(1)
	return c.Global.Lookup(ctx, m, key)
}

func (c *crowd) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	c.questions.Add(1)
	n := int64(0)
	defer func() { c.rows.Add(n) }()
	return c.Global.Load(ctx, m, within, func(row shardway.MappingRow) error {
		n++
		return each(row)
	})
}

func (c *crowd) Changes(ctx context.Context, m shardway.ShardMap, since int64) (shardway.Changes, error) {
	c.questions.Add(1)
	return c.Global.Changes(ctx, m, since)
}

// router opens a router and its map.
func (c *crowd) router(b *testing.B, cfg shardway.Config) (*shardway.Router, *shardway.Map) {
	b.Helper()
	r, err := shardway.Open(b.Context(), c, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	m, err := r.Map(b.Context(), c.m.Name)
	if err != nil {
		b.Fatal(err)
	}
	return r, m
}

// cpu is the CPU time that routers and the store have used.
func (c *crowd) cpu() time.Duration { return dbtest.CPU(c.pid) }

// liveHeap returns the bytes that are in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// peakOf runs fn and returns the largest heap seen meanwhile, every 20 ms.
func peakOf(fn func()) (bytes uint64) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-done:
				over = true
			case <-tick.C:
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			bytes = max(bytes, m.HeapInuse)
		}
	})
	fn()
	close(done)
	watching.Wait()
	return bytes
}

package sqlshard_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// million is a store of a million mappings, all on one shard.
type million struct {
	shardway.Source
	shard shardway.Shard
	first shardway.MappingID // every other mapping is made up
}

const mappings = 1_000_000

func (s million) Load(_ context.Context, _ shardway.ShardMap, _ shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	var low, high []byte
	for i := range int64(mappings) {
		low, high = shardway.Int64Key(i*10).AppendEncoded(low[:0]), shardway.Int64Key(i*10+10).AppendEncoded(high[:0])
		if err := each(shardway.MappingRow{ID: s.first, Low: low, High: high, ShardID: s.shard.ID, Status: shardway.Online}); err != nil {
			return shardway.MapState{}, err
		}
	}
	return shardway.MapState{Shards: []shardway.Shard{s.shard}, Generation: 1}, nil
}

func (s million) Changes(context.Context, shardway.ShardMap, int64) (shardway.Changes, error) {
	return shardway.Changes{Generation: 1, Complete: true}, nil
}

// BenchmarkOpenConnectionForKey compares, block by block in turn, a plain
// checkout from database/sql with a connection for a random key among a million
// mappings, with and without validation. One operation is one checkout of each.
// On a shared machine read the CPU times, which are those of this thread: what
// the driver does in other goroutines is not in them.
func BenchmarkOpenConnectionForKey(b *testing.B) {
	for _, e := range dbtest.Engines() {
		b.Run(string(e), func(b *testing.B) { benchEngine(b, e) })
	}
}

func benchEngine(b *testing.B, e dbtest.Engine) {
	r := newEmptyRig(b, e)
	r.addShard("a")
	handle := openMillion(b, r, r.addRange("a", 0, 1))
	keys := make([]int64, 1<<16)
	for i := range keys {
		keys[i] = rand.Int64N(mappings * 10)
	}
	contenders := []contender{
		{name: "plain", run: plain(b, r)},
		{name: "lookup", run: func(ctx context.Context, i int) error {
			_, err := handle.Lookup(ctx, keys[i&(len(keys)-1)])
			return err
		}},
	}
	for _, v := range []sqlshard.Validation{sqlshard.None, sqlshard.Validate} {
		db, err := sqlshard.New(handle, sqlshard.Config{Engines: []shardway.Engine{r.engine}, Credentials: r.login, Validation: v})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		contenders = append(contenders, contender{name: v.String(), run: func(ctx context.Context, i int) error {
			conn, err := db.OpenConnectionForKey(ctx, keys[i&(len(keys)-1)])
			if err != nil {
				return err
			}
			return conn.Close()
		}})
	}
	contend(b, contenders)
}

func openMillion(b *testing.B, r *rig, m shardway.Mapping) *shardway.RangeShardMap[int64] {
	b.Helper()
	router, err := shardway.Open(b.Context(), million{r.source, r.shards["a"], m.ID}, shardway.Config{LoadPolicy: shardway.Eager})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = router.Close() })
	handle, err := shardway.OpenRangeShardMap[int64](b.Context(), router, "customers")
	if err != nil {
		b.Fatal(err)
	}
	return handle
}

// plain is a checkout as programs without shards do it.
func plain(b *testing.B, r *rig) func(context.Context, int) error {
	b.Helper()
	at := r.shards["a"].Location
	connector, err := r.engine.Connector(at.Servers[0].Address, at.Database, r.login)
	if err != nil {
		b.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	b.Cleanup(func() { _ = pool.Close() })
	return func(ctx context.Context, _ int) error {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// contender is one of those compared.
type contender struct {
	name   string
	run    func(ctx context.Context, i int) error
	ops    int
	cpu    time.Duration // of all operations
	allocs float64       // of one operation, the fewest of a block
}

// contend runs the contenders in blocks, in turn, and reports the mean of each.
// The blocks are long because some kernels count CPU time in milliseconds.
func contend(b *testing.B, contenders []contender) {
	b.Helper()
	const block = 5000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	for n := 0; n < b.N || n == 0; n += block {
		for i := range contenders {
			contenders[i].measure(ctx, b, n, block)
		}
	}
	b.ReportMetric(0, "ns/op") // of all contenders together: says nothing
	for _, c := range contenders {
		b.ReportMetric(float64(c.cpu.Nanoseconds())/float64(c.ops), c.name+"-cpu-ns")
		b.ReportMetric(c.allocs, c.name+"-allocs")
	}
}

func (c *contender) measure(ctx context.Context, b *testing.B, from, block int) {
	b.Helper()
	if c.name == sqlshard.Validate.String() {
		block /= 50 // an operation takes that much longer
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := threadCPU()
	for k := range block {
		if err := c.run(ctx, from+k); err != nil {
			b.Fatal(err)
		}
	}
	c.cpu += threadCPU() - start
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / float64(block)
	if c.ops == 0 || allocs < c.allocs {
		c.allocs = allocs
	}
	c.ops += block
}

// BenchmarkChosenServer is the cost of choosing: a checkout, without
// validation, from one server and from three, on an engine that costs nothing.
func BenchmarkChosenServer(b *testing.B) {
	for _, c := range []struct {
		name     string
		servers  []string
		criteria selection.Criteria
	}{
		{"one", []string{"a:1"}, selection.Primary()},
		{"primary of three", []string{"a:1", "b:1", "c:1"}, selection.Primary()},
		{"nearest of three", []string{"a:1", "b:1", "c:1"}, selection.Nearest()},
	} {
		b.Run(c.name, func(b *testing.B) {
			db, _, _, closeAll := newFakeSet(b, sqlshard.Config{Validation: sqlshard.None}, c.servers...)
			defer closeAll()
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				conn, err := db.With(c.criteria).OpenConnectionForKey(ctx, 7)
				if err != nil {
					b.Fatal(err)
				}
				_ = conn.Close()
			}
		})
	}
}

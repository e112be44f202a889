package pgxshard_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/pgxshard"
)

const benchKeys = 2000

const (
	selectRow = "SELECT n FROM item WHERE id = $1"
	lockRow   = "SELECT n AS merge FROM item WHERE id = $1" // for the word's sake validated with the lock
	updateRow = "UPDATE item SET n = n + 1 WHERE id = $1"
)

// contender is one of those compared.
type contender struct {
	name string
	run  func(ctx context.Context, key int64) error
}

// bench is a shard with a mapping for each of many keys, and pools to it with and
// without a shard map.
type bench struct {
	r      *rig
	db     *pgxshard.DB[int64]
	none   *pgxshard.DB[int64]
	plain  *pgxpool.Pool
	server *dbtest.Server
}

func newBench(b *testing.B, at func(shardway.Location) shardway.Location) *bench {
	b.Helper()
	r := newEmptyRig(b)
	r.at = at
	r.router.LoadPolicy = shardway.Eager
	r.addShard("a")
	r.exec("a", "INSERT INTO item (id) SELECT generate_series(1, $1)", benchKeys)
	r.exec("a", "ALTER TABLE item SET (fillfactor = 50)")
	r.exec("a", "VACUUM FULL ANALYZE item")
	add := catalog.AddMappings{Map: r.m}
	for key := range int64(benchKeys) {
		add.New = append(add.New, catalog.NewMapping{
			Range: shardway.Range{Low: shardway.Int64Key(key + 1), High: shardway.Int64Key(key + 2)}, ShardID: r.shards["a"].ID,
		})
	}
	r.do(add)
	r.exec("a", "VACUUM ANALYZE shardway.local_mappings")
	s := &bench{r: r, server: dbtest.Postgres(b)}
	s.db = r.open(pgxshard.Config{})
	s.none = r.open(pgxshard.Config{Validation: pgxshard.None})
	l := r.shards["a"].Location
	config, _, err := r.engine.PoolConfig(l.Servers[0].Address, l.Database, r.login)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 16
	if s.plain, err = pgxpool.NewWithConfig(b.Context(), config); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.plain.Close)
	return s
}

// query reads one number.
func query(r pgx.Row) error {
	var n int64
	return r.Scan(&n)
}

func (s *bench) contenders() []contender {
	return []contender{
		{"select-pgx", func(ctx context.Context, key int64) error { return query(s.plain.QueryRow(ctx, selectRow, key)) }},
		{"select-routed", func(ctx context.Context, key int64) error { return query(s.none.QueryRow(ctx, key, selectRow, key)) }},
		{"select-validated", func(ctx context.Context, key int64) error { return query(s.db.QueryRow(ctx, key, selectRow, key)) }},
		{"select-locked", func(ctx context.Context, key int64) error { return query(s.db.QueryRow(ctx, key, lockRow, key)) }},
		{"select-sequential", func(ctx context.Context, key int64) error {
			return s.plain.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
				if _, err := c.Exec(ctx, pgxshard.AskPlain, key); err != nil {
					return err
				}
				return query(c.QueryRow(ctx, selectRow, key))
			})
		}},
		{"update-pgx", func(ctx context.Context, key int64) error { return second(s.plain.Exec(ctx, updateRow, key)) }},
		{"update-validated", func(ctx context.Context, key int64) error { return second(s.db.Exec(ctx, key, updateRow, key)) }},
		{"tx-pgx", func(ctx context.Context, key int64) error {
			return pgx.BeginFunc(ctx, s.plain, func(tx pgx.Tx) error { return second(tx.Exec(ctx, updateRow, key)) })
		}},
		{"tx-validated", func(ctx context.Context, key int64) error {
			return s.db.InTx(ctx, key, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, updateRow, key)) })
		}},
	}
}

func second[T any](_ T, err error) error { return err }

// BenchmarkLatency is one client: ten calls of each contender in turn, so that
// all of them see the same machine. Read p10 and p50 within one line.
func BenchmarkLatency(b *testing.B) {
	for _, c := range []struct {
		name string
		hold time.Duration // of each chunk, each way
	}{{"loopback", 0}, {"rtt=0.5ms", 250 * time.Microsecond}, {"rtt=2ms", time.Millisecond}} {
		b.Run(c.name, func(b *testing.B) {
			var at func(shardway.Location) shardway.Location
			var proxy *faultconn.Proxy
			if c.hold > 0 {
				proxy = faultconn.New(b, dbtest.Postgres(b).Addr())
				at = through(proxy)
			}
			s := newBench(b, at)
			all := s.contenders()
			warm(b, all)
			if proxy != nil {
				proxy.Delay(c.hold)
			}
			latency(b, all)
		})
	}
}

func warm(b *testing.B, all []contender) {
	b.Helper()
	for _, c := range all {
		for range 20 {
			if err := c.run(b.Context(), 1+rand.Int64N(benchKeys)); err != nil {
				b.Fatal(c.name, err)
			}
		}
	}
}

func latency(b *testing.B, all []contender) {
	b.Helper()
	took := make([][]time.Duration, len(all))
	b.ResetTimer()
	for n := 0; n < b.N; n += 10 {
		for i, c := range all {
			for range 10 {
				key := 1 + rand.Int64N(benchKeys)
				began := time.Now()
				if err := c.run(b.Context(), key); err != nil {
					b.Fatal(c.name, err)
				}
				took[i] = append(took[i], time.Since(began))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of all contenders together: says nothing
	for i, c := range all {
		slices.Sort(took[i])
		b.ReportMetric(micro(took[i][len(took[i])/10]), c.name+"-p10-us")
		b.ReportMetric(micro(took[i][len(took[i])/2]), c.name+"-p50-us")
	}
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// BenchmarkThroughput is eight clients on each contender in turn, for a fifth of
// a second: the median of operations per second, and CPU time per operation of
// client, pooler and server together.
func BenchmarkThroughput(b *testing.B) {
	s := newBench(b, nil)
	all := s.contenders()
	warm(b, all)
	throughput(b, all, s.server.PID())
}

func throughput(b *testing.B, all []contender, pids ...int) {
	b.Helper()
	const clients, block = 8, 200 * time.Millisecond
	rates := make([][]float64, len(all))
	ops, cpu := make([]float64, len(all)), make([]time.Duration, len(all))
	b.ResetTimer()
	for range b.N {
		for i, c := range all {
			before := dbtest.CPU(pids...)
			n, took := together(b, c, clients, block)
			cpu[i] += dbtest.CPU(pids...) - before
			ops[i] += n
			rates[i] = append(rates[i], n/took.Seconds())
		}
	}
	b.ReportMetric(0, "ns/op") // of all contenders together: says nothing
	for i, c := range all {
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], c.name+"-ops/s")
		b.ReportMetric(micro(cpu[i])/ops[i], c.name+"-cpu-us")
	}
}

// together has clients work for a while.
func together(b *testing.B, c contender, clients int, block time.Duration) (ops float64, took time.Duration) {
	b.Helper()
	counts := make([]int, clients)
	began := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for time.Since(began) < block {
				if err := c.run(b.Context(), 1+rand.Int64N(benchKeys)); err != nil {
					b.Error(c.name, err)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	for _, n := range counts {
		ops += float64(n)
	}
	return ops, time.Since(began)
}

// BenchmarkPgBouncer is eight clients with validation and without a pooler,
// against eight through PgBouncer in transaction mode without validation, each
// in turn. PgBouncer of before 1.21 knows no prepared statements in that mode:
// the contenders named unnamed do without them too.
func BenchmarkPgBouncer(b *testing.B) {
	s := newBench(b, nil)
	bouncer := dbtest.NewPgBouncer(b, s.server, dbtest.PgBouncerOptions{})
	config, _, err := s.r.engine.PoolConfig(bouncer.Addr(), s.r.shards["a"].Location.Database, s.r.login)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 16
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pooled, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pooled.Close)
	unnamed := s.r.open(pgxshard.Config{Configure: withMode(pgx.QueryExecModeCacheDescribe)})
	all := []contender{
		{"select-validated", func(ctx context.Context, key int64) error { return query(s.db.QueryRow(ctx, key, selectRow, key)) }},
		{"select-validated-unnamed", func(ctx context.Context, key int64) error { return query(unnamed.QueryRow(ctx, key, selectRow, key)) }},
		{"select-pgbouncer", func(ctx context.Context, key int64) error { return query(pooled.QueryRow(ctx, selectRow, key)) }},
		{"update-validated", func(ctx context.Context, key int64) error { return second(s.db.Exec(ctx, key, updateRow, key)) }},
		{"update-validated-unnamed", func(ctx context.Context, key int64) error { return second(unnamed.Exec(ctx, key, updateRow, key)) }},
		{"update-pgbouncer", func(ctx context.Context, key int64) error { return second(pooled.Exec(ctx, updateRow, key)) }},
	}
	warm(b, all)
	throughput(b, all, s.server.PID(), bouncer.PID())
}

package sqlshard_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// BenchmarkFence compares what a read and a transaction cost at each level of
// the fence, for one client, on this machine and with a round trip of 0.5 and 2
// ms. The contenders take turns, so that what else the machine does hits them
// alike; read the medians, in microseconds. One operation is one of each.
//
//	read/none, read/validate     checkout, one SELECT
//	tx/none                      checkout, BEGIN, UPDATE, COMMIT
//	tx/validate                  the same, the checkout validated by a query of its own
//	tx/lock                      the same, the lock of the mapping as a query of its own after BEGIN
//	tx/InTx                      the lock with BEGIN, in one round trip where the engine can
func BenchmarkFence(b *testing.B) {
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL} {
		for _, trip := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%v", e, trip), func(b *testing.B) { benchFence(b, e, trip) })
		}
	}
}

func benchFence(b *testing.B, e dbtest.Engine, trip time.Duration) {
	r := newEmptyRig(b, e)
	if trip > 0 {
		far := relay(b, e.Server(b).Addr(), trip/2, nil)
		r.at = func(l shardway.Location) shardway.Location {
			l.Servers = []shardway.Server{{Address: far}}
			return l
		}
	}
	r.addShard("a")
	r.addRange("a", 0, 100)
	runs := r.fenceContenders(b)
	took := map[string][]time.Duration{}
	names := []string{"read/none", "read/validate", "tx/none", "tx/validate", "tx/lock", "tx/InTx"}
	ctx := context.Background()
	for _, name := range names { // opens sessions and prepares statements
		for range 3 {
			if err := runs[name](ctx); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
		}
	}
	for b.Loop() {
		for _, name := range names {
			start := time.Now()
			if err := runs[name](ctx); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			took[name] = append(took[name], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op") // of all contenders together: says nothing
	for _, name := range names {
		slices.Sort(took[name])
		b.ReportMetric(float64(took[name][len(took[name])/2].Nanoseconds())/1000, name+"-µs")
	}
}

// fenceContenders returns what is compared, by name.
func (r *rig) fenceContenders(b *testing.B) map[string]func(context.Context) error {
	b.Helper()
	const key = 7
	none, validate := r.open(sqlshard.Config{Validation: sqlshard.None}), r.open(sqlshard.Config{})
	lock, mapping := newDialect(b, r.kind).LockMapping(), int64(r.mapping(key).ID)
	update := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE item SET name = 'a' WHERE id = "+r.placeholder(), 0)
		return err
	}
	read := func(db *sqlshard.DB[int64]) func(context.Context) error {
		return func(ctx context.Context) error {
			conn, err := db.OpenConnectionForKey(ctx, key)
			if err != nil {
				return err
			}
			defer conn.Close()
			var name string
			return conn.QueryRowContext(ctx, "SELECT name FROM item WHERE id = "+r.placeholder(), 0).Scan(&name)
		}
	}
	tx := func(db *sqlshard.DB[int64], first func(ctx context.Context, tx *sql.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error {
			conn, err := db.OpenConnectionForKey(ctx, key)
			if err != nil {
				return err
			}
			defer conn.Close()
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() // over by then
			if err = first(ctx, tx); err == nil {
				err = update(ctx, tx)
			}
			if err != nil {
				return err
			}
			return tx.Commit()
		}
	}
	nothing := func(context.Context, *sql.Tx) error { return nil }
	locks := func(ctx context.Context, tx *sql.Tx) error {
		var status int
		return tx.QueryRowContext(ctx, lock, mapping).Scan(&status)
	}
	return map[string]func(context.Context) error{
		"read/none": read(none), "read/validate": read(validate),
		"tx/none": tx(none, nothing), "tx/validate": tx(validate, nothing), "tx/lock": tx(none, locks),
		"tx/InTx": func(ctx context.Context) error { return validate.InTx(ctx, key, nil, update) },
	}
}

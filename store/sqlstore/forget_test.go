package sqlstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// forgetful is a local store and the operations in it.
type forgetful struct {
	*testing.T

	local *sqlstore.Local
	pool  *sql.DB
	table string
	m     shardway.ShardMap
	shard shardway.Shard
	seq   int64
}

func eachForgetful(t *testing.T, test func(f *forgetful)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		d, err := dialect.For(string(e))
		if err != nil {
			t.Fatal(err)
		}
		test(&forgetful{
			T: t, local: deployedLocal(t, placeOf(t, db)), pool: db.Open(t), table: d.SQL("{local_operations}"),
			m:     shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindInt64},
			shard: shardway.Shard{ID: 1, MapID: 1, Name: "s", Version: 1},
		})
	})
}

func (f *forgetful) next(horizon int64) store.LocalStep {
	f.seq++
	return store.LocalStep{
		Operation: store.OperationID(store.NewID()), Seq: f.seq, Horizon: horizon, Epoch: 1,
		Map: f.m, Step: store.Step{Shard: f.shard}, Want: store.StepApplied,
	}
}

func (f *forgetful) apply(horizon int64) {
	f.Helper()
	if got, err := f.local.Step(f.Context(), f.next(horizon)); err != nil || got != store.StepApplied {
		f.Fatalf("Step = %d, %v", got, err)
	}
}

// known returns how many operations have a row, and up to which Seq others are
// forgotten.
func (f *forgetful) known() (rows, forgotten int64) {
	f.Helper()
	scan(f, f.pool, `SELECT COUNT(*) FROM `+f.table, &rows)
	d, err := f.local.Describe(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return rows, d.Forgotten
}

// Rows of applied operations do not grow for ever: what older programs have
// left goes in parts, the oldest first, and then a bounded number stays.
func TestForgetApplied(t *testing.T) {
	t.Parallel()
	eachForgetful(t, func(f *forgetful) {
		const old = 2500
		var rows []string
		for range old {
			f.seq++
			rows = append(rows, fmt.Sprintf("(%d, %d, 1, 2)", store.NewID(), f.seq))
		}
		for some := range slices.Chunk(rows, 1000) {
			if _, err := f.pool.ExecContext(f.Context(), `INSERT INTO `+f.table+` (op_id, seq, epoch, state) VALUES `+strings.Join(some, ", ")); err != nil {
				f.Fatal(err)
			}
		}
		f.apply(0)
		if rows, forgotten := f.known(); rows != old+1 || forgotten != 0 {
			f.Errorf("without a horizon %d rows are left, up to %d are forgotten", rows, forgotten)
		}
		horizon := f.seq // of the one just applied
		for n, want := range []struct{ rows, forgotten int64 }{{1502, 1000}, {503, 2000}, {4, horizon - 1}, {5, horizon - 1}} {
			f.apply(horizon)
			if rows, forgotten := f.known(); rows != want.rows || forgotten != want.forgotten {
				f.Errorf("after %d steps %d rows are left, up to %d are forgotten, want %d and %d", n+1, rows, forgotten, want.rows, want.forgotten)
			}
		}
		late := f.next(0)
		late.Seq = horizon - 1
		if got, err := f.local.Step(f.Context(), late); !errors.Is(err, store.ErrLostLease) {
			f.Errorf("a late step = %d, %v, want ErrLostLease", got, err)
		}
		most := int64(0)
		for range 200 {
			f.apply(f.seq + 1)
			rows, _ := f.known()
			most = max(most, rows)
		}
		if rows, forgotten := f.known(); most > 80 || forgotten < f.seq-80 {
			f.Errorf("of 200 more %d rows were left at most, and now %d, with those up to %d of %d forgotten", most, rows, forgotten, f.seq)
		}
	})
}

package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

func withKey(ctx context.Context, t *testing.T, key int64) context.Context {
	t.Helper()
	ctx, err := shardway.WithKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// Every statement goes to the shard of its context's key, and gives its session
// back when it is over, however it ends.
func TestByContext(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		q := db.ByContext()
		for key, shard := range map[int64]string{7: "a", 150: "b"} {
			for _, use := range []struct {
				name string
				run  func(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, shard string)
			}{{"exec", useExec}, {"row", useRow}, {"rows", useRows}, {"closed rows", useClosedRows}, {"forgotten rows", useForgottenRows}, {"prepare", usePrepare}} {
				use.run(withKey(t.Context(), t, key), t, q, shard)
				eventually(t, use.name+" gives its session back", func() bool {
					return sum(db, func(p sqlshard.PoolStats) int { return p.InUse }) == 0
				})
			}
		}
		quiet(t, db)
	})
}

const nameOfShard, allItems = "SELECT name FROM item WHERE id = 0", "SELECT id FROM item"

func useExec(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, _ string) {
	t.Helper()
	exec(t, contextExec{ctx, q}, "INSERT INTO item (id, name) VALUES (1, 'x'), (2, 'x')")
}

// contextExec runs statements with a context of its own.
type contextExec struct {
	ctx context.Context //nolint:containedctx // it carries the key
	q   *sqlshard.ContextDB
}

func (c contextExec) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return c.q.ExecContext(c.ctx, query, args...)
}

func useRow(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, shard string) {
	t.Helper()
	var name string
	if err := q.QueryRowContext(ctx, nameOfShard).Scan(&name); err != nil || name != shard {
		t.Errorf("on shard %q, %v, want %q", name, err, shard)
	}
}

func useRows(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, _ string) {
	t.Helper()
	rows, err := q.QueryContext(ctx, allItems)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil || n != 3 {
		t.Errorf("%d rows, %v", n, err)
	}
}

func useClosedRows(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, _ string) {
	t.Helper()
	rows, err := q.QueryContext(ctx, allItems)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || rows.Err() != nil {
		t.Error("no rows", rows.Err())
	}
}

func useForgottenRows(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, _ string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := q.QueryContext(ctx, allItems) //nolint:sqlclosecheck // forgotten: only ctx ends them
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() || rows.Err() != nil {
		t.Error("no rows", rows.Err())
	}
}

func usePrepare(ctx context.Context, t *testing.T, q *sqlshard.ContextDB, shard string) {
	t.Helper()
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := q.PrepareContext(ending, nameOfShard) //nolint:sqlclosecheck // its context closes it too
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for range 2 {
		var name string
		if err := st.QueryRowContext(ending).Scan(&name); err != nil || name != shard {
			t.Errorf("prepared: on shard %q, %v, want %q", name, err, shard)
		}
	}
	cancel()
	eventually(t, "a statement ends with its context", func() bool { return second(st.ExecContext(ctx)) != nil })
}

func TestByContextRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EngineSQLite)
	db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
	q := db.ByContext()
	calls := map[string]func(ctx context.Context, query string) error{
		"exec":    func(ctx context.Context, query string) error { return second(q.ExecContext(ctx, query)) },
		"query":   func(ctx context.Context, query string) error { return second(q.QueryContext(ctx, query)) },
		"prepare": func(ctx context.Context, query string) error { return second(q.PrepareContext(ctx, query)) },
		"row": func(ctx context.Context, query string) error {
			var n int
			row := q.QueryRowContext(ctx, query)
			if row.Err() == nil {
				t.Error("the row has no error before Scan")
			}
			return row.Scan(&n)
		},
	}
	wrongKind, err := shardway.WithKey(t.Context(), "seven")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		for _, tt := range []struct {
			ctx  context.Context //nolint:containedctx // what the test varies
			want error
		}{
			{t.Context(), shardway.ErrKeyRequired},
			{withKey(t.Context(), t, 500), shardway.ErrKeyNotMapped},
			{wrongKind, shardway.ErrWrongType},
		} {
			var lookup *shardway.LookupError
			if err := call(tt.ctx, "SELECT 1"); !errors.Is(err, tt.want) || !errors.As(err, &lookup) || lookup.Map != "customers" {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		}
		if err := call(withKey(t.Context(), t, 7), "no such statement"); err == nil {
			t.Errorf("%s: a statement that is none succeeds", name)
		}
	}
	if err := second(q.PrepareContext(withKey(context.Background(), t, 7), "SELECT 1")); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a context that never ends: %v", err)
	}
	eventually(t, "failed statements give their sessions back", func() bool {
		return sum(db, func(p sqlshard.PoolStats) int { return p.InUse }) == 0
	})
}

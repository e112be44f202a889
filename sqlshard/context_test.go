package sqlshard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

func withKey(t *testing.T, ctx context.Context, key int64) context.Context {
	t.Helper()
	ctx, err := shardway.WithKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

func TestByContext(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		q := db.ByContext()
		given := func(what string) {
			t.Helper()
			eventually(t, what+" gives its session back", func() bool {
				return sum(db, func(p sqlshard.PoolStats) int { return p.InUse }) == 0
			})
		}
		for key, shard := range map[int64]string{7: "a", 150: "b"} {
			ctx := withKey(t, t.Context(), key)
			if _, err := q.ExecContext(ctx, "INSERT INTO item (id, name) VALUES (1, 'x'), (2, 'x')"); err != nil {
				t.Fatal(err)
			}
			given("ExecContext")
			var name string
			if err := q.QueryRowContext(ctx, "SELECT name FROM item WHERE id = 0").Scan(&name); err != nil || name != shard {
				t.Errorf("key %d is on shard %q, %v, want %q", key, name, err, shard)
			}
			given("Scan")
			rows, err := q.QueryContext(ctx, "SELECT id FROM item")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for rows.Next() {
				n++
			}
			if err := rows.Err(); err != nil || n != 3 {
				t.Errorf("%d rows, %v", n, err)
			}
			given("the end of the rows")
			if rows, err = q.QueryContext(ctx, "SELECT id FROM item"); err != nil {
				t.Fatal(err)
			}
			_ = rows.Close()
			given("closing the rows")

			ending, cancel := context.WithCancel(ctx)
			st, err := q.PrepareContext(ending, "SELECT name FROM item WHERE id = 0")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := st.QueryRowContext(ending).Scan(&name); err != nil || name != shard {
					t.Errorf("prepared: shard %q, %v, want %q", name, err, shard)
				}
			}
			cancel()
			given("the end of a prepared statement's context")
			if rows, err := st.QueryContext(ctx); err == nil {
				_ = rows.Close()
				t.Error("the statement outlives its context")
			}

			ending, cancel = context.WithCancel(ctx)
			if rows, err = q.QueryContext(ending, "SELECT id FROM item"); err != nil || !rows.Next() {
				t.Fatal(err)
			}
			cancel() // and nobody closes the rows
			given("the end of a query's context")
		}
		quiet(t, db)
	})
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
			ctx  context.Context
			want error
		}{
			{t.Context(), shardway.ErrKeyRequired},
			{withKey(t, t.Context(), 500), shardway.ErrKeyNotMapped},
			{wrongKind, shardway.ErrWrongType},
		} {
			var lookup *shardway.LookupError
			if err := call(tt.ctx, "SELECT 1"); !errors.Is(err, tt.want) || !errors.As(err, &lookup) || lookup.Map != "customers" {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		}
		if err := call(withKey(t, t.Context(), 7), "no such statement"); err == nil {
			t.Errorf("%s: a statement that is none succeeds", name)
		}
	}
	if _, err := q.PrepareContext(withKey(t, context.Background(), 7), "SELECT 1"); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a context that never ends: %v", err)
	}
	eventually(t, "failed statements give their sessions back", func() bool {
		return sum(db, func(p sqlshard.PoolStats) int { return p.InUse }) == 0
	})
}

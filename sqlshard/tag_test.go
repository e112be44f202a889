package sqlshard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/sqlshard"
)

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// tagOf returns the name that the server has for a session.
func (r *rig) tagOf(q querier) (tag string) {
	r.t.Helper()
	text := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()",
		dbtest.EngineMySQL:    "SELECT COALESCE(CONVERT(@shardway_mapping USING utf8mb4), '')",
	}[r.kind]
	if err := q.QueryRowContext(r.t.Context(), text).Scan(&tag); err != nil {
		r.t.Fatal(err)
	}
	return tag
}

// A session is known on the server by the mapping that it is in use for, and by
// no other: a change ends the sessions that bear its name.
func TestSessionsAreTagged(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newEmptyRig(t, e)
		r.addShard("a")
		r.addRange("a", 0, 100)
		r.addRange("a", 100, 200)
		want := map[int64]string{}
		for _, key := range []int64{7, 150} {
			want[key] = dialect.Tag(int64(r.mapping(key).ID))
		}
		for _, level := range []sqlshard.Validation{sqlshard.Validate, sqlshard.None} {
			db := r.open(sqlshard.Config{MaxOpenPerShard: 1, Validation: level})
			for range 2 {
				for _, key := range []int64{7, 150, 150} {
					conn := opened(t, db, key, "a")
					got := r.tagOf(conn)
					if level == sqlshard.Validate && got != want[key] || level == sqlshard.None && got != "" {
						t.Errorf("%v: the session for key %d is %q", level, key, got)
					}
					_ = conn.Close()
				}
				for _, key := range []int64{7, 150} {
					for _, options := range []sqlshard.TxOptions{{}, {ReadOnly: true}} {
						err := db.InTx(t.Context(), key, &options, func(_ context.Context, tx *sql.Tx) error {
							if got := r.tagOf(tx); got != want[key] {
								t.Errorf("%v: in a transaction for key %d the session is %q", level, key, got)
							}
							return nil
						})
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				conn, err := db.OpenConnectionForShard(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				if got := r.tagOf(conn); got != "" {
					t.Errorf("%v: the session for a shard is %q", level, got)
				}
				_ = conn.Close()
			}
			if n := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) }); n != 1 {
				t.Errorf("%v: %d sessions were opened, want 1", level, n)
			}
		}
	})
}

// A session that was ended and opened again behind the handle's back, or whose
// mapping was changed while it lay in its pool, is not used without being asked
// again: neither for a connection nor for a transaction.
func TestPooledSessionsAreChecked(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		add := func(id int64) {
			t.Helper()
			if err := db.InTx(t.Context(), 7, nil, r.adds(id)); err != nil {
				t.Fatal(err)
			}
		}
		add(1)
		shard := map[bool]string{true: "b", false: "a"}
		for n := range 4 {
			proxy.Cut() // all sessions break while nobody uses them
			proxy.Restore()
			r.move(7, shard[n%2 == 0])
			if n < 2 {
				add(int64(10 + n))
			} else {
				_ = opened(t, db, 7, shard[n%2 == 0]).Close()
			}
		}
		if a, b := r.items("a"), r.items("b"); a != 2 || b != 1 {
			t.Errorf("%d and %d rows, want 2 and 1", a, b)
		}
		// One that broke while it is in use stays broken: its Conn gets no other.
		conn := opened(t, db, 7, "a")
		proxy.Cut()
		proxy.Restore()
		for range 3 {
			if _, err := conn.ExecContext(t.Context(), "SELECT 1"); err == nil {
				t.Error("the connection works again, on a session that nobody has checked")
			}
		}
		_ = conn.Close()
		quiet(t, db)
	})
}

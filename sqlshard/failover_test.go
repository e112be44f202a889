package sqlshard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology"
)

// promote makes server 1 the primary and has the others but 0 follow it.
func (r *replicas) promote() {
	r.t.Helper()
	r.set.Promote(r.t, 1)
	for i := 2; i < len(r.set.Servers()); i++ {
		r.set.Follow(r.t, i, 1)
	}
	if r.kind == dbtest.EngineMySQL {
		r.beatOn(1)
	}
}

// warm leaves idle sessions behind.
func warm(t testing.TB, db *sqlshard.DB[int64]) {
	t.Helper()
	var conns []*sqlshard.Conn
	for range 3 {
		conns = append(conns, opened1(t, db))
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func opened1(t testing.TB, db *sqlshard.DB[int64]) *sqlshard.Conn {
	t.Helper()
	conn, err := db.OpenConnectionForKey(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// written writes rows with the ids from low up to high and checks on which
// server they were accepted.
func (r *replicas) written(db *sqlshard.DB[int64], low, high int64, on int) {
	r.t.Helper()
	for id := low; id < high; id++ {
		server, err := write(r.t.Context(), db, id)
		if err != nil || server != r.set.Addr(on) {
			r.t.Fatalf("row %d was written on %q, want %q: %v", id, server, r.set.Addr(on), err)
		}
	}
}

// refusedClaim waits until a server is heard of that claims to be primary in vain.
func (r *replicas) refusedClaim(db *sqlshard.DB[int64], i int) {
	r.t.Helper()
	known(r.t, db, "the former primary's claim is refused", func(v []selection.Verdict) bool {
		var conflict *topology.ConflictError
		return v[i].Server.Claimed == topology.RolePrimary && v[i].Server.Role == topology.RoleUnknown && errors.As(v[i].Server.Err, &conflict)
	})
}

// ROLE-03, ROLE-04, ROLE-10: the primary is cut off or dies, a secondary is
// promoted, and the former primary comes back as it was. The first write that
// is asked for goes through; none lands on the former primary.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave, comeBack func(t *testing.T, r *replicas)
	}{
		"cut off": {
			func(_ *testing.T, r *replicas) { r.set.Proxy(0).Cut() },
			func(_ *testing.T, r *replicas) { r.set.Proxy(0).Restore() },
		},
		"killed": {
			func(t *testing.T, r *replicas) { t.Helper(); r.set.Kill(t, 0) },
			func(t *testing.T, r *replicas) { t.Helper(); r.set.Restart(t, 0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSet(t, func(t *testing.T, r *replicas) {
				db := r.connect(sqlshard.Config{})
				r.written(db, 0, 5, 0)
				warm(t, db)
				c.leave(t, r)
				began := time.Now()
				first := make(chan string, 1)
				go func() { // waits while there is no primary
					server, err := write(t.Context(), db, 5)
					if err != nil {
						server = err.Error()
					}
					first <- server
				}()
				r.promote()
				promoted := time.Now()
				if server := <-first; server != r.set.Addr(1) {
					t.Fatalf("the write during the failover: %s, want server %s", server, r.set.Addr(1))
				}
				t.Logf("the write took %v, to %v after the promotion", time.Since(began), time.Since(promoted))
				r.written(db, 6, 10, 1)
				c.comeBack(t, r)
				r.written(db, 10, 20, 1)
				r.refusedClaim(db, 0)
				r.written(db, 20, 30, 1)
				if ids := r.rows(0); slices.Max(ids) > 4 {
					t.Errorf("the former primary has the rows %v", ids)
				}
				if n := len(r.rows(1)); n != 30 {
					t.Errorf("the new primary has %d rows, want 30", n)
				}
				quiet(t, db)
			})
		})
	}
}

// ROLE-03: both servers are up and take writes. Connections that were opened to
// the former primary carry no write and no commit from the moment that the new
// one was seen, and idle ones are gone.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	eachSet(t, func(t *testing.T, r *replicas) {
		db := r.connect(sqlshard.Config{})
		r.written(db, 0, 1, 0)
		warm(t, db)
		held, inTx := opened1(t, db), opened1(t, db)
		defer held.Close()
		defer inTx.Close()
		exec(t, held, "INSERT INTO written (id) VALUES (1)")
		st, err := held.PrepareContext(t.Context(), "INSERT INTO written (id) VALUES (100)") //nolint:sqlclosecheck // the connection's end ends it
		if err != nil {
			t.Fatal(err)
		}
		tx, err := inTx.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, tx, "INSERT INTO written (id) VALUES (101)")
		r.promote()
		r.refusedClaim(db, 0)

		demoted := func(what string, err error) {
			t.Helper()
			var e *shardway.DemotedError
			if !errors.As(err, &e) || e.Server != r.set.Addr(0) || !errors.Is(err, shardway.ErrUnavailable) || !e.SafeToRetry() {
				t.Errorf("%s on a connection to the former primary: %v", what, err)
			}
		}
		_, err = held.ExecContext(t.Context(), "INSERT INTO written (id) VALUES (102)")
		demoted("a statement", err)
		_, err = st.ExecContext(t.Context())
		demoted("a prepared statement", err)
		_, err = held.BeginTx(t.Context(), nil)
		demoted("BeginTx", err)
		demoted("a query", held.QueryRowContext(t.Context(), "SELECT 1").Scan(new(int)))
		demoted("Commit", tx.Commit())

		r.written(db, 2, 10, 1)
		_, _ = held.Close(), inTx.Close()
		eventually(t, "sessions to the former primary are gone", func() bool {
			return slices.ContainsFunc(db.Stats().Pools, func(p sqlshard.PoolStats) bool { return p.Server == r.set.Addr(0) && p.Open == 0 })
		})
		if ids := r.rows(0); !slices.Equal(ids, []int64{0, 1}) {
			t.Errorf("the former primary has the rows %v, want 0 and 1", ids)
		}
	})
}

// ROLE-01: a write says that the server takes none. Its sessions are not used
// again and it is checked at once, long before the next heartbeat.
func TestReadOnlyPrimary(t *testing.T) {
	t.Parallel()
	eachSet(t, func(t *testing.T, r *replicas) {
		db := r.connect(sqlshard.Config{Servers: sqlshard.ServerConfig{Heartbeat: time.Hour}})
		r.written(db, 0, 1, 0)
		warm(t, db)
		freeze := []string{"SET GLOBAL read_only = 1"}
		if r.kind == dbtest.EnginePostgres {
			freeze = []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"}
		}
		do(t, r.open(0), freeze...)
		eventually(t, "the primary refuses a write", func() bool {
			_, err := write(t.Context(), db, 1000)
			if errors.Is(err, shardway.ErrUnavailable) || errors.Is(err, driver.ErrBadConn) {
				t.Fatalf("not the server's own error: %v", err)
			}
			return err != nil
		})
		r.promote()
		if server, err := write(t.Context(), db, 1); err != nil || server != r.set.Addr(1) {
			t.Errorf("after the promotion a write went to %q: %v", server, err)
		}
		for _, p := range db.Stats().Pools {
			if p.Server == r.set.Addr(0) && p.Idle > 1 {
				t.Errorf("idle sessions to a server that takes no writes: %+v", p)
			}
		}
	})
}

// A caller's own read-only transaction says nothing about the server.
func TestReadOnlyTransaction(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		conn := opened(t, db, 7, "a")
		tx, err := conn.BeginTx(t.Context(), readOnly)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO item (id) VALUES (5)"); err == nil {
			t.Fatal("a read-only transaction took a write")
		}
		_ = tx.Rollback()
		_ = conn.Close()
		_ = opened(t, db, 7, "a").Close()
		if n := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) }); n != 1 {
			t.Errorf("%d sessions were opened: the session was dropped", n)
		}
	})
}

// ROLE-08, ROLE-09, MAP-05: a secondary that is cut off or swallows everything
// costs nobody a read, even before a check has noticed; when it is back, it is
// used again. LAT-07: the one that failed is avoided by the second attempt.
func TestSecondaryGone(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	r := newReplicas(t, dbtest.EnginePostgres, set)
	db := r.connect(sqlshard.Config{})
	readers := db.With(selection.Secondary())
	both := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return len(servedBy(t, readers, 10)) == 2 })
	}
	both("both secondaries serve")
	set.Proxy(1).Cut()
	within(t, "one is cut off", servedBy(t, readers, 30), r.addresses(2))
	set.Proxy(1).Restore()
	both("the secondary is back")
	set.Proxy(1).BlackHole()
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		conn, err := readers.OpenConnectionForKey(ctx, 7)
		if err != nil {
			t.Fatalf("a read beside a silent secondary: %v", err)
		}
		if conn.Server() != r.set.Addr(2) {
			t.Errorf("served by %s, want %s", conn.Server(), r.set.Addr(2))
		}
		_ = conn.Close()
		cancel()
	}
	set.Proxy(1).Restore()
	both("the secondary speaks again")
	quiet(t, db)
}

var readOnly = &sql.TxOptions{ReadOnly: true}

package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// excluded reports whether a change of a mapping would have to wait for holders.
func (r *rig) excluded(shard string, m shardway.Mapping) bool {
	r.t.Helper()
	d, err := dialect.For(string(r.kind))
	if err != nil {
		r.t.Fatal(err)
	}
	tx, err := r.dbs[shard].Open(r.t).BeginTx(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer tx.Rollback() // nothing was done
	exec(r.t, tx, "SET LOCAL lock_timeout = '30ms'")
	_, err = tx.ExecContext(r.t.Context(), d.LockExclusiveHold(), d.HoldKey(int64(m.ID)))
	if err != nil && d.Classify(err) != dialect.Transient {
		r.t.Fatal(err)
	}
	return err != nil
}

// A mapping that is held waits for its holder, whatever that does meanwhile,
// and for nobody when the connection is closed; the session is used again.
func TestHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EnginePostgres)
	db := r.open(sqlshard.Config{})
	m := r.mapping(7)
	for _, use := range []func(*sqlshard.Conn){
		func(*sqlshard.Conn) {},
		func(c *sqlshard.Conn) { on(t, c, "a") },
		func(c *sqlshard.Conn) { exec(t, c, "SET work_mem = '1MB'") }, // costs the session
		func(c *sqlshard.Conn) {
			tx, err := c.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			exec(t, tx, "UPDATE item SET name = 'open' WHERE id = 0")
		},
	} {
		conn, err := db.HoldConnectionForKey(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		use(conn)
		if !r.excluded("a", m) {
			t.Error("a change would not wait for the holder")
		}
		_ = conn.Close()
		eventually(t, "nobody holds the mapping", func() bool { return !r.excluded("a", m) })
	}
	r.move(7, "b")
	conn, err := db.HoldConnectionForKey(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	on(t, conn, "b")
	_ = conn.Close()
	r.setStatus(7, shardway.Offline)
	if _, err := db.HoldConnectionForKey(t.Context(), 7); !errors.Is(err, shardway.ErrMappingOffline) {
		t.Errorf("holding a mapping that is offline: %v", err)
	}
	if r.excluded("b", r.mapping(7)) {
		t.Error("a hold that was refused is left")
	}
	quiet(t, db)
}

// Who asks while a change is under way gets what the change has made of it.
func TestHoldWaitsForChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EnginePostgres)
	db := r.open(sqlshard.Config{})
	_ = opened(t, db, 7, "a").Close()
	m, d := r.mapping(7), newDialect(t, r.kind)
	change, err := r.dbs["a"].Open(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer change.Rollback() // over by then
	if _, err = change.ExecContext(t.Context(), d.LockExclusiveHold(), d.HoldKey(int64(m.ID))); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		conn, err := db.HoldConnectionForKey(t.Context(), 7)
		if err == nil {
			_ = conn.Close()
		}
		held <- err
	}()
	eventually(t, "the holder waits", func() bool {
		var n int
		row := r.dbs["a"].Open(t).QueryRow("SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
		if err := row.Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	exec(t, change, "UPDATE shardway.local_mappings SET status = 0")
	if err := change.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-held; !errors.Is(err, shardway.ErrMappingOffline) {
		t.Errorf("after the change: %v", err)
	}
	quiet(t, db)
}

func newDialect(t testing.TB, e dbtest.Engine) *dialect.Dialect {
	t.Helper()
	d, err := dialect.For(string(e))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What cannot hold says so: engines without such locks, handles for reads,
// poolers, which tell a process number that is not the server's.
func TestHoldRefused(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EngineMySQL, dbtest.EngineSQLite} {
		db := newRig(t, e).open(sqlshard.Config{})
		var argument *shardway.ArgumentError
		if _, err := db.HoldConnectionForKey(t.Context(), 7); !errors.As(err, &argument) || argument.Argument != "engine" || argument.Value != string(e) {
			t.Errorf("%s: %v", e, err)
		}
		quiet(t, db)
	}
	r := newEmptyRig(t, dbtest.EnginePostgres)
	pooler := relay(t, r.kind.Server(t).Addr(), 0, otherPID)
	r.at = func(l shardway.Location) shardway.Location {
		l.Servers = []shardway.Server{{Address: pooler}}
		return l
	}
	r.addShard("a")
	m := r.addRange("a", 0, 100)
	db := r.open(sqlshard.Config{})
	if _, err := db.With(selection.Nearest()).HoldConnectionForKey(t.Context(), 7); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("for reads: %v", err)
	}
	var argument *shardway.ArgumentError
	if _, err := db.HoldConnectionForKey(t.Context(), 7); !errors.As(err, &argument) || !strings.Contains(argument.Reason, "pooler") {
		t.Errorf("behind a pooler: %v", err)
	}
	if r.excluded("a", m) {
		t.Error("a hold that was refused is left")
	}
	if err := db.InTx(t.Context(), 7, nil, r.adds(1)); err != nil {
		t.Errorf("a transaction behind a pooler: %v", err)
	}
	quiet(t, db)
}

// A session that the server ends because the mapping goes away: the unit is
// repeated, and says in the end that the mapping has moved. One that does not wait
// for mappings that are offline does not do so after a move either.
func TestMovedWithinUnit(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EnginePostgres)
	db := r.open(sqlshard.Config{})
	admin := r.dbs["a"].Open(t)
	tag := dialect.Tag(int64(r.mapping(7).ID))
	for _, off := range []bool{true, false} {
		policy, attempts := quick, 0
		if off {
			policy = once
		}
		policy.OnAttempt = func(retry.Attempt) { attempts++ }
		calls := 0
		err := db.WithRetry(policy).InTx(t.Context(), 7, &sqlshard.TxOptions{ReadOnly: true}, func(ctx context.Context, tx *sql.Tx) error {
			calls++
			r.setStatus(7, shardway.Offline)
			exec(t, admin, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '"+tag+"'")
			var n int
			return tx.QueryRowContext(ctx, "SELECT 1").Scan(&n)
		})
		var moved *shardway.MovedError
		if !errors.As(err, &moved) || !moved.SafeToRetry() || !errors.Is(err, shardway.ErrStale) || calls != 1 {
			t.Errorf("repeating off %v, %d calls: %v", off, calls, err)
		}
		if !off && !errors.Is(err, shardway.ErrMappingOffline) {
			t.Errorf("the error does not say that the mapping is offline: %v", err)
		}
		if !off && attempts != 2 {
			t.Errorf("%d attempts, want one that is ended and one that finds the mapping offline", attempts)
		}
		if off && retry.Classify(err) != retry.Transient && retry.Classify(err) != retry.SafeToRetry {
			t.Errorf("the error is %v", retry.Classify(err))
		}
		r.setStatus(7, shardway.Online)
		tag = dialect.Tag(int64(r.mapping(7).ID))
	}
	quiet(t, db)
}

// A session that was ended for another reason is not said to have moved.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		admin := r.dbs["a"].Open(t)
		calls := 0
		err := db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
			if calls++; calls == 1 {
				r.endSession(ctx, tx, admin)
			}
			return r.adds(1)(ctx, tx)
		})
		if err != nil || calls != 2 || r.items("a") != 1 {
			t.Errorf("%d calls, %d rows: %v", calls, r.items("a"), err)
		}
		err = db.WithRetry(once).InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
			r.endSession(ctx, tx, admin)
			return r.adds(2)(ctx, tx)
		})
		if err == nil || errors.As(err, new(*shardway.MovedError)) || errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("the session was ended: %v", err)
		}
	})
}

// endSession ends the session of a transaction, as an administrator does.
func (r *rig) endSession(ctx context.Context, tx *sql.Tx, admin *sql.DB) {
	r.t.Helper()
	own := map[dbtest.Engine][2]string{
		dbtest.EnginePostgres: {"SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%, 5000)"},
		dbtest.EngineMySQL:    {"SELECT CONNECTION_ID()", "KILL %"},
	}[r.kind]
	var id string
	if err := tx.QueryRowContext(ctx, own[0]).Scan(&id); err != nil {
		r.t.Fatal(err)
	}
	exec(r.t, admin, strings.Replace(own[1], "%", id, 1))
	if r.kind == dbtest.EngineMySQL {
		eventually(r.t, "the session is gone", func() bool {
			var n int
			if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?", id).Scan(&n); err != nil {
				r.t.Fatal(err)
			}
			return n == 0
		})
	}
}

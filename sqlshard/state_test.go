package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// stain is something that a user can leave on a session.
type stain struct {
	name  string
	do    func(t *testing.T, conn *sqlshard.Conn)
	probe string // a query for one text
	clean string // its answer on a new session; empty: whatever a new session says
}

// statements is a stain by statements of one connection.
func statements(queries ...string) func(t *testing.T, conn *sqlshard.Conn) {
	return func(t *testing.T, conn *sqlshard.Conn) {
		t.Helper()
		for _, q := range queries {
			exec(t, conn, q)
		}
	}
}

// inTx is a stain by statements of a transaction that is committed.
func inTx(queries ...string) func(t *testing.T, conn *sqlshard.Conn) {
	return func(t *testing.T, conn *sqlshard.Conn) {
		t.Helper()
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			exec(t, tx, q)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// query is a stain by a query whose rows are read to the end.
func query(q string) func(t *testing.T, conn *sqlshard.Conn) {
	return func(t *testing.T, conn *sqlshard.Conn) {
		t.Helper()
		rows, err := conn.QueryContext(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// prepared is a stain by a prepared statement.
func prepared(q string) func(t *testing.T, conn *sqlshard.Conn) {
	return func(t *testing.T, conn *sqlshard.Conn) {
		t.Helper()
		st, err := conn.PrepareContext(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if _, err := st.ExecContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// openTx leaves a transaction open.
func openTx(opts *sql.TxOptions, queries ...string) func(t *testing.T, conn *sqlshard.Conn) {
	return func(t *testing.T, conn *sqlshard.Conn) {
		t.Helper()
		tx, err := conn.BeginTx(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			exec(t, tx, q)
		}
	}
}

func raw(t *testing.T, conn *sqlshard.Conn) {
	t.Helper()
	if err := conn.Raw(func(any) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

const countItems = "SELECT count(*) FROM item"

var stains = map[dbtest.Engine][]stain{
	dbtest.EnginePostgres: {
		{"search path", statements("SET search_path = pg_catalog"), "SHOW search_path", ""},
		{"search path by function", query("SELECT set_config('search_path', 'pg_catalog', false)"), "SHOW search_path", ""},
		{"search path in a transaction", inTx("SET search_path = pg_catalog"), "SHOW search_path", ""},
		{"search path by a prepared statement", prepared("SET search_path = pg_catalog"), "SHOW search_path", ""},
		{"role", statements("SET ROLE pg_monitor"), "SELECT current_user::text", ""},
		{"variable", statements("SET app.tenant = 'a'"), "SELECT coalesce(current_setting('app.tenant', true), 'none')", "none"},
		{"temporary table", statements("CREATE TEMP TABLE left_over (a int)"), "SELECT coalesce(to_regclass('left_over')::text, 'none')", "none"},
		{"temporary table by select", query("SELECT 1 AS a INTO TEMP left_over"), "SELECT coalesce(to_regclass('left_over')::text, 'none')", "none"},
		{"advisory lock", query("SELECT pg_advisory_lock(4711)"), "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid()", "0"},
		{"isolation level", statements("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"), "SHOW transaction_isolation", ""},
		{"prepared statement", statements("PREPARE left_over AS SELECT 1"), "SELECT count(*)::text FROM pg_prepared_statements WHERE name = 'left_over'", "0"},
		{"listening", statements("LISTEN left_over"), "SELECT count(*)::text FROM pg_listening_channels()", "0"},
		{"transaction as text", statements("BEGIN", "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"open transaction", openTx(nil, "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"open serializable transaction", openTx(&sql.TxOptions{Isolation: sql.LevelSerializable}), "SHOW transaction_isolation", ""},
		{"driver's connection", raw, "SELECT 'x'", "x"},
	},
	dbtest.EngineMySQL: {
		{"variable", statements("SET @tenant = 'a'"), "SELECT coalesce(@tenant, 'none')", "none"},
		{"variable by select", query("SELECT @tenant := 'a'"), "SELECT coalesce(@tenant, 'none')", "none"},
		{"variable by into", statements("SELECT 'a' INTO @tenant"), "SELECT coalesce(@tenant, 'none')", "none"},
		{"session setting", statements("SET SESSION sql_mode = 'ANSI_QUOTES'"), "SELECT @@sql_mode", ""},
		{"session setting in a transaction", inTx("SET SESSION sql_mode = 'ANSI_QUOTES'"), "SELECT @@sql_mode", ""},
		{"setting in a comment", statements("/*!50000 SET SESSION sql_mode = 'ANSI_QUOTES' */"), "SELECT @@sql_mode", ""},
		{"isolation level", statements("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"), "SELECT @@tx_isolation", ""},
		{"lock", query("SELECT GET_LOCK('left over', 1)"), "SELECT coalesce(IS_USED_LOCK('left over') = CONNECTION_ID(), 0)", "0"},
		{"locked table", statements("LOCK TABLES item READ"), "SELECT count(*) FROM shardway_local_store", "1"},
		{"temporary table", statements("CREATE TEMPORARY TABLE item (id bigint)"), countItems, "1"},
		{"database", statements("USE information_schema"), "SELECT coalesce(database() <> 'information_schema', 0)", "1"},
		{"transaction as text", statements("START TRANSACTION", "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"autocommit", statements("SET autocommit = 0"), "SELECT @@autocommit", "1"},
		{"open transaction", openTx(nil, "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"driver's connection", raw, "SELECT 'x'", "x"},
	},
	dbtest.EngineSQLite: {
		{"pragma", statements("PRAGMA query_only = 1"), "SELECT query_only FROM pragma_query_only", "0"},
		{"temporary table", statements("CREATE TEMP TABLE item (id integer)"), countItems, "1"},
		{"attached database", statements("ATTACH ':memory:' AS left_over"), "SELECT count(*) FROM pragma_database_list WHERE name = 'left_over'", "0"},
		{"transaction as text", statements("BEGIN", "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"savepoint", statements("SAVEPOINT a", "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"open transaction", openTx(nil, "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"driver's connection", raw, "SELECT 'x'", "x"},
	},
	dbtest.EngineSQLServer: {
		{"context", statements("EXEC sp_set_session_context 'tenant', 'a'"), "SELECT coalesce(cast(SESSION_CONTEXT(N'tenant') AS varchar(9)), 'none')", "none"},
		{"temporary table", statements("SELECT 1 AS a INTO #left_over"), "SELECT coalesce(cast(object_id('tempdb..#left_over') AS varchar(9)), 'none')", "none"},
		{"isolation level", openTx(&sql.TxOptions{Isolation: sql.LevelSerializable}), "SELECT cast(transaction_isolation_level AS varchar(9)) FROM sys.dm_exec_sessions WHERE session_id = @@SPID", ""},
		{"open transaction", openTx(nil, "INSERT INTO item VALUES (77, 'x')"), countItems, "1"},
		{"driver's connection", raw, "SELECT 'x'", "x"},
	},
}

// SEC-03: nothing that one user of a session leaves behind reaches the next,
// with a pool of one session.
func TestNoStateIsLeft(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		for _, st := range stains[e] {
			t.Run(st.name, func(t *testing.T) {
				db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
				probe := func() (answer string) {
					t.Helper()
					conn, err := db.OpenConnectionForKey(t.Context(), 8)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if err := conn.QueryRowContext(t.Context(), st.probe).Scan(&answer); err != nil {
						t.Fatal(err)
					}
					return answer
				}
				clean := probe()
				if st.clean != "" && clean != st.clean {
					t.Fatalf("a new session says %q, want %q: the test is wrong", clean, st.clean)
				}
				conn := opened(t, db, 7, "a")
				st.do(t, conn)
				_ = conn.Close()
				for range 2 {
					if got := probe(); got != clean {
						t.Errorf("the next user sees %q, on a new session it was %q", got, clean)
					}
				}
				quiet(t, db)
			})
		}
	})
}

// Plain work keeps its session: hygiene costs nothing where there is nothing
// to clean.
func TestCleanSessionsAreKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		work := []func(t *testing.T, conn *sqlshard.Conn){
			statements("UPDATE item SET name = 'a' WHERE id = 0", "INSERT INTO item VALUES (5, 'x'); ", "DELETE FROM item WHERE id = 5"),
			query("-- name: All :many\nSELECT id, name FROM item"),
			prepared("UPDATE item SET name = 'a' WHERE id = 0"),
			inTx("UPDATE item SET name = 'a' WHERE id = 0"),
			func(t *testing.T, conn *sqlshard.Conn) {
				t.Helper()
				tx, err := conn.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				exec(t, tx, "INSERT INTO item VALUES (6, 'x')")
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			},
		}
		if e != dbtest.EngineSQLServer {
			work = append(work, inTx("SAVEPOINT one", "DELETE FROM item", "ROLLBACK TO SAVEPOINT one", "RELEASE SAVEPOINT one"))
		}
		for _, do := range slices.Concat(work, work) {
			conn := opened(t, db, 7, "a")
			do(t, conn)
			_ = conn.Close()
		}
		if n := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) }); n != 1 {
			t.Errorf("%d sessions were opened for work that leaves nothing behind", n)
		}
		quiet(t, db)
	})
}

// POOL-09: forgotten rows and transactions do not keep Close, or anybody after
// it, waiting; and nothing leads to the session any more.
func TestForgottenHandles(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		pool := r.dbs["a"].Open(t)
		for i := range 200 {
			if _, err := pool.Exec(fmt.Sprintf("INSERT INTO item VALUES (%d, 'x')", i+1)); err != nil {
				t.Fatal(err)
			}
		}
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		conn := opened(t, db, 7, "a")
		rows, err := conn.QueryContext(t.Context(), "SELECT id FROM item")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		defer rows.Close() // too late for conn
		row := conn.QueryRowContext
		_ = conn.Close()
		if rows.Next() {
			t.Error("rows go on after Close")
		}
		if err := rows.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("the rows say %v", err)
		}
		var n int
		if err := row(t.Context(), "SELECT 1").Scan(&n); !errors.Is(err, sql.ErrConnDone) {
			t.Errorf("a query after Close: %v", err)
		}

		conn = opened(t, db, 7, "a")
		left, err := conn.PrepareContext(t.Context(), "SELECT id FROM item")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		conn = opened(t, db, 7, "a")         // the same session
		if err := left.Close(); err != nil { //nolint:sqlclosecheck // closing late is the test
			t.Error("closing a statement whose session has another user:", err)
		}
		on(t, conn, "a")
		st, err := conn.PrepareContext(t.Context(), "SELECT id FROM item")
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close() // too late for conn
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, tx, "DELETE FROM item WHERE id > 0")
		_ = conn.Close()
		other := opened(t, db, 7, "a")
		defer other.Close()
		if _, err := tx.ExecContext(t.Context(), "DELETE FROM item"); err == nil {
			t.Error("the transaction goes on after Close")
		}
		if _, err := st.ExecContext(t.Context()); err == nil {
			t.Error("the statement goes on after Close")
		}
		if err := tx.Commit(); err == nil {
			t.Error("the transaction was committed after Close")
		}
		if err := other.QueryRowContext(t.Context(), "SELECT count(*) FROM item").Scan(&n); err != nil || n != 201 {
			t.Errorf("there are %d rows, %v: the transaction was not rolled back", n, err)
		}
		for name, err := range map[string]error{
			"exec": second(conn.ExecContext(t.Context(), "SELECT 1")), "query": second(conn.QueryContext(t.Context(), "SELECT 1")),
			"prepare": second(conn.PrepareContext(t.Context(), "SELECT 1")), "begin": second(conn.BeginTx(t.Context(), nil)),
			"ping": conn.PingContext(t.Context()), "raw": conn.Raw(func(any) error { return nil }),
		} {
			if !errors.Is(err, sql.ErrConnDone) {
				t.Errorf("%s after Close: %v, want ErrConnDone", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

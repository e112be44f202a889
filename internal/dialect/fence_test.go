package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fenceRights are all that an application has on a shard's local map.
var fenceRights = map[dbtest.Engine][]string{
	dbtest.EnginePostgres: {
		"GRANT USAGE ON SCHEMA shardway TO %s",
		"GRANT SELECT, UPDATE (fence) ON shardway.local_mappings TO %s",
		"GRANT SELECT, UPDATE (fence) ON shardway.local_shards TO %s",
	},
	dbtest.EngineMySQL: {
		"GRANT SELECT ON shardway_local_mappings TO %s",
		"GRANT SELECT ON shardway_local_shards TO %s",
	},
}

// newFence returns a database with a local map of one shard and one mapping,
// with id 9, as its owner and as an application without further rights.
func newFence(t *testing.T, e dbtest.Engine) (d *dialect.Dialect, owner, app *sql.DB) {
	t.Helper()
	d = dialectOf(t, string(e))
	db := e.NewDatabase(t)
	owner = db.Open(t)
	for _, s := range append(d.Create(dialect.Local),
		d.SQL(`INSERT INTO {local_mappings} (mapping_id, map_id, low_key, shard_id, status) VALUES (9, 1, '', 1, 1)`),
		d.SQL(`INSERT INTO {local_shards} (shard_id, map_id, name, engine, database_name, servers, status, version) VALUES (1, 1, 'a', '', '', '', 0, 3)`)) {
		exec(t, owner, s)
	}
	if e == dbtest.EngineSQLite {
		return d, owner, db.Open(t)
	}
	user, password := e.Server(t).NewUser(t, "app")
	name := `"` + user + `"`
	if e == dbtest.EngineMySQL {
		name = "'" + user + "'@'%'"
	}
	for _, s := range fenceRights[e] {
		exec(t, owner, fmt.Sprintf(s, name))
	}
	return d, owner, db.As(user, password).Open(t)
}

func exec(t *testing.T, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, text string, args ...any,
) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// impatient returns a session that does not wait for locks.
func impatient(t *testing.T, e dbtest.Engine, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	exec(t, conn, map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SET lock_timeout = '50ms'", dbtest.EngineMySQL: "SET innodb_lock_wait_timeout = 0", dbtest.EngineSQLite: "PRAGMA busy_timeout = 0",
	}[e])
	return conn
}

func eachFence(t *testing.T, test func(t *testing.T, e dbtest.Engine)) {
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLite} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// An application with its few rights keeps a mapping, and a shard, from being
// changed for as long as its transaction lasts, in every isolation level.
func TestLockHoldsUpChanges(t *testing.T) {
	t.Parallel()
	eachFence(t, func(t *testing.T, e dbtest.Engine) {
		d, owner, app := newFence(t, e)
		changer := impatient(t, e, owner)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for _, lock := range []struct {
				text, change string
				args         []any
			}{
				{d.LockMapping(), `DELETE FROM {local_mappings} WHERE mapping_id = 9`, []any{int64(9)}},
				{d.LockShard(), `DELETE FROM {local_shards} WHERE map_id = 1`, []any{int64(1), int64(1)}},
			} {
				conn, err := app.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				begin := []string{"BEGIN ISOLATION LEVEL " + level.String()}
				switch e {
				case dbtest.EngineMySQL:
					begin = []string{"SET TRANSACTION ISOLATION LEVEL " + level.String(), "START TRANSACTION"}
				case dbtest.EngineSQLite:
					begin = d.Begin(dialect.Write)
				default:
				}
				for _, s := range begin {
					exec(t, conn, s)
				}
				rows, err := conn.QueryContext(t.Context(), lock.text, lock.args...)
				if err != nil {
					t.Fatalf("%v: %s: %v", level, lock.text, err)
				}
				if !rows.Next() {
					t.Fatalf("%v: %s: no row", level, lock.text)
				}
				_ = rows.Close()
				if _, err := changer.ExecContext(t.Context(), d.SQL(lock.change)); d.Classify(err) != dialect.Transient {
					t.Errorf("%v: a change beside %s: %v", level, lock.text, err)
				}
				exec(t, conn, "COMMIT")
				_ = conn.Close()
				exec(t, changer, "BEGIN")
				exec(t, changer, d.SQL(lock.change))
				exec(t, changer, "ROLLBACK")
			}
		}
	})
}

// The rights that the lock takes change nothing that counts.
func TestLockRightsAreNoWriteRights(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			d, owner, app := newFence(t, e)
			for _, s := range []string{
				`UPDATE {local_mappings} SET status = 0`, `UPDATE {local_mappings} SET shard_id = 2`, `UPDATE {local_mappings} SET low_key = '1'`,
				`UPDATE {local_mappings} SET mapping_id = 10`, `UPDATE {local_mappings} SET fence = 1`, `DELETE FROM {local_mappings}`,
				`INSERT INTO {local_mappings} (mapping_id, map_id, low_key, shard_id, status) VALUES (10, 1, '1', 1, 1)`,
				`UPDATE {local_shards} SET version = 4`, `UPDATE {local_shards} SET fence = 1`, `DELETE FROM {local_shards}`,
				`LOCK TABLE {local_mappings} IN SHARE MODE`, `TRUNCATE TABLE {local_mappings}`,
			} {
				if _, err := app.ExecContext(t.Context(), d.SQL(s)); err == nil {
					t.Errorf("an application may %s", s)
				}
			}
			var id, shard, version int64
			row := owner.QueryRowContext(t.Context(), d.SQL(`SELECT m.mapping_id, m.shard_id, s.version FROM {local_mappings} m, {local_shards} s`))
			if err := row.Scan(&id, &shard, &version); err != nil || id != 9 || shard != 1 || version != 3 {
				t.Errorf("the local map was changed: %d, %d, %d, %v", id, shard, version, err)
			}
		})
	}
}

// Tags: exactly those sessions have one whose mapping was there.
func TestTag(t *testing.T) {
	t.Parallel()
	if got := dialect.Tag(0x1f); got != "shardway:m000000000000001f" {
		t.Errorf("Tag(0x1f) = %q", got)
	}
	eachFence(t, func(t *testing.T, e dbtest.Engine) {
		d, _, app := newFence(t, e)
		conn, err := app.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		seen := func() (tag string) {
			t.Helper()
			text := map[dbtest.Engine]string{
				dbtest.EnginePostgres: "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()",
				dbtest.EngineMySQL:    "SELECT COALESCE(CONVERT(@shardway_mapping USING utf8mb4), '')",
			}[e]
			if err := conn.QueryRowContext(t.Context(), text).Scan(&tag); err != nil {
				t.Fatal(err)
			}
			return tag
		}
		ask := func(text string, args ...any) int {
			t.Helper()
			rows, err := conn.QueryContext(t.Context(), text, args...)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			defer rows.Close()
			n := 0
			for rows.Next() {
				n++
			}
			return n
		}
		if !d.Tags() {
			if n := ask(d.ValidateTagged(), 9) + ask(d.LockTagged(), 9); n != 2 || d.Untag() != "" {
				t.Errorf("%d rows, untag %q", n, d.Untag())
			}
			return
		}
		before, tag := seen(), dialect.Tag(9)
		if ask(d.ValidateTagged(), dialect.Tag(8), 8) != 0 || seen() != before {
			t.Errorf("a mapping that is not there tags the session: %q", seen())
		}
		exec(t, conn, "BEGIN")
		if n := ask(d.LockTagged(), tag, 9); n != 1 || seen() != tag {
			t.Errorf("%d rows, tag %q", n, seen())
		}
		exec(t, conn, "COMMIT")
		if got := seen(); (got == before) != d.TagsTransaction() {
			t.Errorf("after the transaction: %q, before %q", got, before)
		}
		if n := ask(d.ValidateTagged(), tag, 9); n != 1 || seen() != tag {
			t.Errorf("%d rows, tag %q", n, seen())
		}
		if ask(d.Untag()); seen() != before || strings.Contains(seen(), "shardway:") {
			t.Errorf("a tag is left: %q", seen())
		}
	})
}

// A change waits for those who hold the mapping, and they for the change.
func TestHold(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EngineSQLite, dbtest.EngineMySQL} {
		if d := dialectOf(t, string(e)); d.LockHold() != "" || d.ReleaseHold() != "" || d.LockExclusiveHold() != "" {
			t.Errorf("%s has no locks of sessions", e)
		}
	}
	if sqlserver := dialectOf(t, "sqlserver"); sqlserver.HoldKey(9) != dialect.Tag(9) || !strings.Contains(sqlserver.LockHold(), "@p1") {
		t.Errorf("SQL Server holds %v by %s", sqlserver.HoldKey(9), sqlserver.LockHold())
	}
	d, owner, app := newFence(t, dbtest.EnginePostgres)
	holder, err := app.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	changer := impatient(t, dbtest.EnginePostgres, owner)
	exec(t, holder, d.LockHold(), d.HoldKey(9))
	exec(t, changer, d.LockExclusiveHold(), d.HoldKey(10))
	if _, err := changer.ExecContext(t.Context(), d.LockExclusiveHold(), d.HoldKey(9)); d.Classify(err) != dialect.Transient {
		t.Errorf("a change beside a holder: %v", err)
	}
	exec(t, holder, d.ReleaseHold(), d.HoldKey(9))

	// The gate of transactions is the same lock, which they share with holders.
	exec(t, changer, "BEGIN")
	exec(t, changer, d.LockExclusiveHold(), d.HoldKey(9))
	exec(t, holder, "SET lock_timeout = '50ms'")
	if _, err := holder.ExecContext(t.Context(), d.LockMapping(), 9); d.Classify(err) != dialect.Transient {
		t.Errorf("a transaction beside a change: %v", err)
	}
	exec(t, changer, "ROLLBACK")
	exec(t, holder, "BEGIN")
	exec(t, holder, d.LockMapping(), 9)
	exec(t, holder, d.LockHold(), d.HoldKey(9))
	if _, err := changer.ExecContext(t.Context(), d.LockExclusiveHold(), d.HoldKey(9)); d.Classify(err) != dialect.Transient {
		t.Errorf("a change beside a transaction: %v", err)
	}
}

// What a server says to a session that somebody has ended.
func TestEndedByServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		err    error
		want   bool
	}{
		{"postgres", &pgconn.PgError{Code: "57P01"}, true},
		{"postgres", &pgconn.PgError{Code: "57P02"}, false},
		{"postgres", &pgconn.PgError{Code: "57014"}, false},
		{"postgres", io.EOF, false},
		{"mysql", &mysql.MySQLError{Number: 1927}, true},
		{"mysql", &mysql.MySQLError{Number: 1317}, true},
		{"mysql", &mysql.MySQLError{Number: 1213}, false},
		{"mysql", fmt.Errorf("around: %w", mysql.ErrInvalidConn), true},
		{"mysql", errors.New("insufficient funds"), false},
		{"sqlserver", mssql.Error{Number: 596}, true},
		{"sqlserver", mssql.Error{Number: 1205}, false},
		{"sqlite", sqliteError{code: 5}, false},
		{"mysql", nil, false},
	} {
		if got := dialectOf(t, c.engine).EndedByServer(c.err); got != c.want {
			t.Errorf("%s: %v: %v, want %v", c.engine, c.err, got, c.want)
		}
	}
}

// Errors after which a server would run the next statement without a transaction.
func TestTookBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine string
		err    error
		want   bool
	}{
		{"mysql", &mysql.MySQLError{Number: 1213}, true},
		{"mysql", fmt.Errorf("around: %w", &mysql.MySQLError{Number: 1020}), true},
		{"mysql", &mysql.MySQLError{Number: 1205}, false}, // of the statement alone
		{"mysql", &mysql.MySQLError{Number: 1062}, false},
		{"mysql", mysql.ErrInvalidConn, false},
		{"sqlserver", mssql.Error{Number: 1205}, true},
		{"sqlserver", mssql.Error{Number: 2627}, false},
		{"postgres", &pgconn.PgError{Code: "40P01"}, false},
		{"sqlite", sqliteError{code: 5}, false},
		{"mysql", nil, false},
	} {
		if got := dialectOf(t, c.engine).TookBack(c.err); got != c.want {
			t.Errorf("%s: %v: %v, want %v", c.engine, c.err, got, c.want)
		}
	}
}

// The levels are those that the drivers can begin, tried on the servers by the
// tests of package sqlshard.
func TestHasIsolation(t *testing.T) {
	t.Parallel()
	for e, want := range map[string]string{"postgres": "1110111", "mysql": "1110101", "sqlserver": "1110111", "sqlite": "1110111"} {
		got := ""
		for level := range 7 {
			if dialectOf(t, e).HasIsolation(level) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != want || dialectOf(t, e).HasIsolation(7) || dialectOf(t, e).HasIsolation(-1) {
			t.Errorf("%s has levels %s, want %s", e, got, want)
		}
	}
}

func TestCompound(t *testing.T) {
	t.Parallel()
	d := dialectOf(t, "mysql")
	got := d.Compound("10.11.6-MariaDB", 4, true, d.ValidateTaggedTx(), dialect.Tag(9), int64(9))
	want := `BEGIN NOT ATOMIC SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY; ` +
		`SELECT status, @shardway_mapping := 'shardway:m0000000000000009' FROM shardway_local_mappings WHERE mapping_id = 9; END`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := d.Compound("8.4.0", 0, false, "SELECT 1"); got != "" {
		t.Errorf("MySQL is sent %s", got)
	}
	if got := dialectOf(t, "postgres").Compound("MariaDB", 0, false, "SELECT 1"); got != "" {
		t.Errorf("PostgreSQL is sent %s", got)
	}
}

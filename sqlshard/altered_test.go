package sqlshard_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// UPG-03: tables change while sessions with prepared statements are pooled,
// those of the local map (as in an upgrade) and the user's own. Keys are opened
// as if nothing had happened. A statement of the user's gets an error by which
// it is known, once for each session at most, and then works on that session.
func TestTablesChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EnginePostgres)
	db := r.open(sqlshard.Config{})
	const sessions = 3
	columns := func(conn *sqlshard.Conn) (int, error) {
		rows, err := conn.QueryContext(t.Context(), "SELECT * FROM item")
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		names, err := rows.Columns()
		return len(names), errors.Join(err, rows.Err())
	}
	each := func(use func(conn *sqlshard.Conn)) {
		t.Helper()
		var conns []*sqlshard.Conn
		for range sessions {
			conns = append(conns, opened(t, db, 7, "a"))
		}
		for _, conn := range conns {
			use(conn)
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	before := 0
	each(func(conn *sqlshard.Conn) {
		var err error
		if before, err = columns(conn); err != nil {
			t.Fatal(err)
		}
	})
	direct := r.dbs["a"].Open(t)
	for _, text := range []string{
		"ALTER TABLE item ADD COLUMN more int DEFAULT 3",
		"ALTER TABLE shardway.local_mappings ADD COLUMN note text, ALTER COLUMN status TYPE integer",
		"ALTER TABLE shardway.local_shards ADD COLUMN note text, ALTER COLUMN version TYPE numeric",
	} {
		if _, err := direct.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	outdated := 0
	each(func(conn *sqlshard.Conn) {
		n, err := columns(conn)
		if err != nil {
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "0A000" {
				t.Errorf("a statement that is outdated: %v", err)
			}
			outdated++
			n, err = columns(conn)
		}
		if err != nil || n != before+1 {
			t.Errorf("a statement after the change: %d columns, %v", n, err)
		}
	})
	if outdated == 0 {
		t.Error("no statement was prepared before the change")
	}
	each(func(conn *sqlshard.Conn) {
		if n, err := columns(conn); err != nil || n != before+1 {
			t.Errorf("later: %d columns, %v", n, err)
		}
	})
	quiet(t, db)
}

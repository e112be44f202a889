package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/pgxshard"
)

// seen is a tracer that notes what it is told.
type seen struct {
	mu    sync.Mutex // guards the field below
	lines []string
}

func (s *seen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *seen) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note("start %s %v", data.SQL, data.Args)
	return context.WithValue(ctx, s, data.SQL)
}

func (s *seen) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.note("end %v: %v, error %v", ctx.Value(s), data.CommandTag, data.Err != nil)
}

// take returns what was noted.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

// A query tracer sees each statement once, with its own text and end, and
// nothing of the validation.
func TestQueryTracer(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := &seen{}
			db := r.open(pgxshard.Config{Configure: func(c *pgxpool.Config) error {
				c.ConnConfig.Tracer = s
				return withMode(mode)(c)
			}})
			ctx := t.Context()
			if _, err := db.Exec(ctx, 5, "UPDATE item SET n = $1", 7); err != nil {
				t.Fatal(err)
			}
			if err := query(db.QueryRow(ctx, 5, "SELECT n FROM item")); err != nil {
				t.Fatal(err)
			}
			if err := query(db.QueryRow(ctx, 5, "SELECT 1/n FROM (VALUES (0)) AS v (n)")); err == nil {
				t.Fatal("no error")
			}
			if _, err := db.Exec(ctx, 5, "VACUUM item"); err != nil {
				t.Fatal(err)
			}
			want := []string{
				"start UPDATE item SET n = $1 [7]", "end UPDATE item SET n = $1: UPDATE 1, error false",
				"start SELECT n FROM item []", "end SELECT n FROM item: SELECT 1, error false",
				"start SELECT 1/n FROM (VALUES (0)) AS v (n) []", "end SELECT 1/n FROM (VALUES (0)) AS v (n): , error true",
				"start VACUUM item []", "end VACUUM item: VACUUM, error false",
			}
			if got := s.take(); !slices.Equal(got, want) {
				t.Errorf("traced\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// Types registered after connecting are known to arguments and results, of
// pipelines too; options among the arguments mean what they mean in pgx.
func TestTypesAndOptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("a", "CREATE TYPE mood AS ENUM ('sad', 'ok')")
	r.exec("b", "CREATE TYPE mood AS ENUM ('sad', 'ok')")
	db := r.open(pgxshard.Config{Configure: func(c *pgxpool.Config) error {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			all, err := conn.LoadTypes(ctx, []string{"mood", "_mood"})
			conn.TypeMap().RegisterTypes(all)
			return err
		}
		return nil
	}})
	ctx := t.Context()
	var moods []string
	if err := db.QueryRow(ctx, 5, "SELECT array_reverse FROM (SELECT $1::mood[] || 'ok'::mood) AS x (array_reverse)", []string{"sad"}).Scan(&moods); err != nil || !slices.Equal(moods, []string{"sad", "ok"}) {
		t.Errorf("%v, %v", moods, err)
	}
	var n int64
	if err := db.QueryRow(ctx, 5, "SELECT @n::int + 1", pgx.NamedArgs{"n": 41}).Scan(&n); err != nil || n != 42 {
		t.Errorf("named arguments: %d, %v", n, err)
	}
	rows, err := db.Query(ctx, 5, "SELECT 42", pgx.QueryResultFormats{pgx.TextFormatCode})
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() || string(rows.RawValues()[0]) != "42" || rows.Conn() == nil {
		t.Errorf("formats: %q", rows.RawValues())
	}
	rows.Close()
	rows, err = db.Query(ctx, 5, "SELECT 42::int4", pgx.QueryResultFormatsByOID{pgtype.Int4OID: pgx.TextFormatCode})
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() || string(rows.RawValues()[0]) != "42" {
		t.Errorf("formats by type: %q", rows.RawValues())
	}
	rows.Close()
	for _, mode := range modes {
		if err := db.QueryRow(ctx, 5, "SELECT $1::int8 + 1", mode, 41).Scan(&n); err != nil || n != 42 {
			t.Errorf("mode %v in a call: %d, %v", mode, n, err)
		}
	}
	if err := query(db.QueryRow(ctx, 5, "SELECT 1", pgx.QueryExecMode(77))); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a mode that is none: %v", err)
	}
	type item struct {
		ID   int64
		Name string
	}
	rows, err = db.Query(ctx, 5, "SELECT id, name FROM item")
	if err != nil {
		t.Fatal(err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	if err != nil || len(items) != 1 || items[0].Name != "a" {
		t.Errorf("%v, %v", items, err)
	}
}

// Statements are prepared once for a session, as many as pgx keeps, and the
// server forgets the others; a table that changes under them costs one error at
// most, as in pgx.
func TestStatementCache(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1, Configure: func(c *pgxpool.Config) error {
		c.ConnConfig.StatementCacheCapacity = 3
		return nil
	}})
	ctx := t.Context()
	prepared := func() (n int64) {
		t.Helper()
		conn, err := db.Acquire(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name ~ '^shardway_[0-9]'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 20 {
		if err := query(db.QueryRow(ctx, 5, fmt.Sprintf("SELECT %d + $1::int8", i%5), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := prepared(); n < 3 || n > 4 { // the last one displaced is forgotten with the next statement
		t.Errorf("%d statements are prepared, want 3", n)
	}
	var all []any
	read := func() error {
		rows, err := db.Query(ctx, 5, "SELECT * FROM item WHERE id = $1", 0)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if all, err = rows.Values(); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	r.exec("a", "ALTER TABLE item ADD COLUMN more int DEFAULT 3")
	_ = read() // cached plan must not change result type
	if err := read(); err != nil || len(all) != 4 {
		t.Errorf("after a change of the table: %v, %v", all, err)
	}
	if err := query(db.QueryRow(ctx, 5, "SELECT nothing FROM item WHERE id = $1", 0)); err == nil || !strings.Contains(err.Error(), "42703") {
		t.Errorf("an unknown column: %v", err)
	}
}

// The server shows who is at work for a mapping: a session that was given out,
// a transaction; and nobody once they are done.
func TestTags(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1})
	ctx := t.Context()
	tag := fmt.Sprintf("shardway:m%016x", uint64(r.mapping(5).ID))
	tagged := func(conn interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	},
	) (name string) {
		t.Helper()
		if err := conn.QueryRow(ctx, "SELECT current_setting('application_name')").Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	at := keyed{db, 5}
	if name := tagged(at); name == tag {
		t.Errorf("a single statement is tagged")
	}
	conn, err := db.Acquire(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	if name := tagged(conn); name != tag {
		t.Errorf("a session given out is tagged %q", name)
	}
	conn.Release()
	conn.Release()
	for range 2 {
		if err := db.InTx(ctx, 5, pgx.TxOptions{}, func(_ context.Context, tx pgx.Tx) error {
			if name := tagged(tx); name != tag {
				t.Errorf("a transaction is tagged %q", name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if name := tagged(at); name == tag {
			t.Errorf("a single statement is tagged by the last user")
		}
	}
	if conn.Conn() != nil {
		t.Error("a released Conn still leads to its session")
	}
	_, execErr := conn.Exec(ctx, "SELECT 1")
	_, queryErr := conn.Query(ctx, "SELECT 1") //nolint:sqlclosecheck // there are none
	_, beginErr := conn.Begin(ctx)
	for _, err := range []error{execErr, queryErr, beginErr, query(conn.QueryRow(ctx, "SELECT 1")), conn.SendBatch(ctx, &pgx.Batch{}).Close()} {
		if !errors.Is(err, pgxshard.ErrReleased) {
			t.Errorf("after the release: %v", err)
		}
	}
}

// keyed is a DB for one key.
type keyed struct {
	db  *pgxshard.DB[int64]
	key int64
}

func (k keyed) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return k.db.QueryRow(ctx, k.key, sql, args...)
}

// The holder of a mapping shows in pg_locks until it is released.
func TestHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{})
	locks := func() int64 {
		return r.one("a", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	}
	conn, err := db.Hold(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if n := locks(); n != 1 {
		t.Errorf("%d locks while a mapping is held", n)
	}
	conn.Release()
	if n := locks(); n != 0 {
		t.Errorf("%d locks after the release", n)
	}
	opened := sum(db, func(p pgxshard.PoolStats) int { return int(p.Opened) })
	if opened != 1 {
		t.Errorf("%d sessions", opened)
	}
	r.offline(5)
	_, err = db.Hold(t.Context(), 5)
	refused(t, err, shardway.ErrMappingOffline)
	if n := locks(); n != 0 {
		t.Errorf("%d locks after a refusal", n)
	}
}

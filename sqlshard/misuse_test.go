package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// misuse is a body that does what it must not, and text that the error has.
type misuse struct {
	name, says string
	body       func(ctx context.Context, tx *sql.Tx) error
}

func sends(statement string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, _ = tx.ExecContext(ctx, statement)
		return nil
	}
}

var misuses = []misuse{
	{"commits", "has called Commit", func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
	{"commits and fails", "has called Commit", func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return errors.New("mine") }},
	{"rolls back", "has called Rollback", func(_ context.Context, tx *sql.Tx) error { _ = tx.Rollback(); return nil }},
	{"sends a commit", "COMMIT was not sent", sends("commit")},
	{"sends a hidden commit", "COMMIT was not sent", sends(" /* x */ ; -- y\n\tCOMMIT;")},
	{"sends a rollback", "ROLLBACK was not sent", sends("ROLLBACK")},
	{"sends a transaction", "BEGIN was not sent", sends("BEGIN TRANSACTION")},
	{"prepares a commit", "COMMIT was not sent", func(ctx context.Context, tx *sql.Tx) error {
		_, _ = tx.PrepareContext(ctx, "COMMIT") // there is none
		return nil
	}},
	{"asks for a commit", "COMMIT was not sent", func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "COMMIT")
		if err == nil {
			_ = rows.Close()
		}
		return nil
	}},
}

var mysqlMisuses = []misuse{
	{"creates a table", "CREATE was not sent", sends("CREATE TABLE other (id int)")},
	{"drops a table", "DROP was not sent", sends("DROP TABLE item")},
	{"turns autocommit on", "SET was not sent", sends("SET @@autocommit = 1")},
	{"locks tables", "LOCK was not sent", sends("LOCK TABLES item READ")},
	{"hides a commit in a comment that runs", "was not sent", sends("/*! COMMIT */")},
}

// A body that ends its transaction by itself: the work is rolled back whatever
// it returns, the error says what it did, and the next unit finds all in order.
func TestMisusedTransaction(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		cases := misuses
		if r.kind == dbtest.EngineMySQL {
			cases = append(cases[:len(cases):len(cases)], mysqlMisuses...)
		}
		for _, c := range cases {
			calls := 0
			err := db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
				calls++
				if err := r.adds(1)(ctx, tx); err != nil {
					return err
				}
				return c.body(ctx, tx)
			})
			var argument *shardway.ArgumentError
			if !errors.As(err, &argument) || argument.Argument != "fn" || !strings.Contains(argument.Reason, c.says) || calls != 1 {
				t.Errorf("a body that %s, called %d times: %v", c.name, calls, err)
			}
			if n := r.items("a"); n != 0 {
				t.Errorf("a body that %s has left %d rows", c.name, n)
			}
			quiet(t, db)
		}
		if err := db.InTx(t.Context(), 7, nil, r.adds(1)); err != nil || r.items("a") != 1 {
			t.Errorf("the next unit: %v", err)
		}
	})
}

// Statements that stay within their transaction are sent.
func TestStatementsWithinTransaction(t *testing.T) {
	t.Parallel()
	within := map[dbtest.Engine][]string{
		dbtest.EnginePostgres: {"SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "CREATE TABLE other (id int)", "SELECT 'x; COMMIT'", "SET LOCAL work_mem = '1MB'"},
		dbtest.EngineMySQL:    {"SAVEPOINT s", "ROLLBACK TO s", "RELEASE SAVEPOINT s", "CREATE TEMPORARY TABLE other (id int)", "SELECT 'x; COMMIT'", "SET @x = 1"},
		dbtest.EngineSQLite:   {"SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "CREATE TABLE other (id int)", "SELECT 'x; COMMIT'"},
	}
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		err := db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
			for _, s := range within[r.kind] {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					t.Errorf("%s: %v", s, err)
				}
			}
			return r.adds(1)(ctx, tx)
		})
		if err != nil || r.items("a") != 1 {
			t.Errorf("got %v, with %d rows", err, r.items("a"))
		}
	})
}

// A body that panics, or ends after its context, or whose transaction is used
// after the end: nothing is kept and the session is not lost to others.
func TestBrokenOffTransaction(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		func() {
			defer func() {
				if p := recover(); p != "mine" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
				_ = r.adds(1)(ctx, tx)
				panic("mine")
			})
		}()
		eventually(t, "the session is given back", func() bool {
			return sum(db, func(p sqlshard.PoolStats) int { return p.InUse }) == 0
		})
		for _, returns := range []error{nil, sql.ErrTxDone} {
			ctx, cancel := context.WithCancel(t.Context())
			err := db.InTx(ctx, 7, nil, func(ctx context.Context, tx *sql.Tx) error {
				_ = r.adds(1)(ctx, tx)
				cancel()
				return returns
			})
			if !errors.Is(err, context.Canceled) || errors.Is(err, retry.ErrCommitUnknown) || errors.Is(err, shardway.ErrInvalid) {
				t.Errorf("after the end of the context, returning %v: %v", returns, err)
			}
		}
		var kept *sql.Tx
		if err := db.InTx(t.Context(), 7, nil, func(_ context.Context, tx *sql.Tx) error { kept = tx; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := r.adds(1)(t.Context(), kept); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("used after the end: %v", err)
		}
		if n := r.items("a"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		quiet(t, db)
	})
}

// Arguments that cannot be meant are refused by name, before anything is begun.
func TestRefusedTransaction(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		never := func(context.Context, *sql.Tx) error {
			t.Error("fn was called")
			return nil
		}
		lacking := []sql.IsolationLevel{sql.LevelWriteCommitted, sql.LevelLinearizable, 99}
		if r.kind == dbtest.EngineMySQL {
			lacking = append(lacking, sql.LevelSnapshot)
		}
		for _, level := range lacking {
			err := db.InTx(t.Context(), 7, &sqlshard.TxOptions{Isolation: level}, never)
			var argument *shardway.ArgumentError
			if !errors.As(err, &argument) || argument.Argument != "options.Isolation" || argument.Value != level.String() {
				t.Errorf("isolation level %v: %v", level, err)
			}
		}
		other, err := shardway.WithKey(t.Context(), "of another map")
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			err  error
			want error
		}{
			"no fn":              {db.InTx(t.Context(), 7, nil, nil), shardway.ErrInvalid},
			"a handle for reads": {db.With(selection.Nearest()).InTx(t.Context(), 7, nil, never), shardway.ErrInvalid},
			"an unmapped key":    {db.InTx(t.Context(), 777, nil, never), shardway.ErrKeyNotMapped},
			"another map's key":  {db.ByContext().InTx(other, nil, never), shardway.ErrWrongType},
			"no key":             {db.ByContext().InTx(t.Context(), nil, never), shardway.ErrKeyRequired},
			"a policy without end": {
				db.WithRetry(retry.Policy{MaxAttempts: -1}).InTx(t.Context(), 7, nil, never), shardway.ErrInvalid,
			},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: %v, want %v", name, c.err, c.want)
			}
		}
		quiet(t, db)
	})
}

// A transaction that only reads takes no lock, on whatever server the handle's
// criteria choose, and cannot write where the engine has such transactions.
func TestInTxReadOnly(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		for _, level := range levels {
			err := db.With(selection.Nearest()).InTx(t.Context(), 7, &sqlshard.TxOptions{ReadOnly: true, Isolation: level}, func(ctx context.Context, tx *sql.Tx) error {
				var name string
				if err := tx.QueryRowContext(ctx, "SELECT name FROM item WHERE id = 0").Scan(&name); err != nil || name != "a" {
					t.Errorf("%v: read %q, %v", level, name, err)
				}
				first := level == sql.LevelDefault && retry.AttemptNumber(ctx) == 1
				if first && r.kind != dbtest.EngineSQLServer { // there it takes the lock
					r.setStatus(7, shardway.Offline) // does not wait; may end the session
					r.setStatus(7, shardway.Online)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%v: %v", level, err)
			}
		}
		if r.kind != dbtest.EngineSQLite && r.kind != dbtest.EngineSQLServer {
			if err := db.InTx(t.Context(), 7, &sqlshard.TxOptions{ReadOnly: true}, r.adds(1)); !errors.Is(err, shardway.ErrInvalid) || r.items("a") != 0 {
				t.Errorf("a write in a read-only transaction: %v", err)
			}
		}
		quiet(t, db)
	})
}

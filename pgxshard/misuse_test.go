package pgxshard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
)

// Bodies that do what they must not: a typed error, nothing is committed that was
// not, the body is not run again, and the next user has a clean session.
func TestMisuse(t *testing.T) { //nolint:tparallel // the bodies share one session in turn
	t.Parallel()
	update := func(ctx context.Context, tx pgx.Tx) error { return second(tx.Exec(ctx, "UPDATE item SET n = n + 1")) }
	bodies := map[string]struct {
		body  func(ctx context.Context, tx pgx.Tx) error
		wrote int64 // what stays whatever we do
	}{
		"commits":          {func(ctx context.Context, tx pgx.Tx) error { return errors.Join(update(ctx, tx), tx.Commit(ctx)) }, 0},
		"commits silently": {func(ctx context.Context, tx pgx.Tx) error { _, _ = update(ctx, tx), tx.Commit(ctx); return nil }, 0},
		"rolls back":       {func(ctx context.Context, tx pgx.Tx) error { _, _ = update(ctx, tx), tx.Rollback(ctx); return nil }, 0},
		"commits by text": {func(ctx context.Context, tx pgx.Tx) error {
			_ = update(ctx, tx)
			_, _ = tx.Exec(ctx, "/* x */ commit")
			return nil
		}, 0},
		"several in a text": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "UPDATE item SET n = 7; COMMIT; BEGIN")
			return nil
		}, 0},
		"commits by a batch": {func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("END")
			_ = tx.SendBatch(ctx, b).Close()
			return nil
		}, 0},
		"behind our back": {func(ctx context.Context, tx pgx.Tx) error {
			_ = update(ctx, tx)
			return second(tx.Conn().Exec(ctx, "COMMIT"))
		}, 1},
		"leaves rows open": {func(ctx context.Context, tx pgx.Tx) error {
			_ = update(ctx, tx)
			_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck // that is what is tested
			return err
		}, 0},
		"passes over an error": {func(ctx context.Context, tx pgx.Tx) error {
			_ = update(ctx, tx)
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}, 0},
	}
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1, Retry: quick})
	for name, c := range bodies { //nolint:paralleltest // see above
		t.Run(name, func(t *testing.T) {
			before := r.one("a", "SELECT n FROM item")
			runs := 0
			err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				runs++
				return c.body(ctx, tx)
			})
			var misuse *pgxshard.MisuseError
			if !errors.As(err, &misuse) || !errors.Is(err, shardway.ErrInvalid) || runs != 1 {
				t.Errorf("%v after %d runs, want a MisuseError after 1", err, runs)
			}
			if n := r.one("a", "SELECT n FROM item") - before; n != c.wrote {
				t.Errorf("%d writes stay, want %d", n, c.wrote)
			}
			clean(t, db)
		})
	}
}

// clean checks that the one session of a pool is not in a transaction.
func clean(t *testing.T, db *pgxshard.DB[int64]) {
	t.Helper()
	quiet(t, db)
	conn, err := db.Acquire(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if s := conn.Conn().PgConn().TxStatus(); s != 'I' {
		t.Errorf("the session is in a transaction: %c", s)
	}
}

// A body that panics, one that fails, and one that keeps its transaction.
func TestBodyEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1})
	ctx := t.Context()
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "UPDATE item SET n = n + 1")
			panic("boom")
		})
	}()
	clean(t, db)
	mine := errors.New("mine")
	err := db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, "UPDATE item SET n = n + 1")
		return mine
	})
	if !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	opened := sum(db, func(p pgxshard.PoolStats) int { return int(p.Opened) })
	clean(t, db)
	if again := sum(db, func(p pgxshard.PoolStats) int { return int(p.Opened) }); again != opened {
		t.Errorf("a rollback cost a session: %d, then %d", opened, again)
	}
	var kept pgx.Tx
	if err := db.InTx(ctx, 5, pgx.TxOptions{}, func(_ context.Context, tx pgx.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	_, execErr := kept.Exec(ctx, "UPDATE item SET n = n + 1")
	_, queryErr := kept.Query(ctx, "SELECT 1") //nolint:sqlclosecheck // there are none
	_, beginErr := kept.Begin(ctx)
	_, prepareErr := kept.Prepare(ctx, "x", "SELECT 1")
	_, copyErr := kept.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"id"}, pgx.CopyFromRows(nil))
	for what, err := range map[string]error{
		"Exec": execErr, "Query": queryErr, "Begin": beginErr, "Prepare": prepareErr, "CopyFrom": copyErr,
		"QueryRow": query(kept.QueryRow(ctx, "SELECT 1")), "Commit": kept.Commit(ctx), "Rollback": kept.Rollback(ctx),
		"SendBatch": kept.SendBatch(ctx, &pgx.Batch{}).Close(),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	if n := r.one("a", "SELECT n FROM item"); n != 0 {
		t.Errorf("%d writes stay", n)
	}
}

// Savepoints are the body's own, by method and by text.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{})
	err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, "SELECT 1/0"); err == nil {
			t.Error("no error")
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		if inner, err = tx.Begin(ctx); err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, "UPDATE item SET n = n + 1"); err != nil {
			return err
		}
		if err := inner.Commit(ctx); err != nil {
			return err
		}
		return second(tx.Exec(ctx, "SAVEPOINT s; UPDATE item SET n = n + 10; ROLLBACK TO SAVEPOINT s; RELEASE s"))
	})
	if n := r.one("a", "SELECT n FROM item"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// Bad input: a typed error that names the argument, and nothing reached a shard.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{})
	ctx := t.Context()
	body := func(context.Context, pgx.Tx) error { t.Error("the body ran"); return nil }
	begun := &pgx.Batch{}
	begun.BeginTx(pgx.TxOptions{})
	reads := db.With(selection.Nearest())
	_, refusedCopy := reads.CopyFrom(ctx, 5, pgx.Identifier{"item"}, []string{"id"}, pgx.CopyFromRows(nil))
	_, noSource := db.CopyFrom(ctx, 5, pgx.Identifier{"item"}, []string{"id"}, nil)
	_, heldRead := reads.Hold(ctx, 5)
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"BEGIN":             {second(db.Exec(ctx, 5, "BEGIN")), "sql"},
		"hidden COMMIT":     {second(db.Exec(ctx, 5, "SELECT 1; /* a */ COMMIT")), "sql"},
		"PREPARE":           {second(db.Query(ctx, 5, "PREPARE TRANSACTION 'x'")), "sql"},
		"body":              {db.InTx(ctx, 5, pgx.TxOptions{}, nil), "body"},
		"level":             {db.InTx(ctx, 5, pgx.TxOptions{IsoLevel: "chaos"}, body), "options.IsoLevel"},
		"access":            {db.InTx(ctx, 5, pgx.TxOptions{AccessMode: "all"}, body), "options.AccessMode"},
		"deferrable":        {db.InTx(ctx, 5, pgx.TxOptions{DeferrableMode: "later"}, body), "options.DeferrableMode"},
		"begin text":        {db.InTx(ctx, 5, pgx.TxOptions{BeginQuery: "begin; drop table item"}, body), "options"},
		"write on reads":    {reads.InTx(ctx, 5, pgx.TxOptions{AccessMode: pgx.ReadWrite}, body), "options.AccessMode"},
		"copy on reads":     {refusedCopy, "criteria"},
		"no source":         {noSource, "source"},
		"hold on reads":     {heldRead, "criteria"},
		"batch begins":      {db.SendBatch(ctx, 5, begun).Close(), "b"},
		"no batch":          {db.SendBatch(ctx, 5, nil).Close(), "b"},
		"criteria of a DB":  {query(db.With(selection.Secondary(selection.MaxStaleness(-1))).QueryRow(ctx, 5, "SELECT 1")), ""},
		"policy has no end": {r.open(pgxshard.Config{Retry: retry.Policy{MaxAttempts: -1}}).InTx(context.WithoutCancel(ctx), 5, pgx.TxOptions{}, body), "retry.Policy"},
	} {
		var argument *shardway.ArgumentError
		if !errors.Is(c.err, shardway.ErrInvalid) || c.text != "" && (!errors.As(c.err, &argument) || argument.Argument != c.text) {
			t.Errorf("%s: %v, want an ArgumentError on %q", name, c.err, c.text)
		}
	}
	for _, cfg := range []pgxshard.Config{{}, {Engine: r.engine, Validation: 9}, {Engine: r.engine, Servers: pgxshard.ServerConfig{Heartbeat: 1}}, {Engine: r.engine, Criteria: selection.Secondary(selection.MaxStaleness(-1))}} {
		if _, err := pgxshard.New(r.handle(), cfg); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("New(%+v) = %v", cfg, err)
		}
	}
	if _, err := pgxshard.New[int64](nil, pgxshard.Config{Engine: r.engine}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("New(nil) = %v", err)
	}
	if n := sum(db, func(p pgxshard.PoolStats) int { return int(p.Opened) }); n != 0 {
		t.Errorf("%d sessions were opened", n)
	}
	if err := query(db.QueryRow(ctx, 1000, "SELECT 1")); !errors.Is(err, shardway.ErrKeyNotMapped) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("a key without a mapping: %v", err)
	}
}

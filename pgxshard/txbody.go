package pgxshard

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tx is the transaction that a body sees. It keeps the body from ending it.
type tx struct {
	inner  pgx.Tx
	parent *tx // of a savepoint, which the body may end
	misuse *MisuseError
	over   atomic.Bool // the body has returned
}

var _ pgx.Tx = (*tx)(nil)

// run runs the body. Afterwards nothing can be done by t.
func (t *tx) run(ctx context.Context, body func(ctx context.Context, tx pgx.Tx) error) error {
	defer t.over.Store(true)
	return body(ctx, t)
}

// root is the transaction itself.
func (t *tx) root() *tx {
	for t.parent != nil {
		t = t.parent
	}
	return t
}

// check refuses what comes too late, and statements that end the transaction.
func (t *tx) check(sql string) error {
	root := t.root()
	if root.over.Load() {
		return pgx.ErrTxClosed
	}
	if sql != "" && read(sql).ride == rideRefused {
		return root.wrong("ended the transaction by a statement, which was not sent")
	}
	return nil
}

func (t *tx) wrong(reason string) error {
	if t.misuse == nil {
		t.misuse = &MisuseError{reason}
	}
	return t.misuse
}

// Begin begins a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.check(""); err != nil {
		return nil, err
	}
	inner, err := t.inner.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &tx{inner: inner, parent: t}, nil
}

// Commit releases a savepoint.
func (t *tx) Commit(ctx context.Context) error {
	if err := t.check(""); err != nil {
		return err
	}
	if t.parent == nil {
		return t.wrong("committed the transaction by itself")
	}
	return t.inner.Commit(ctx)
}

// Rollback rolls back to a savepoint.
func (t *tx) Rollback(ctx context.Context) error {
	if err := t.check(""); err != nil {
		return err
	}
	if t.parent == nil {
		return t.wrong("rolled the transaction back by itself: return an error")
	}
	return t.inner.Rollback(ctx)
}

// CopyFrom copies rows into a table.
func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := t.check(""); err != nil {
		return 0, err
	}
	return t.inner.CopyFrom(ctx, table, columns, source)
}

// SendBatch sends a batch.
func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.check(q.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	if err := t.check(""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.inner.SendBatch(ctx, b)
}

// LargeObjects gives access to large objects.
func (t *tx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Prepare prepares a statement on the session.
func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.check(sql); err != nil {
		return nil, err
	}
	return t.inner.Prepare(ctx, name, sql)
}

// Exec runs a statement.
func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.check(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.inner.Exec(ctx, sql, args...)
}

// Query runs a query.
func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.check(sql); err != nil {
		return failedRows{err}, err
	}
	return t.inner.Query(ctx, sql, args...)
}

// QueryRow runs a query for at most one row.
func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.check(sql); err != nil {
		return row{failedRows{err}}
	}
	return t.inner.QueryRow(ctx, sql, args...)
}

// Conn returns the driver's connection. What is done with it is not watched.
func (t *tx) Conn() *pgx.Conn { return t.inner.Conn() }

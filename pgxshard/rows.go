package pgxshard

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are the rows of a query, which keep their session until they are closed.
type rows struct {
	pgx.Rows

	v      *visit
	call   call
	ctx    context.Context //nolint:containedctx // of the query, for its tracer
	end    func() error    // ends the pipeline; may be nil
	err    error
	traced bool // the end is to be told to the tracer
	closed bool
}

var _ pgx.Rows = (*rows)(nil)

// Next prepares the next row. After the last one the rows are closed.
func (r *rows) Next() bool {
	if r.closed {
		return false
	}
	if !r.Rows.Next() {
		r.Close()
		return false
	}
	return true
}

// Scan reads the row. An error closes the rows.
func (r *rows) Scan(dest ...any) error {
	if r.closed {
		return r.afterEnd()
	}
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

// Values returns the values of the row. An error closes the rows.
func (r *rows) Values() ([]any, error) {
	if r.closed {
		return nil, r.afterEnd()
	}
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

var errRowsClosed = errors.New("rows are closed")

func (r *rows) afterEnd() error {
	if r.err != nil {
		return r.err
	}
	return errRowsClosed
}

// Close gives the session back. It is idempotent.
func (r *rows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	returned := false
	defer func() {
		r.v.dirty = r.v.dirty || !returned // a tracer may have panicked
		r.v.release()
	}()
	r.Rows.Close()
	r.err = r.Rows.Err()
	if r.end != nil {
		if err := r.end(); r.err == nil {
			r.err = err
		}
	}
	if r.traced {
		r.v.traceEnd(r.ctx, r.Rows.CommandTag(), r.err)
	}
	r.v.settle(r.ctx, &r.call, own(r.err))
	returned = true
}

// Err returns the error of the query, once the rows are closed.
func (r *rows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.Rows.Err()
}

// Conn returns the connection of the rows while they are open, else nil.
func (r *rows) Conn() *pgx.Conn {
	if r.closed {
		return nil
	}
	return r.v.conn.Conn()
}

// failedRows are the rows of a query that failed.
type failedRows struct{ err error }

// Close does nothing.
func (failedRows) Close() {}

// Err returns the error.
func (r failedRows) Err() error { return r.err }

// CommandTag returns nothing.
func (failedRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

// FieldDescriptions returns nothing.
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }

// Next is false.
func (failedRows) Next() bool { return false }

// Scan returns the error.
func (r failedRows) Scan(...any) error { return r.err }

// Values returns the error.
func (r failedRows) Values() ([]any, error) { return nil, r.err }

// RawValues returns nothing.
func (failedRows) RawValues() [][]byte { return nil }

// Conn returns nothing.
func (failedRows) Conn() *pgx.Conn { return nil }

// TypeMap returns nothing.
func (failedRows) TypeMap() *pgtype.Map { return nil }

// row is the one row of a query.
type row struct{ rows pgx.Rows }

// Scan reads the row and closes the rows, also when a destination panics.
func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	if err := r.rows.Err(); err != nil {
		return err
	}
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("a row cannot be scanned into *pgtype.DriverBytes, which would outlive it")
		}
	}
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

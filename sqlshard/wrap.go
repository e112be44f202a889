package sqlshard

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"
)

// statement is a prepared statement of a session.
type statement struct {
	driver.Stmt
	session *session
}

// Close closes the statement. It is idempotent.
func (st *statement) Close() error {
	if !st.session.open[st] {
		return nil
	}
	delete(st.session.open, st)
	return st.Stmt.Close()
}

// ExecContext runs the statement.
func (st *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	began, err := st.session.sending()
	if err != nil {
		return nil, err
	}
	result, err := execStatement(ctx, st.Stmt, args)
	st.session.failed(ctx, began, err)
	return result, err
}

// QueryContext runs the statement.
func (st *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	began, err := st.session.sending()
	if err != nil {
		return nil, err
	}
	rows, err := queryStatement(ctx, st.Stmt, args)
	return st.session.watchRows(ctx, began, rows, err)
}

// CheckNamedValue lets the driver convert arguments.
func (st *statement) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := st.Stmt.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return st.session.CheckNamedValue(v)
}

func execStatement(ctx context.Context, st driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := st.(driver.StmtExecContext); ok {
		return e.ExecContext(ctx, args)
	}
	values, err := unnamed(args)
	if err != nil {
		return nil, err
	}
	return st.Exec(values) //nolint:staticcheck // a driver without contexts
}

func queryStatement(ctx context.Context, st driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if q, ok := st.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	values, err := unnamed(args)
	if err != nil {
		return nil, err
	}
	return st.Query(values) //nolint:staticcheck // a driver without contexts
}

func unnamed(args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, errors.New("the driver does not support named arguments")
		}
		values[i] = a.Value
	}
	return values, nil
}

// transaction is an open transaction of a session.
type transaction struct {
	driver.Tx
	session *session
	ctx     context.Context //nolint:containedctx // of the transaction
	scope   *scope
	fence   *fence // nil for a transaction of the user's own
}

// Commit commits. A former primary gets no commit: the transaction is taken back.
func (t *transaction) Commit() error {
	began, err := t.session.sending()
	if err == nil {
		err = t.fence.commits()
	}
	if err != nil {
		t.end(t.Tx.Rollback())
		return err
	}
	err = t.Tx.Commit()
	t.session.failed(t.ctx, began, err)
	if e, ok := t.Tx.(interface{ Ended() bool }); ok && e.Ended() {
		t.end(nil)
		return err
	}
	t.end(err)
	return err
}

// Rollback takes the transaction back. On a session that is to be closed
// anyway, closing it is what does so.
func (t *transaction) Rollback() error {
	var err error
	if t.scope.abandoned() {
		err = driver.ErrBadConn
	} else {
		err = t.Tx.Rollback()
	}
	t.end(err)
	return err
}

func (t *transaction) end(err error) {
	t.session.inTx = err != nil // a failed end may leave it open
	t.session.inReadOnly, t.session.fence = false, nil
	t.fence.over()
	t.scope.end()
}

// rows are the rows of a query whose scope wants to know when they are closed.
type rows struct {
	driver.Rows
	session *session
	began   time.Time // see sending
	scope   *scope
}

// watchRows ties rows to the scope in ctx, if there is one, and learns from the
// errors of a query.
func (s *session) watchRows(ctx context.Context, began time.Time, inner driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		s.failed(ctx, began, err)
		return nil, err
	}
	if scope := scopeOf(ctx); scope != nil {
		return &rows{inner, s, began, scope}, nil
	}
	return inner, nil
}

// Next reads a row.
func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err != nil && !isEnd(err) {
		r.session.failed(r.scope, r.began, err)
	}
	return err
}

// Close closes the rows and ends their scope.
func (r *rows) Close() error {
	err := r.Rows.Close()
	r.scope.end()
	return err
}

// HasNextResultSet asks the driver; what drivers need not have is answered
// here as database/sql would without it.
func (r *rows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

// NextResultSet asks the driver.
func (r *rows) NextResultSet() error {
	if n, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return n.NextResultSet()
	}
	return io.EOF
}

// ColumnTypeScanType asks the driver.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if c, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return c.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeDatabaseTypeName asks the driver.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if c, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return c.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// ColumnTypeLength asks the driver.
func (r *rows) ColumnTypeLength(i int) (int64, bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return c.ColumnTypeLength(i)
	}
	return 0, false
}

// ColumnTypeNullable asks the driver.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return c.ColumnTypeNullable(i)
	}
	return false, false
}

// ColumnTypePrecisionScale asks the driver.
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if c, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return c.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}

// number reads a whole number as drivers return it.
func number(v driver.Value) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case []byte:
		return strconv.ParseInt(string(v), 10, 64)
	case string:
		return strconv.ParseInt(v, 10, 64)
	}
	return 0, fmt.Errorf("reading a number from a %T", v)
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

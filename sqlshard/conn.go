package sqlshard

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
)

// Conn is one session of the database that holds a key, open and validated.
// It never changes its session: when the session breaks, the Conn is of no
// more use and a new one has to be opened. It must be closed.
//
// A Conn may be used by several goroutines; the driver then serves them one
// after the other. What its methods return are database/sql's own types, and
// errors of statements are the driver's own. After Close all methods return
// [sql.ErrConnDone].
type Conn struct {
	session *session  // not to be used after Close: it has another owner then
	sc      *sql.Conn // of the session; leads nowhere once the session has another owner
	route   shardway.Route
	state   atomic.Int32 // see enter
	handles atomic.Bool  // rows, statements or transactions were given out
	scopes  scopes
	choice  selection.Choice // of the server; none where there was nothing to choose
	opener  *opener
	fence   *fence // of the transaction that it is opened for, or nil
	holds   bool   // holds its mapping
	asks    bool   // is validated in any case
}

// closedConn is added to the state of a Conn, which else counts the calls that
// run now.
const closedConn = -1 << 30

// enter begins a call. Every enter that is true needs a leave.
func (c *Conn) enter() bool {
	if c.state.Add(1) > 0 {
		return true
	}
	c.leave()
	return false
}

func (c *Conn) leave() { c.state.Add(-1) }

// Route returns how the key was routed. Its MappingID is 0 on a connection
// that was opened for a shard.
func (c *Conn) Route() shardway.Route { return c.route }

// Shard returns the name of the shard.
func (c *Conn) Shard() string { return c.route.Shard.Name }

// Server returns the address of the server.
func (c *Conn) Server() string { return c.session.pool.address }

// ExecContext runs a statement that returns no rows.
func (c *Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if !c.enter() {
		return nil, sql.ErrConnDone
	}
	defer c.leave()
	result, err := c.sc.ExecContext(ctx, query, args...)
	return result, c.explain(ctx, err)
}

// QueryContext runs a query. Rows that are open when the Conn is closed are
// closed with it.
func (c *Conn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.query(ctx, nil, query, args)
}

// query runs a query and calls after when its rows are closed.
func (c *Conn) query(ctx context.Context, after func(), query string, args []any) (*sql.Rows, error) {
	if !c.enter() {
		return nil, sql.ErrConnDone
	}
	defer c.leave()
	s := c.begin(ctx, after)
	rows, err := c.sc.QueryContext(s, query, args...) //nolint:sqlclosecheck // the caller closes them
	if err != nil {
		s.end()
	}
	return rows, c.explain(ctx, err)
}

// begin opens the scope of something that is given out.
func (c *Conn) begin(ctx context.Context, after func()) *scope {
	c.handles.Store(true)
	return c.scopes.begin(ctx, after)
}

// QueryRowContext runs a query for at most one row. Errors come with Scan.
func (c *Conn) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return c.queryRow(ctx, nil, query, args)
}

func (c *Conn) queryRow(ctx context.Context, after func(), query string, args []any) *sql.Row {
	if !c.enter() {
		return failedRow(sql.ErrConnDone)
	}
	defer c.leave()
	s := c.begin(ctx, after)
	row := c.sc.QueryRowContext(s, query, args...)
	if row.Err() != nil {
		s.end()
	}
	return row
}

// PrepareContext prepares a statement for use on this Conn and not longer than
// it. Close waits until the rows of such a statement are closed.
func (c *Conn) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if !c.enter() {
		return nil, sql.ErrConnDone
	}
	defer c.leave()
	c.handles.Store(true)
	return c.sc.PrepareContext(ctx, query) //nolint:sqlclosecheck // the caller closes it
}

// BeginTx begins a transaction. It ends with the Conn, if not before: a
// transaction that is open when the Conn is closed is rolled back.
func (c *Conn) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if !c.enter() {
		return nil, sql.ErrConnDone
	}
	defer c.leave()
	s := c.begin(ctx, nil)
	tx, err := c.sc.BeginTx(s, opts)
	if err != nil {
		s.end()
	}
	return tx, c.explain(ctx, err)
}

// PingContext asks the server for a sign of life.
func (c *Conn) PingContext(ctx context.Context) error {
	if !c.enter() {
		return sql.ErrConnDone
	}
	defer c.leave()
	return c.sc.PingContext(ctx)
}

// Raw calls f with the driver's own connection, as [sql.Conn.Raw] does. The
// session is not used again after the Conn is closed, for nobody knows what f
// has done to it.
func (c *Conn) Raw(f func(driverConn any) error) error {
	if !c.enter() {
		return sql.ErrConnDone
	}
	defer c.leave()
	return c.sc.Raw(func(dc any) error {
		s := dc.(*session)
		s.dirty = true
		return f(s.Conn)
	})
}

// Close gives the session back to its pool, or ends it when something may be
// left on it for the next user to see; see the package documentation. Open
// rows are closed and an open transaction is rolled back; statements that run
// are waited for. Close is idempotent and returns nil.
func (c *Conn) Close() error {
	if c.close() {
		defer c.choice.Release()
		c.scopes.cancel()
		c.session.pool.checkin(c.session, c.handles.Load())
	}
	return nil
}

// close marks the Conn as closed. It is true for the first who does. When calls
// are running, database/sql has to wait for them.
func (c *Conn) close() (first bool) {
	for {
		running := c.state.Load()
		if running < 0 {
			return false
		}
		if running > 0 {
			c.handles.Store(true)
		}
		if c.state.CompareAndSwap(running, running+closedConn) {
			return true
		}
	}
}

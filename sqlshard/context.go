package sqlshard

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/shardway/shardway"
)

// ContextDB runs each statement on the shard of the key that its context
// carries ([shardway.WithKey]). It has the methods that sqlc, GORM and others
// ask of a connection, so their code routes without knowing. A context without
// a key is [shardway.ErrKeyRequired]. It is safe for concurrent use.
//
// Each statement has a session of its own. For a transaction, open a
// connection or a transaction by key and pass that.
type ContextDB struct {
	opener *opener
	want   want
}

func (d *ContextDB) open(ctx context.Context) (*Conn, error) {
	key, ok := shardway.KeyFromContext(ctx)
	if !ok {
		return nil, &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: shardway.ErrKeyRequired}
	}
	return d.opener.forKey(ctx, key, d.want)
}

// ExecContext runs a statement that returns no rows.
func (d *ContextDB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ExecContext(ctx, query, args...)
}

// QueryContext runs a query. The session is given back when the rows are
// closed, which a loop to their end does too.
func (d *ContextDB) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	conn, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	return conn.query(ctx, func() { _ = conn.Close() }, query, args)
}

// QueryRowContext runs a query for at most one row. Errors come with Scan,
// which gives the session back.
func (d *ContextDB) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	conn, err := d.open(ctx)
	if err != nil {
		return failedRow(err)
	}
	return conn.queryRow(ctx, func() { _ = conn.Close() }, query, args)
}

// PrepareContext prepares a statement on the shard of the key. Its session is
// given back when ctx ends, and the statement with it; a context that never
// ends is refused.
func (d *ContextDB) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if ctx.Done() == nil {
		return nil, &shardway.ArgumentError{Argument: "ctx", Reason: "never ends: a statement prepared by context keeps its session until ctx ends"}
	}
	conn, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	st, err := conn.PrepareContext(ctx, query)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() {
		_ = st.Close()
		_ = conn.Close()
	})
	return st, nil
}

// failedRow returns a row whose Scan returns err. Only database/sql can make
// one, from a database that cannot be connected to.
func failedRow(err error) *sql.Row {
	db := sql.OpenDB(unreachable{err})
	defer db.Close()
	return db.QueryRowContext(context.Background(), "")
}

// unreachable is a database that cannot be connected to.
type unreachable struct{ err error }

// Connect returns the error.
func (u unreachable) Connect(context.Context) (driver.Conn, error) { return nil, u.err }

// Driver returns nil: nobody asks for it.
func (u unreachable) Driver() driver.Driver { return nil }

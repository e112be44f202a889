package pgxshard

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// ErrReleased is a [Conn] that was used after its release.
var ErrReleased = errors.New("connection was released")

// Conn is one session of the database that holds a key, validated when it was
// given out. It never changes its session: when that breaks, the Conn is of no
// more use. When its server is seen to be no longer the primary that it was, its
// methods fail with a [*shardway.DemotedError]. It must be released, and is not
// for several goroutines at once.
type Conn struct {
	v        *visit // not to be used after Release: it has another owner then
	held     bool   // the session holds the mapping
	released atomic.Bool
}

// Acquire returns a session of the database that holds a key. The shard was
// asked, on that very session and in one round trip, whether it has the key's
// mapping online; what is done with the session later is not checked. The server
// shows the session as one in use for the mapping. Errors are those of
// [DB.Exec].
func (d *DB[K]) Acquire(ctx context.Context, k K) (*Conn, error) {
	var got *Conn
	err := d.at(ctx, k, nil, func(_, opening context.Context, v *visit) error {
		if err := v.tag(opening); err != nil {
			return err
		}
		got = &Conn{v: v}
		return nil
	})
	return got, err
}

// tag validates the route and names the session for its mapping.
func (v *visit) tag(ctx context.Context) error {
	if v.o.cfg.Validation == None || v.o.cfg.Pooler {
		return v.ask(ctx, askPlain)
	}
	v.state.tagged = true
	var status int16
	id := int64(v.route.MappingID)
	err := v.conn.QueryRow(ctx, tagPlain, dialect.Tag(id), id).Scan(&status, nil)
	return v.answered(ctx, status, err)
}

// Release gives the session back to its pool; one that is in a transaction, or
// broken, is closed. It is idempotent.
//
// Settings that were changed on the session stay on it, as in pgxpool: change
// them by SET LOCAL in a transaction, or set them back.
func (c *Conn) Release() {
	if c.released.Swap(true) {
		return
	}
	if c.held {
		c.v.unhold()
	}
	c.v.release()
}

// Conn returns the driver's connection, for what the methods of c do not offer.
// It must not be used after Release, and is nil then. Nothing keeps statements on
// it from a former primary.
func (c *Conn) Conn() *pgx.Conn {
	if c.released.Load() {
		return nil
	}
	return c.v.conn.Conn()
}

// usable returns the driver's connection for a statement. A former primary gets
// none.
func (c *Conn) usable() (*pgx.Conn, error) {
	conn := c.Conn()
	if conn == nil {
		return nil, ErrReleased
	}
	if err := c.v.demoted(); err != nil {
		return nil, err
	}
	return conn, nil
}

// Route returns how the key was routed.
func (c *Conn) Route() shardway.Route { return c.v.route }

// Shard returns the name of the shard.
func (c *Conn) Shard() string { return c.v.route.Shard.Name }

// Server returns the address of the server.
func (c *Conn) Server() string { return c.v.pool.address }

// Exec runs a statement, as [pgx.Conn.Exec] does. When the session was ended
// because the mapping goes elsewhere, the error is a [*shardway.MovedError].
func (c *Conn) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	conn, err := c.usable()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := conn.Exec(ctx, sql, args...)
	c.v.learn(ctx, err)
	return tag, c.v.told(ctx, err, false)
}

// Query runs a query, as [pgx.Conn.Query] does.
func (c *Conn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := c.usable()
	if err != nil {
		return failedRows{err}, err
	}
	return conn.Query(ctx, sql, args...)
}

// QueryRow runs a query for at most one row, as [pgx.Conn.QueryRow] does.
func (c *Conn) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	conn, err := c.usable()
	if err != nil {
		return row{failedRows{err}}
	}
	return conn.QueryRow(ctx, sql, args...)
}

// SendBatch sends a batch, as [pgx.Conn.SendBatch] does.
func (c *Conn) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	conn, err := c.usable()
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return conn.SendBatch(ctx, b)
}

// CopyFrom copies rows into a table, as [pgx.Conn.CopyFrom] does.
func (c *Conn) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	conn, err := c.usable()
	if err != nil {
		return 0, err
	}
	n, err := conn.CopyFrom(ctx, table, columns, source)
	c.v.learn(ctx, err)
	return n, err
}

// Begin begins a transaction, as [pgx.Conn.Begin] does. It is not fenced: see
// [DB.InTx].
func (c *Conn) Begin(ctx context.Context) (pgx.Tx, error) { return c.BeginTx(ctx, pgx.TxOptions{}) }

// BeginTx begins a transaction, as [pgx.Conn.BeginTx] does. It is not fenced:
// see [DB.InTx].
func (c *Conn) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	conn, err := c.usable()
	if err != nil {
		return nil, err
	}
	return conn.BeginTx(ctx, options)
}

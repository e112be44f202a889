// Package sqlstore keeps the global and the local store in SQL databases:
// PostgreSQL, MySQL and MariaDB, SQL Server, SQLite. Each statement is written
// once; package internal/dialect turns it into an engine's own text.
//
// The tables are Shardway's own. Other programs may read them; they must not
// write them.
package sqlstore

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// Bounds on running a transaction again.
const (
	maxTransient = 25                     // after deadlocks, conflicts, busy files
	maxLost      = 3                      // after broken connections and outdated statements
	maxPause     = 200 * time.Millisecond // between two attempts
	commitLimit  = 15 * time.Second       // to wait for the acknowledgement of a commit
	cleanLimit   = 5 * time.Second        // to wait for that of a rollback
)

// database runs transactions on a pool.
type database struct {
	pool   *sql.DB
	d      *dialect.Dialect
	writer chan struct{} // holds one token when the engine has a single writer; else nil
	raw    rawReader     // nil when the driver has no such thing
	file   creator       // nil when the database is not ours to create
	page   int           // rows that iterators hold in memory

	drains  chan struct{}          // one token for each step that drains
	version atomic.Pointer[string] // of the server, once somebody has asked
}

// rawReader is an optional ability of a pool's driver ([sql.DB.Driver]): it
// runs a query on one of its connections and hands out the rows as they came,
// without conversion. Integers are big-endian two's complement, NULL is nil.
// Values are valid until each returns.
type rawReader interface {
	ReadRaw(ctx context.Context, conn any, query string, args []any, each func(values [][]byte) error) error
}

// creator is an optional ability of a pool's driver: it creates the empty
// database when there is none, for engines whose databases are files.
type creator interface {
	CreateDatabase() error
}

func newDatabase(pool *sql.DB, engine string) (*database, error) {
	d, err := dialect.For(engine)
	if err != nil {
		return nil, &shardway.ArgumentError{Argument: "engine", Value: engine, Reason: "has no SQL store: expected postgres, mysql, sqlserver or sqlite"}
	}
	b := &database{pool: pool, d: d, page: pageRows, drains: make(chan struct{}, maxDrains)}
	if d.SingleWriter {
		b.writer = make(chan struct{}, 1)
	}
	b.raw, _ = pool.Driver().(rawReader)
	b.file, _ = pool.Driver().(creator)
	return b, nil
}

// create makes the database itself exist, where that is ours to do.
func (b *database) create() error {
	if b.file == nil {
		return nil
	}
	if err := b.file.CreateDatabase(); err != nil {
		return &fault{class: dialect.Unavailable, err: err}
	}
	return nil
}

// write runs fn in a transaction that is committed when fn returns nil, and
// runs the whole again after a transient fault.
func (b *database) write(ctx context.Context, fn func(t *transaction) error) error {
	if b.writer != nil {
		select {
		case b.writer <- struct{}{}:
			defer func() { <-b.writer }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return b.again(ctx, func() error {
		return b.session(ctx, func(t *transaction) error {
			if err := t.begin(ctx, dialect.Write); err != nil {
				return err
			}
			if err := fn(t); err != nil {
				return err
			}
			return t.commit(ctx)
		})
	})
}

// read runs fn on one consistent state, and runs it again after a transient fault.
func (b *database) read(ctx context.Context, fn func(t *transaction) error) error {
	return b.again(ctx, func() error {
		return b.session(ctx, func(t *transaction) error {
			if err := t.begin(ctx, dialect.Read); err != nil {
				return err
			}
			return fn(t)
		})
	})
}

// glance runs fn on a session without a transaction: for a single SELECT of
// one table, or of several where the engine gives it one state.
func (b *database) glance(ctx context.Context, fn func(t *transaction) error) error {
	return b.again(ctx, func() error { return b.session(ctx, fn) })
}

// again runs one attempt until it succeeds, fails for good, or has been tried
// often enough.
func (b *database) again(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil || !worthAnother(err, n) {
			return err
		}
		pause := min(maxPause, time.Millisecond<<min(n, 10))
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// session takes one connection for the time of fn and leaves no transaction
// behind on it.
func (b *database) session(ctx context.Context, fn func(t *transaction) error) error {
	conn, err := b.pool.Conn(ctx)
	if err != nil {
		return b.connectFault(ctx, err)
	}
	t := &transaction{b: b, conn: conn}
	defer t.end(ctx)
	return fn(t)
}

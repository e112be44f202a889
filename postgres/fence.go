package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// isolation are the levels of database/sql in PostgreSQL's words. Snapshot is
// what PostgreSQL calls repeatable read.
var isolation = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault:         "",
	sql.LevelReadUncommitted: pgx.ReadUncommitted,
	sql.LevelReadCommitted:   pgx.ReadCommitted,
	sql.LevelRepeatableRead:  pgx.RepeatableRead,
	sql.LevelSnapshot:        pgx.RepeatableRead,
	sql.LevelSerializable:    pgx.Serializable,
}

// BeginAsking begins a transaction and asks it a question, both in one round
// trip. It returns the first column of the first row, a whole number, and
// whether there was a row. After an error the transaction is not nil if it is
// open and can be rolled back. Package sqlshard finds the method.
func (rawDriver) BeginAsking(ctx context.Context, conn any, opts driver.TxOptions, question string, args []any) (driver.Tx, int64, bool, error) {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return nil, 0, false, fmt.Errorf("beginning a transaction: connection is a %T, not pgx's", conn)
	}
	level, ok := isolation[sql.IsolationLevel(opts.Isolation)]
	if !ok {
		return nil, 0, false, fmt.Errorf("beginning a transaction: isolation level %v is unknown", sql.IsolationLevel(opts.Isolation))
	}
	if c.Conn().IsClosed() {
		return nil, 0, false, driver.ErrBadConn
	}
	options := pgx.TxOptions{IsoLevel: level}
	if opts.ReadOnly {
		options.AccessMode = pgx.ReadOnly
	}
	var b pgx.Batch
	b.BeginTx(options)
	var answer int64
	found := false
	b.Queue(question, args...).Query(func(rows pgx.Rows) (err error) {
		for rows.Next() {
			if !found {
				answer, err = firstNumber(rows)
			}
			found = true
		}
		return errors.Join(err, rows.Err())
	})
	results := c.Conn().SendBatch(ctx, &b)
	err := results.Close()
	tx := results.Tx()
	if err != nil && c.Conn().PgConn().TxStatus() == 'I' || c.Conn().IsClosed() {
		return nil, 0, false, err // nothing is open
	}
	return &asked{ctx: ctx, conn: c.Conn(), tx: tx}, answer, found, err
}

// firstNumber reads the first column of a row.
func firstNumber(rows pgx.Rows) (int64, error) {
	values, err := rows.Values()
	if err != nil {
		return 0, err
	}
	switch v := values[0].(type) {
	case int16:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case int64:
		return v, nil
	}
	return 0, fmt.Errorf("reading a number from a %T", values[0])
}

// BackendPID returns the number of the server's process that serves a
// connection, as it was told when the connection was made. A pooler between
// tells a number of its own.
func (rawDriver) BackendPID(conn any) (int64, bool) {
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		return 0, false
	}
	return int64(c.Conn().PgConn().PID()), true
}

// asked is a transaction begun by BeginAsking.
type asked struct {
	ctx  context.Context //nolint:containedctx // of the transaction
	conn *pgx.Conn
	tx   pgx.Tx
}

// errEnded is a transaction that a statement has ended.
var errEnded = errors.New("the transaction was ended by a statement")

// rollbackLimit bounds the wait for the acknowledgement of a rollback.
const rollbackLimit = 5 * time.Second

// Commit commits.
func (t *asked) Commit() error {
	if t.conn.PgConn().TxStatus() == 'I' {
		return errEnded
	}
	return t.tx.Commit(t.ctx)
}

// Rollback takes the transaction back, also after the end of its context.
func (t *asked) Rollback() error {
	if t.Ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackLimit)
	defer cancel()
	return t.tx.Rollback(ctx)
}

// Ended reports that the session lives and no transaction is open on it.
func (t *asked) Ended() bool { return !t.conn.IsClosed() && t.conn.PgConn().TxStatus() == 'I' }

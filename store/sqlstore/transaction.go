package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// transaction is one session, inside a transaction or not.
type transaction struct {
	b    *database
	conn *sql.Conn
	open bool // begun and neither committed nor taken back
}

func (t *transaction) begin(ctx context.Context, m dialect.Mode) error {
	t.open = true
	for _, statement := range t.b.d.Begin(m) {
		if _, err := t.conn.ExecContext(ctx, statement); err != nil {
			return t.b.fault(ctx, err)
		}
	}
	return nil
}

// commit commits. A cancelled context stops it before, never in the middle.
func (t *transaction) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer cancel()
	_, err := t.conn.ExecContext(limited, t.b.d.Commit())
	if err == nil {
		t.open = false
		return nil
	}
	if t.b.d.Classify(err) == dialect.Transient {
		return &fault{class: dialect.Transient, err: err}
	}
	return fmt.Errorf("committing: %w: %w", store.ErrUnknownOutcome, err)
}

// end takes back what is open and gives the connection back; a connection that
// cannot be cleaned is closed.
func (t *transaction) end(ctx context.Context) {
	if t.open {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		if _, err := t.conn.ExecContext(limited, t.b.d.Rollback()); err != nil {
			t.drop()
		}
	}
	_ = t.conn.Close()
}

// drop keeps the connection from being used again.
func (t *transaction) drop() { _ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) }

// lock takes the named locks of engines that need them.
func (t *transaction) lock(ctx context.Context, root, rootMode, leaf, leafMode string) error {
	text := t.b.d.Lock()
	if text == "" {
		return nil
	}
	_, err := t.conn.ExecContext(ctx, text, root, rootMode, leaf, leafMode)
	return t.b.fault(ctx, err)
}

// exec runs a statement and returns how many rows it changed.
func (t *transaction) exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := t.conn.ExecContext(ctx, t.b.d.SQL(text), args...)
	if err != nil {
		return 0, t.b.fault(ctx, err)
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return 0, t.b.fault(ctx, err)
	}
	return changed, nil
}

// query calls scan for every row.
func (t *transaction) query(ctx context.Context, text string, args []any, scan func(rows *sql.Rows) error) error {
	rows, err := t.conn.QueryContext(ctx, t.b.d.SQL(text), args...)
	if err != nil {
		return t.b.fault(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return t.b.fault(ctx, rows.Err())
}

// one reads the first row into dest and reports whether there was one.
func (t *transaction) one(ctx context.Context, text string, args []any, dest ...any) (found bool, err error) {
	err = t.query(ctx, text, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	})
	return found, err
}

// insert adds many rows.
func (t *transaction) insert(ctx context.Context, table string, columns []dialect.Column) error {
	for _, s := range t.b.d.Insert(table, columns) {
		if _, err := t.conn.ExecContext(ctx, s.Text, s.Args...); err != nil {
			return t.b.fault(ctx, err)
		}
	}
	return nil
}

// execAmong runs a statement whose last condition is that a column is one of
// many numbers, and returns how many rows it changed.
func (t *transaction) execAmong(ctx context.Context, text string, args []any, column string, numbers []int64) (int64, error) {
	var changed int64
	for len(numbers) > 0 {
		n := min(len(numbers), dialect.MaxAmong)
		condition, more := t.b.d.Among(column, numbers[:n])
		c, err := t.exec(ctx, text+condition, append(args[:len(args):len(args)], more...)...)
		if err != nil {
			return 0, err
		}
		changed += c
		numbers = numbers[n:]
	}
	return changed, nil
}

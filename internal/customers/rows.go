package customers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/shardway/shardway"
)

// Statements are written once, with "?" for a parameter; the dialect gives them
// the engine's own placeholders.
const (
	createCustomers = `CREATE TABLE ` + customerTable + ` (customer_id bigint NOT NULL PRIMARY KEY, name varchar(100) NOT NULL, orders bigint NOT NULL, spent bigint NOT NULL)`
	createOrders    = `CREATE TABLE ` + orderTable + ` (customer_id bigint NOT NULL, n bigint NOT NULL, amount bigint NOT NULL, PRIMARY KEY (customer_id, n))`

	// One statement, so that it sees one state of both tables: that of its
	// beginning, in engines that read snapshots.
	selectCustomers = `SELECT c.customer_id, c.name, c.orders, c.spent, o.n, o.amount
		FROM ` + customerTable + ` c LEFT JOIN ` + orderTable + ` o ON o.customer_id = c.customer_id
		WHERE c.customer_id >= ? AND c.customer_id < ? ORDER BY c.customer_id, o.n`
	countOrderRows = `SELECT count(*) FROM ` + orderTable + ` WHERE customer_id >= ? AND customer_id < ?`

	raiseCustomer = `UPDATE ` + customerTable + ` SET orders = orders + 1, spent = spent + ? WHERE customer_id = ?`
	addOrder      = `INSERT INTO ` + orderTable + ` (customer_id, n, amount) SELECT customer_id, orders, ? FROM ` + customerTable + ` WHERE customer_id = ?`

	deleteCustomer = `DELETE FROM ` + customerTable + ` WHERE customer_id = ?`
	deleteOrders   = `DELETE FROM ` + orderTable + ` WHERE customer_id = ?`
)

// querier is a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// span is the customers with low <= id < high.
type span struct{ low, high int64 }

// everybody is all customers that a shard can hold.
var everybody = span{math.MinInt64, math.MaxInt64}

func one(id int64) span { return span{id, id + 1} }

func (sp span) contains(id int64) bool { return sp.low <= id && id < sp.high }

// spanOf reads the range of a mapping.
func spanOf(r shardway.Range) span {
	number := func(k shardway.Key) int64 { return int64(k.Uint64() ^ 1<<63) }
	if r.Open() {
		return span{number(r.Low), math.MaxInt64}
	}
	return span{number(r.Low), number(r.High)}
}

// read returns the customers of a span, ordered by id, and checks that each of
// them agrees with its orders.
func (s *story) read(ctx context.Context, q querier, sp span) ([]customer, error) {
	rows, err := q.QueryContext(ctx, s.dialect.SQL(selectCustomers), sp.low, sp.high)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []customer
	var orders, spent int64 // as the last customer's own row has them
	complete := func() error {
		if len(all) == 0 {
			return nil
		}
		c := all[len(all)-1]
		if int64(len(c.orders)) != orders || c.spent() != spent {
			return fmt.Errorf("customer %d has %d orders of %s, but its own row says %d of %s", c.id, len(c.orders), euros(c.spent()), orders, euros(spent))
		}
		return nil
	}
	for rows.Next() {
		var c customer
		var o, sum int64
		var n, cents sql.NullInt64
		if err := rows.Scan(&c.id, &c.name, &o, &sum, &n, &cents); err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].id != c.id {
			if err := complete(); err != nil {
				return nil, err
			}
			all, orders, spent = append(all, c), o, sum
		}
		last := &all[len(all)-1]
		if !n.Valid {
			continue
		}
		last.orders = append(last.orders, cents.Int64)
		if n.Int64 != int64(len(last.orders)) {
			return nil, fmt.Errorf("customer %d lacks order %d", c.id, len(last.orders))
		}
	}
	return all, errors.Join(rows.Err(), complete())
}

// readWhole is read for a span that nobody changes meanwhile: orders without a
// customer are noticed too.
func (s *story) readWhole(ctx context.Context, q querier, sp span) ([]customer, error) {
	all, err := s.read(ctx, q, sp)
	if err != nil {
		return nil, err
	}
	var orders int
	if err := q.QueryRowContext(ctx, s.dialect.SQL(countOrderRows), sp.low, sp.high).Scan(&orders); err != nil {
		return nil, err
	}
	if n := countOrders(all); n != orders {
		return nil, fmt.Errorf("%d orders belong to no customer", orders-n)
	}
	return all, nil
}

// write adds customers with their orders.
func (s *story) write(ctx context.Context, q querier, customers []customer) error {
	var rows, orders [][]any
	for _, c := range customers {
		rows = append(rows, []any{c.id, c.name, len(c.orders), c.spent()})
		for i, cents := range c.orders {
			orders = append(orders, []any{c.id, i + 1, cents})
		}
	}
	if err := s.insert(ctx, q, customerTable+" (customer_id, name, orders, spent)", rows); err != nil {
		return err
	}
	return s.insert(ctx, q, orderTable+" (customer_id, n, amount)", orders)
}

func (s *story) insert(ctx context.Context, q querier, into string, rows [][]any) error {
	const most = 200 // rows of one statement
	for len(rows) > 0 {
		n := min(most, len(rows))
		var args []any
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		row := "(?" + strings.Repeat(", ?", len(rows[0])-1) + ")"
		text := "INSERT INTO " + into + " VALUES " + row + strings.Repeat(", "+row, n-1)
		if _, err := q.ExecContext(ctx, s.dialect.SQL(text), args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// remove deletes customers with their orders; all of them must be there. It
// goes one by one: on MariaDB a range would lock its neighbours as well.
func (s *story) remove(ctx context.Context, tx *sql.Tx, customers []customer) error {
	for _, d := range []struct {
		text string
		want func(customer) int // rows
	}{
		{deleteOrders, func(c customer) int { return len(c.orders) }},
		{deleteCustomer, func(customer) int { return 1 }},
	} {
		st, err := tx.PrepareContext(ctx, s.dialect.SQL(d.text))
		if err != nil {
			return err
		}
		defer st.Close()
		for _, c := range customers {
			n, err := affected(st.ExecContext(ctx, c.id))
			if err != nil {
				return err
			}
			if want := d.want(c); n != int64(want) {
				return fmt.Errorf("deleting customer %d: %d rows are gone, want %d", c.id, n, want)
			}
		}
	}
	return nil
}

// order adds an order of a customer: what the application does all day. It has
// taken place when nil is returned.
func (s *story) order(ctx context.Context, conn beginner, id, cents int64) error {
	return inTx(ctx, conn, func(tx *sql.Tx) error { return s.addOrder(ctx, tx, id, cents) })
}

// addOrder is the body of order.
func (s *story) addOrder(ctx context.Context, tx *sql.Tx, id, cents int64) error {
	for _, text := range []string{raiseCustomer, addOrder} {
		n, err := affected(tx.ExecContext(ctx, s.dialect.SQL(text), cents, id))
		if err != nil {
			return fmt.Errorf("adding an order of customer %d: %w", id, err)
		}
		if n != 1 {
			return fmt.Errorf("adding an order of customer %d: the customer is not here", id)
		}
	}
	return nil
}

func affected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// beginner is what can begin a transaction.
type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// inTx runs fn in a transaction, which is committed when fn returns nil.
func inTx(ctx context.Context, conn beginner, fn func(tx *sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

package probetest

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// Answer is one result set of a Fake, or an error instead of any.
type Answer struct {
	Columns []string
	Rows    [][]driver.Value
	Err     error
}

// Fake is a connector to a server that is not there, for products that cannot
// be started in a test. It answers each query at once.
type Fake func(query string) []Answer

// Connect returns a connection.
func (f Fake) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }

// Driver returns nothing: no test asks.
func (f Fake) Driver() driver.Driver { return nil }

type fakeConn struct{ fake Fake }

var errFake = errors.New("a fake server only answers queries")

// Prepare is refused.
func (fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errFake }

// Begin is refused.
func (fakeConn) Begin() (driver.Tx, error) { return nil, errFake }

// Close does nothing.
func (fakeConn) Close() error { return nil }

// QueryContext asks the fake.
func (c fakeConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	answers := c.fake(query)
	if answers[0].Err != nil {
		return nil, answers[0].Err
	}
	return &fakeRows{answers: answers}, nil
}

type fakeRows struct {
	answers []Answer // the first is read now
	next    int
}

// Columns returns those of the result set that is read now.
func (r *fakeRows) Columns() []string { return r.answers[0].Columns }

// Close does nothing.
func (r *fakeRows) Close() error { return nil }

// Next copies the next row.
func (r *fakeRows) Next(into []driver.Value) error {
	if r.next == len(r.answers[0].Rows) {
		return io.EOF
	}
	copy(into, r.answers[0].Rows[r.next])
	r.next++
	return nil
}

// HasNextResultSet reports whether another result set follows.
func (r *fakeRows) HasNextResultSet() bool { return len(r.answers) > 1 }

// NextResultSet goes on to the next result set.
func (r *fakeRows) NextResultSet() error {
	if len(r.answers) < 2 {
		return io.EOF
	}
	r.answers, r.next = r.answers[1:], 0
	return r.answers[0].Err
}

package probe_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

// network counts connections. Their one query is answered by fail.
type network struct {
	opened, closed atomic.Int64
	slowClose      time.Duration
	fail           func() error
}

func (n *network) connect(string) (driver.Connector, error) { return n, nil }

func (n *network) Connect(context.Context) (driver.Conn, error) {
	n.opened.Add(1)
	return &line{n: n}, nil
}

func (*network) Driver() driver.Driver { return nil }

type line struct{ n *network }

func (*line) Prepare(string) (driver.Stmt, error) { return nil, io.ErrUnexpectedEOF }
func (*line) Begin() (driver.Tx, error)           { return nil, io.ErrUnexpectedEOF }
func (l *line) Close() error {
	time.Sleep(l.n.slowClose) // fake time
	l.n.closed.Add(1)
	return nil
}

func (l *line) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if l.n.fail != nil {
		if err := l.n.fail(); err != nil {
			return nil, err
		}
	}
	return &oneRow{}, nil
}

type oneRow struct{ read bool }

func (*oneRow) Columns() []string { return []string{"n"} }
func (*oneRow) Close() error      { return nil }
func (r *oneRow) Next(into []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, into[0] = true, int64(1)
	return nil
}

func ask(ctx context.Context, p *probe.Sessions, address string, asked *int) error {
	return p.Ask(ctx, topology.Server{Address: address}, func(s *probe.Session) error {
		*asked++
		var n int
		_, err := s.Row(ctx, "SELECT n", &n)
		return err
	})
}

// MAP-06: no connection lives for long, so names are resolved anew; and that of
// a server that has left is closed, without holding up anybody.
func TestSessionsAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &network{slowClose: time.Hour}
		p := probe.NewSessions("postgres", n.connect)
		asked := 0
		check := func(address string, wantAsked int, wantOpened int64) {
			t.Helper()
			asked = 0
			began := time.Now()
			if err := ask(t.Context(), p, address, &asked); err != nil {
				t.Fatal(err)
			}
			if asked != wantAsked || n.opened.Load() != wantOpened {
				t.Errorf("asked %d times with %d connections opened so far, want %d and %d", asked, n.opened.Load(), wantAsked, wantOpened)
			}
			if held := time.Since(began); held > 0 {
				t.Errorf("a closing connection held the probe up for %v", held)
			}
		}
		check("stays", 2, 1) // the first question on a new connection does not count
		check("leaves", 2, 2)
		check("stays", 1, 2)
		time.Sleep(2 * time.Minute) // fake time
		check("stays", 2, 3)
		time.Sleep(time.Hour) // fake time
		synctest.Wait()
		if closed := n.closed.Load(); closed != 2 {
			t.Errorf("%d connections were closed, want both old ones", closed)
		}
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if closed := n.closed.Load(); closed != 3 {
			t.Errorf("Close returned with %d of 3 connections closed", closed)
		}
	})
}

// A broken connection is replaced once, a server's own error is not repeated,
// and no connection is kept after an error.
func TestSessionsErrors(t *testing.T) {
	t.Parallel()
	refused := &stateError{}
	for name, c := range map[string]struct {
		err       error
		wantAsked int
	}{
		"lost":    {io.ErrUnexpectedEOF, 2}, // on the old and on a new connection
		"refused": {refused, 1},
	} {
		n := &network{}
		p := probe.NewSessions("postgres", n.connect)
		asked := 0
		if err := ask(t.Context(), p, "db", &asked); err != nil {
			t.Fatal(err)
		}
		asked, n.fail = 0, func() error { return c.err }
		if err := ask(t.Context(), p, "db", &asked); !errors.Is(err, c.err) || asked != c.wantAsked {
			t.Errorf("%s: asked %d times with error %v, want %d times", name, asked, err, c.wantAsked)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n.opened.Load() != n.closed.Load() {
			t.Errorf("%s: %d connections opened, %d closed", name, n.opened.Load(), n.closed.Load())
		}
		if err := ask(t.Context(), p, "db", &asked); !errors.Is(err, probe.ErrClosed) {
			t.Errorf("%s: error after Close is %v", name, err)
		}
	}
}

type stateError struct{}

func (*stateError) Error() string    { return "permission denied" }
func (*stateError) SQLState() string { return "42501" }

package sqlshard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// session is one connection of a driver. It stands between database/sql and
// the driver, so that it sees every statement, whatever handle it comes
// through, and decides whether the session can be used again.
//
// It belongs to whoever holds it: the Conn it was checked out for, whose calls
// arrive through database/sql with the connection's lock held, or its pool.
type session struct {
	driver.Conn // the driver's own
	pool        *pool
	sc          *sql.Conn   // by which database/sql knows it
	generation  uint64      // of the pool when the session was opened
	end         *time.Timer // of the session's life; nil when it has no end
	expired     atomic.Bool
	idleSince   int  // tick of the pool's clock; guarded by host.mu
	reused      bool // was used before
	dirty       bool // may hold state of its user: not to be used again
	inTx        bool
	inReadOnly  bool   // in a transaction that its user wants to be read-only
	fence       *fence // of the transaction it is in, or nil
	tag         int64  // the mapping by whose tag the server knows it; 0 none
	held        int64  // the mapping that it holds; 0 none
	isDirect    bool   // is known to be one of the server, not of a pooler
	seat        seat   // while a Conn has it
	closed      bool
	open        map[*statement]bool    // prepared by its user; guarded by the connection's lock
	kept        map[string]driver.Stmt // queries of our own, prepared where the driver needs it
}

// newSession takes the pool's generation from before the driver connected.
func newSession(p *pool, inner driver.Conn, generation uint64) *session {
	s := &session{Conn: inner, pool: p, generation: generation}
	if life := p.cfg.MaxLifetime; life > 0 {
		// A timer, because reading the clock at every checkout costs more.
		s.end = time.AfterFunc(life-rand.N(life/5+1), func() { s.expired.Store(true) })
	}
	return s
}

// current reports whether the session is of the present generation of its pool
// and not too old.
func (s *session) current() bool {
	return s.generation == s.pool.generation.Load() && !s.expired.Load()
}

// ResetSession readies an idle session for its next user, or says by an error
// that it is of no more use.
func (s *session) ResetSession(ctx context.Context) error {
	if ctx == passing {
		return nil
	}
	if s.closed || !s.current() {
		return driver.ErrBadConn
	}
	s.reused = true
	if resetsTag[s.pool.engine.Name()] {
		s.tag = 0
	}
	if r, ok := s.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid reports, when a session is given back, whether another user may have it.
func (s *session) IsValid() bool {
	if s.dirty || s.inTx || s.closed || !s.current() {
		return false
	}
	v, ok := s.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

// Close ends the session. It is for database/sql; others shut it.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closeStatements()
	s.closed = true
	if s.end != nil {
		s.end.Stop()
	}
	err := s.Conn.Close()
	s.pool.closed.Add(1)
	return err
}

// shut closes a session that nobody uses.
func (s *session) shut() {
	_ = s.sc.Raw(func(any) error { return driver.ErrBadConn })
}

// statement notes what a statement may do to the session, and refuses what
// would end a transaction of InTx.
func (s *session) statement(query string) error {
	if err := s.fence.allows(s.pool.engine.Name(), query); err != nil {
		return err
	}
	s.dirty = s.dirty || changesSession(query, s.inTx)
	return nil
}

// ExecContext runs a statement.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := s.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	began, err := s.sending()
	if err == nil {
		err = s.statement(query)
	}
	if err != nil {
		return nil, err
	}
	result, err := e.ExecContext(ctx, query, args)
	s.failed(ctx, began, err)
	return result, err
}

// QueryContext runs a query.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := s.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	began, err := s.sending()
	if err == nil {
		err = s.statement(query)
	}
	if err != nil {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, query, args)
	return s.watchRows(ctx, began, rows, err)
}

// PrepareContext prepares a statement.
func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	began, err := s.sending()
	if err == nil {
		err = s.statement(query)
	}
	if err != nil {
		return nil, err
	}
	inner, err := s.prepare(ctx, query)
	if err != nil {
		s.failed(ctx, began, err)
		return nil, err
	}
	st := &statement{Stmt: inner, session: s}
	if s.open == nil {
		s.open = map[*statement]bool{}
	}
	s.open[st] = true
	return st, nil
}

// closeStatements closes what the session's user has prepared and not closed.
// database/sql would let the user do so after the session is closed, which
// drivers do not survive, or has another user.
func (s *session) closeStatements() {
	for st := range s.open {
		_ = st.Close() // the statement is given up, whatever the server says
	}
}

func (s *session) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := s.Conn.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	return s.Conn.Prepare(query)
}

// keepsIsolation are the engines in which the isolation level of a transaction
// stays with the session, whatever the driver resets.
var keepsIsolation = map[string]bool{"sqlserver": true}

// BeginTx begins a transaction.
func (s *session) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if f := fenceOf(ctx); f != nil {
		return s.beginFenced(ctx, f, opts)
	}
	b, ok := s.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("the driver cannot begin transactions with options")
	}
	began, err := s.sending()
	if err != nil {
		return nil, err
	}
	if opts.Isolation != 0 && keepsIsolation[s.pool.engine.Name()] {
		s.dirty = true
	}
	tx, err := b.BeginTx(ctx, opts)
	if err != nil {
		s.failed(ctx, began, err)
		s.dirty = true // what was set for the transaction may stand
		return nil, err
	}
	s.inTx, s.inReadOnly = true, opts.ReadOnly
	return &transaction{Tx: tx, session: s, ctx: ctx, scope: scopeOf(ctx)}, nil
}

// Ping asks whether the session lives.
func (s *session) Ping(ctx context.Context) error {
	if p, ok := s.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

// CheckNamedValue lets the driver convert arguments.
func (s *session) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := s.Conn.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ask runs a query of our own that takes and returns whole numbers, in one
// round trip. It reports whether there was a row.
func (s *session) ask(ctx context.Context, query string, args []driver.NamedValue, answer []int64) (found bool, err error) {
	rows, err := s.askRows(ctx, query, args)
	if err != nil {
		return false, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	switch err = rows.Next(values); {
	case err == nil:
		found = true
		for i := range answer {
			if answer[i], err = number(values[i]); err != nil {
				break
			}
		}
	case isEnd(err):
		err = nil
	}
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	return found, err
}

func (s *session) askRows(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	kept := s.kept[query]
	if q, ok := s.Conn.(driver.QueryerContext); ok && kept == nil {
		rows, err := q.QueryContext(ctx, query, args)
		if !errors.Is(err, driver.ErrSkip) {
			return rows, err
		}
	}
	// The driver does not send arguments without a prepared statement: keep one.
	if kept == nil {
		var err error
		if kept, err = s.prepare(ctx, query); err != nil {
			return nil, err
		}
		if s.kept == nil {
			s.kept = map[string]driver.Stmt{}
		}
		s.kept[query] = kept
	}
	return queryStatement(ctx, kept, args)
}

// passing is the context of taking a session that was just given back from the
// pool of database/sql, in order to keep it in ours. It opens none.
var passing = context.WithValue(context.Background(), passingKey{}, true)

type passingKey struct{}

// errNonePassing is a session that was closed, or that another caller got.
var errNonePassing = errors.New("no session was given back")

// connector opens the sessions of a pool.
type connector struct {
	inner driver.Connector
	pool  *pool
}

// Connect opens a session.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if ctx == passing {
		return nil, errNonePassing
	}
	generation := c.pool.generation.Load()
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		c.pool.lastFailure.Store(&failure{err: err, at: time.Now()})
		return nil, &connectError{err}
	}
	c.pool.opened.Add(1)
	return newSession(c.pool, inner, generation), nil
}

// Driver returns the driver below.
func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

// connectError is an error of connecting, as against one of waiting.
type connectError struct{ err error }

// Error returns the cause's text.
func (e *connectError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *connectError) Unwrap() error { return e.err }

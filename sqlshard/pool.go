package sqlshard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
)

// pool holds the sessions to one database on one server. database/sql opens
// them and guards them while they are in use; how many there may be, and those
// that are idle, are the host's business.
type pool struct {
	cfg                   *Config
	engine                engine
	address               string
	database              string
	db                    *sql.DB
	host                  *host
	ask                   questions  // about a mapping
	shard                 string     // about the shard
	asker                 beginAsker // nil when the driver cannot
	takeHold, releaseHold string     // empty: the engine has no such locks

	// The fields below are guarded by host.mu.
	books books
	ticks int // of the clock that closes idle sessions
	clock *time.Timer
	runs  bool // the clock does

	// generation is raised to have every session opened before closed at its
	// next checkout or return: they are suspect, or their server has changed.
	generation atomic.Uint64

	opened, closed, failedChecks, waits atomic.Uint64
	waited                              atomic.Int64 // nanoseconds
	lastFailure                         atomic.Pointer[failure]
	version                             atomic.Pointer[string] // of MySQL or MariaDB; nil until it was asked for
}

// failure is the last time that a pool could not open a session.
type failure struct {
	err error
	at  time.Time
}

// newPool does no I/O.
func newPool(cfg *Config, e engine, h *host, address, database string) (*pool, error) {
	p := &pool{
		cfg: cfg, engine: e, address: address, database: database, host: h,
		ask: questionsOf(e.dialect), shard: e.dialect.ValidateShard(),
		takeHold: e.dialect.LockHold(), releaseHold: e.dialect.ReleaseHold(),
	}
	inner, err := e.Connector(address, database, cfg.Credentials)
	if err != nil {
		return nil, err
	}
	if r, ok := inner.(interface{ ShowReadOnly() driver.Connector }); ok {
		inner = r.ShowReadOnly() // the sessions look at errors themselves
	}
	p.asker, _ = inner.Driver().(beginAsker)
	p.db = sql.OpenDB(&connector{inner: inner, pool: p})
	p.db.SetMaxIdleConns(maxPassing)
	h.mu.Lock()
	h.pools = append(h.pools, p)
	h.mu.Unlock()
	return p, nil
}

// maxPassing bounds the sessions that lie in the pool of database/sql, where
// they only pass through; it is no limit in practice.
const maxPassing = 1 << 20

// checkout takes a session, within ctx, and opens one within opening when there
// is none. Its errors are replicaset.ErrRetired, one that wraps ErrPoolExhausted, or one of
// connecting.
func (p *pool) checkout(ctx, opening context.Context) (*session, error) {
	g, err := p.host.acquire(ctx, p)
	switch {
	case err != nil:
		return nil, p.exhausted(err)
	case g.refused:
		return nil, replicaset.ErrRetired
	case g.victim != nil:
		g.victim.shut()
	}
	for s := g.session; s != nil; s = p.host.another(p) {
		if s.ResetSession(opening) == nil {
			return s, nil
		}
		s.shut()
	}
	s, err := p.dial(opening)
	if err != nil {
		p.host.release(p, nil)
	}
	return s, err
}

// dial opens a session.
func (p *pool) dial(ctx context.Context) (*session, error) {
	sc, err := p.db.Conn(ctx)
	if err != nil {
		var failed *connectError
		if !errors.As(err, &failed) && ctx.Err() == nil {
			return nil, replicaset.ErrRetired // database/sql says that it is closed
		}
		return nil, err
	}
	return own(sc)
}

// own returns the session of a connection.
func own(sc *sql.Conn) (s *session, err error) {
	err = sc.Raw(func(dc any) error {
		s = dc.(*session)
		s.sc = sc
		s.closeStatements() // of its last user
		return nil
	})
	return s, err
}

// exhausted is the error of a wait for a free session.
func (p *pool) exhausted(cause error) error {
	text := ""
	if f := p.lastFailure.Load(); f != nil {
		text = fmt.Sprintf(" (%s ago a session could not be opened: %v)", time.Since(f.at).Round(time.Millisecond), f.err)
	}
	return fmt.Errorf("waiting for a free session%s: %w: %w", text, shardway.ErrPoolExhausted, cause)
}

// checkin gives a session back. handles says that its user was given rows,
// statements or transactions of database/sql, which might be used still: then
// the session changes its connection, so that they lead nowhere.
func (p *pool) checkin(s *session, handles bool) {
	sc := s.sc
	if handles {
		_ = sc.Close() // waits for what is running; closed already when the session broke
		s = nil
		if sc, err := p.db.Conn(passing); err == nil {
			s, _ = own(sc)
		}
	} else if !s.IsValid() {
		s.shut()
		s = nil
	}
	if s != nil && s.held != 0 && !s.letGo() {
		s.shut()
		s = nil
	}
	p.host.release(p, s)
}

// keepTime lets the clock run. It ticks every half MaxIdleTime, and a session
// that has seen two ticks has been idle for long. host.mu is held.
func (p *pool) keepTime() {
	if p.runs || p.cfg.MaxIdleTime <= 0 {
		return
	}
	p.runs = true
	if p.clock == nil {
		p.clock = time.AfterFunc(p.cfg.MaxIdleTime/2, p.tick)
		return
	}
	p.clock.Reset(p.cfg.MaxIdleTime / 2)
}

func (p *pool) tick() {
	p.host.mu.Lock()
	p.runs = false
	p.ticks++
	now := p.ticks
	p.host.mu.Unlock()
	p.host.closeIdle(p, func(s *session) bool { return now-s.idleSince >= 2 })
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if len(p.books.idle) > 0 {
		p.keepTime()
	}
}

// suspect has all sessions opened so far closed at their next checkout.
func (p *pool) suspect() { p.generation.Add(1) }

// dropSuspect closes the idle sessions among them.
func (p *pool) dropSuspect() { p.host.closeIdle(p, func(s *session) bool { return !s.current() }) }

// retire closes idle sessions, and the others when they come back. It waits
// for nobody.
func (p *pool) retire() {
	p.host.retire(p)
	_ = p.db.Close()
}

// waitClock measures one wait.
type waitClock struct {
	p     *pool
	start time.Time
}

func (p *pool) startWait() waitClock {
	p.waits.Add(1)
	return waitClock{p, time.Now()}
}

func (w waitClock) end() { w.p.waited.Add(int64(time.Since(w.start))) }

// classify tells what a driver's error means; see [dialect.Classify].
func (p *pool) classify(err error) dialect.Class {
	if errors.Is(err, driver.ErrBadConn) {
		return dialect.Lost
	}
	return p.engine.dialect.Classify(err)
}

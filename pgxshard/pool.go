package pgxshard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
)

// pool holds the sessions to one database on one server. pgxpool keeps them;
// how many may be in use is bounded here, so that a wait for a free session is
// told from one for a server.
type pool struct {
	cfg      *Config
	address  string
	database string
	px       *pgxpool.Pool
	host     *host
	explain  func(error) error // gives an error of connecting its text
	slots    chan struct{}     // one for each session in use; nil without a bound
	claims   int               // of idle sessions; guarded by host.mu

	mode         pgx.QueryExecMode
	statements   int // capacity of the cache of prepared statements of a session
	descriptions int // that of the cache of descriptions
	tracer       pgx.QueryTracer

	retired                    atomic.Bool
	opened, closed             atomic.Uint64
	failedChecks, waits, inUse atomic.Int64
	waited                     atomic.Int64 // nanoseconds
	lastFailure                atomic.Pointer[failure]
}

// failure is the last time that a pool could not open a session.
type failure struct {
	err error
	at  time.Time
}

// newPool does no I/O.
func newPool(cfg *Config, h *host, address, database string) (*pool, error) {
	p := &pool{cfg: cfg, address: address, database: database, host: h}
	config, explain, err := cfg.Engine.PoolConfig(address, database, cfg.Credentials)
	if err != nil {
		return nil, err
	}
	p.explain = explain
	if err := p.configure(config); err != nil {
		return nil, err
	}
	if p.px, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, err
	}
	h.add(p)
	return p, nil
}

// configure settles what the pool needs, after the caller had a say.
func (p *pool) configure(config *pgxpool.Config) error {
	config.MaxConnLifetime, config.MaxConnLifetimeJitter = 24*time.Minute, 6*time.Minute
	config.MaxConnIdleTime = 5 * time.Minute
	config.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool { return !silent(params.Conn) }
	if p.cfg.Pooler {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if p.cfg.Configure != nil {
		if err := p.cfg.Configure(config); err != nil {
			return fmt.Errorf("configuring a pool: %w", err)
		}
	}
	const spare, unbounded = 8, 1 << 20 // spare: for sessions that are being closed
	config.MaxConns = unbounded
	if p.cfg.MaxOpenPerShard > 0 {
		config.MaxConns = int32(p.cfg.MaxOpenPerShard + spare)
		p.slots = make(chan struct{}, p.cfg.MaxOpenPerShard)
	}
	config.MinConns, config.MinIdleConns = 0, 0
	p.count(config)
	c := config.ConnConfig
	p.mode, p.statements, p.descriptions = c.DefaultQueryExecMode, c.StatementCacheCapacity, c.DescriptionCacheCapacity
	p.tracer = c.Tracer
	return nil
}

// count has sessions counted when they open and when they close.
func (p *pool) count(config *pgxpool.Config) {
	after, before := config.AfterConnect, config.BeforeClose
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		p.opened.Add(1)
		p.host.count(1)
		return nil
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		p.closed.Add(1)
		p.host.count(-1)
		if before != nil {
			before(conn)
		}
	}
}

// checkout takes a session, within ctx, and opens one within opening when there
// is none. Its errors are replicaset.ErrRetired, one that wraps ErrPoolExhausted, or one of
// connecting.
func (p *pool) checkout(ctx, opening context.Context) (*pgxpool.Conn, error) {
	if err := p.enter(ctx); err != nil {
		return nil, p.exhausted(err)
	}
	claimed := p.host.enter(opening, p)
	conn, err := p.px.Acquire(opening)
	p.host.entered(p, claimed, err == nil)
	if err != nil {
		p.leave()
		if p.retired.Load() {
			return nil, replicaset.ErrRetired
		}
		err = p.explain(err)
		p.lastFailure.Store(&failure{err, time.Now()})
		return nil, err
	}
	return conn, nil
}

// checkin gives a session back. A dirty one is closed.
func (p *pool) checkin(conn *pgxpool.Conn, dirty bool) {
	if dirty {
		shut(conn)
	}
	conn.Release()
	p.host.left()
	p.leave()
}

// shut closes a session at once: whatever runs on it is taken back.
func shut(conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), shutLimit)
	defer cancel()
	_ = conn.Conn().Close(ctx)
}

const shutLimit = time.Second

// enter waits for the right to use a session.
func (p *pool) enter(ctx context.Context) error {
	if take(p.slots) {
		if take(p.host.permits) {
			p.inUse.Add(1)
			return nil
		}
		give(p.slots)
	}
	p.waits.Add(1)
	began := time.Now()
	defer func() { p.waited.Add(int64(time.Since(began))) }()
	if p.cfg.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.cfg.MaxWait, errLongWait)
		defer cancel()
	}
	if err := await(ctx, p.slots); err != nil {
		return err
	}
	if err := await(ctx, p.host.permits); err != nil {
		give(p.slots)
		return err
	}
	p.inUse.Add(1)
	return nil
}

// errLongWait is a wait that took as long as it may.
var errLongWait = errors.New("it took too long")

func (p *pool) leave() {
	p.inUse.Add(-1)
	give(p.host.permits)
	give(p.slots)
}

// take takes a place at once if there is one. A nil channel has no bound.
func take(places chan struct{}) bool {
	if places == nil {
		return true
	}
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func await(ctx context.Context, places chan struct{}) error {
	if places == nil {
		return nil
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func give(places chan struct{}) {
	if places != nil {
		<-places
	}
}

// exhausted is the error of a wait for a free session.
func (p *pool) exhausted(cause error) error {
	text := ""
	if f := p.lastFailure.Load(); f != nil {
		text = fmt.Sprintf(" (%s ago a session could not be opened: %v)", time.Since(f.at).Round(time.Millisecond), f.err)
	}
	return fmt.Errorf("waiting for a free session%s: %w: %w", text, shardway.ErrPoolExhausted, cause)
}

// suspect has all sessions opened so far closed, those in use when they are
// given back.
func (p *pool) suspect() { p.px.Reset() }

// retire closes idle sessions, and the others when they come back. It waits
// for nobody.
func (p *pool) retire() {
	p.retired.Store(true)
	p.host.remove(p)
	go p.px.Close()
}

// postgres tells what errors mean.
var postgres = func() *dialect.Dialect {
	d, err := dialect.For(engineName)
	if err != nil {
		panic(err) // it is there
	}
	return d
}()

// fromServer returns what a server said, or nil.
func fromServer(err error) *pgconn.PgError {
	var e *pgconn.PgError
	errors.As(err, &e)
	return e
}

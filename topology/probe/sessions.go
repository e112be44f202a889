package probe

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/topology"
)

// maxAge is how long a connection is used: after it, a host name is resolved
// anew, and the connection of a server that has left the set is closed.
const maxAge = time.Minute

// ErrClosed means that a prober was used after its Close.
var ErrClosed = errors.New("prober is closed")

// Connect returns a connector to the probed database on one server, such as
//
//	func(address string) (driver.Connector, error) {
//		return postgres.Engine{}.Connector(address, "customers", credentials)
//	}
//
// It is called for each new connection and may be called concurrently.
type Connect func(address string) (driver.Connector, error)

// Sessions keeps at most one connection to each probed server. All methods may
// be called concurrently.
type Sessions struct {
	connect Connect
	dialect *dialect.Dialect
	closing sync.WaitGroup // connections on their way out, which may be slow

	mu     sync.Mutex          // guards the fields below
	idle   map[string]*Session // address → connection that nobody uses now
	closed bool
}

// Session is a connection to one server. It belongs to one probe at a time.
type Session struct {
	// Variant is the prober's own note of which software this is; 0 on a new
	// connection.
	Variant int
	// InSync is the time, by the server's clock, at which the server was last
	// known to miss nothing; zero on a new connection.
	InSync time.Time

	pool       *sql.DB
	conn       *sql.Conn
	generation uint64
	opened     time.Time
}

// NewSessions returns Sessions of an engine: postgres, mysql, sqlserver or
// sqlite. Another name panics.
func NewSessions(engine string, connect Connect) *Sessions {
	d, err := dialect.For(engine)
	if err != nil {
		panic(err)
	}
	return &Sessions{connect: connect, dialect: d, idle: make(map[string]*Session)}
}

// Ask calls ask with a session of the server. On a new connection it is called
// twice, so that the second, which counts, bears no costs of first use. If a
// connection turns out to be lost that was used before, a new one is tried.
// The error names the server.
func (p *Sessions) Ask(ctx context.Context, server topology.Server, ask func(*Session) error) error {
	err := p.ask(ctx, server, ask)
	if err != nil {
		return fmt.Errorf("probing server %s: %w", server.Address, err)
	}
	return nil
}

func (p *Sessions) ask(ctx context.Context, server topology.Server, ask func(*Session) error) error {
	s, err := p.take(server)
	if err != nil {
		return err
	}
	if s != nil {
		err = p.use(s, server.Address, ask)
		if err == nil || ctx.Err() != nil || p.dialect.Classify(err) != dialect.Lost {
			return err
		}
	}
	if s, err = p.open(ctx, server); err != nil {
		return err
	}
	return p.use(s, server.Address, func(s *Session) error {
		if err := ask(s); err != nil {
			return err
		}
		return ask(s)
	})
}

// take returns the session of a server if there is one fit for use. It closes
// those that are too old, its own or not.
func (p *Sessions) take(server topology.Server) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	now := time.Now()
	for address, s := range p.idle {
		if now.Sub(s.opened) > maxAge || address == server.Address && s.generation != server.Generation {
			delete(p.idle, address)
			p.discard(s)
		}
	}
	s := p.idle[server.Address]
	delete(p.idle, server.Address)
	return s, nil
}

func (p *Sessions) open(ctx context.Context, server topology.Server) (*Session, error) {
	connector, err := p.connect(server.Address)
	if err != nil {
		return nil, fmt.Errorf("preparing connection: %w", err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting: %w", err), pool.Close())
	}
	return &Session{pool: pool, conn: conn, generation: server.Generation, opened: time.Now()}, nil
}

// use asks and keeps the session, unless there was an error.
func (p *Sessions) use(s *Session, address string, ask func(*Session) error) error {
	err := ask(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || p.closed || p.idle[address] != nil {
		p.discard(s)
		return err
	}
	p.idle[address] = s
	return nil
}

// discard closes a session without waiting: a driver may say goodbye to a
// server that does not answer. It needs mu.
func (p *Sessions) discard(s *Session) {
	p.closing.Go(func() {
		_ = s.conn.Close() // nothing is lost with a connection that only reads
		_ = s.pool.Close()
	})
}

// Close closes all connections and waits for that. It may be called more than
// once.
func (p *Sessions) Close() error {
	p.mu.Lock()
	p.closed = true
	for address, s := range p.idle {
		delete(p.idle, address)
		p.discard(s)
	}
	p.mu.Unlock()
	p.closing.Wait()
	return nil
}

// Query sends one query and has every result set of its answer read: read is
// called once for each, with the number of those before it. It returns the time
// from the query to the end of the answer.
func (s *Session) Query(ctx context.Context, query string, read func(set int, rows *sql.Rows) error) (time.Duration, error) {
	began := time.Now()
	rows, err := s.conn.QueryContext(ctx, query)
	if err != nil {
		return 0, fmt.Errorf("asking for the role: %w", err)
	}
	defer rows.Close()
	for set := 0; ; set++ {
		if err := read(set, rows); err != nil {
			return 0, fmt.Errorf("reading the answer: %w", err)
		}
		if !rows.NextResultSet() {
			break
		}
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	return time.Since(began), nil
}

// Row sends one query and scans the one row of its answer. No row is
// sql.ErrNoRows. It returns the time until the end of the answer.
func (s *Session) Row(ctx context.Context, query string, into ...any) (time.Duration, error) {
	return s.Query(ctx, query, func(_ int, rows *sql.Rows) error { return ScanOnly(rows, into...) })
}

// ScanOnly scans the one row of a result set. No row is sql.ErrNoRows.
func ScanOnly(rows *sql.Rows, into ...any) error {
	if !rows.Next() {
		return errors.Join(sql.ErrNoRows, rows.Err())
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	if rows.Next() {
		return errors.New("more than one row")
	}
	return rows.Err()
}

// Exec sends one statement that has no answer.
func (s *Session) Exec(ctx context.Context, statement string) error {
	if _, err := s.conn.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("asking for the role: %w", err)
	}
	return nil
}

// Refused reports whether an error says that a table is missing or a right to
// see it.
func (p *Sessions) Refused(err error) bool {
	class := p.dialect.Classify(err)
	return class == dialect.NoTable || class == dialect.Unavailable
}

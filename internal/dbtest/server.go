package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	adminLimit       = time.Minute // for an administrator's statement: machines that test are busy
	adminConnections = 6
	dropsAtOnce      = 3 // leaves connections to create databases
)

// Server is a running database server and the administrator's login to it. It is safe for concurrent use.
type Server struct {
	admin Database // the administrator's own database
	local *local   // nil for a user's own server
	// createOptions ends the statement that creates a database.
	createOptions string

	drops     sync.WaitGroup // databases on their way out
	dropSlots chan struct{}

	mu      sync.Mutex // guards the fields below
	pool    *sql.DB    // on admin
	logins  []string   // made on a user's own server, dropped at the end
	dropErr error      // of dropLater
}

// Postgres returns the test binary's PostgreSQL server. It skips the test when there is none, and fails it where
// SHARDWAY_TEST_REQUIRE names postgres or when the server cannot be started.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return EnginePostgres.Server(t)
}

// MariaDB returns the test binary's MariaDB server, or the MySQL or MariaDB server that SHARDWAY_TEST_MYSQL names.
// It skips and fails as [Postgres] does.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	return EngineMySQL.Server(t)
}

// SQLServer returns the server that SHARDWAY_TEST_SQLSERVER names; without it the test is skipped, as by [Postgres].
func SQLServer(t testing.TB) *Server {
	t.Helper()
	return EngineSQLServer.Server(t)
}

// Engine is the server's engine.
func (s *Server) Engine() Engine { return Engine(s.admin.Engine) }

// Host is the host that the server listens on.
func (s *Server) Host() string { return s.admin.Host }

// Port is the TCP port that the server listens on. It stays the same over a restart.
func (s *Server) Port() int { return s.admin.Port }

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.admin.Addr() }

// Admin is the administrator's login to the server's own database. Tests leave nothing in it.
func (s *Server) Admin() Database { return s.admin }

// NewDatabase makes an empty database, with the administrator as its login, for this test alone. Its name is
// unique, also on a user's own server, and has to be quoted. It is dropped after the test, with whatever is still
// connected to it; a private server's databases go with the server.
func (s *Server) NewDatabase(t testing.TB) Database {
	t.Helper()
	d := s.admin
	d.Name = unique(t.Name())
	if err := s.do(s.Engine().createDatabase(d.Name) + s.createOptions); err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	switch {
	case s.local == nil:
		t.Cleanup(func() {
			if err := s.drop(d); err != nil {
				t.Errorf("dropping database %q: %v", d.Name, err)
			}
		})
	case s.local.shared:
		t.Cleanup(func() { s.dropLater(d) })
	}
	return d
}

// NewUser makes a login that may connect and nothing more, with a unique name that begins with the hint and has to
// be quoted, and a password full of characters that URLs and statements must escape. Rights are granted by [Server.Exec].
func (s *Server) NewUser(t testing.TB, hint string) (user, password string) {
	t.Helper()
	user = unique(hint)
	password = `Aa1-p@ss:w/ord#?% '"\;=&+{}` + randomText()
	secret := password
	if s.local != nil && s.Engine() == EnginePostgres {
		var err error
		if secret, err = quickSecret(password); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.do(s.Engine().createLogin(user, secret)); err != nil {
		t.Fatalf("creating a login: %v", err)
	}
	if s.local == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logins = append(s.logins, user)
	}
	return user, password
}

// Exec runs statements, one or several, as the administrator in a database of this server, by its name; "" is the
// administrator's own. An error fails the test.
func (s *Server) Exec(t testing.TB, database, statements string) {
	t.Helper()
	d := s.admin
	if database != "" {
		d.Name = database
	}
	pool, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(statements); err != nil {
		t.Fatalf("running %q in database %q: %v", statements, d.Name, err)
	}
}

// PID is the process id of the server program, or 0 for a user's own server.
func (s *Server) PID() int {
	if s.local == nil {
		return 0
	}
	return s.local.pid()
}

// do runs statements one by one as the administrator.
func (s *Server) do(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	pool := s.adminPool()
	for _, statement := range statements {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("running an administrator's statement: %w", err)
		}
	}
	return nil
}

// drop ends the sessions on a database and drops it.
func (s *Server) drop(d Database) error {
	if s.Engine() == EngineMySQL { // which would wait for their open transactions, for a day
		if err := s.endSessions(d.Name); err != nil {
			return err
		}
	}
	return s.do(s.Engine().dropDatabase(d.Name))
}

// dropLater drops a database while tests go on: PostgreSQL waits 100 ms for a session that is about to end.
func (s *Server) dropLater(d Database) {
	s.drops.Go(func() {
		s.dropSlots <- struct{}{}
		defer func() { <-s.dropSlots }()
		if err := s.drop(d); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dropErr = errors.Join(s.dropErr, fmt.Errorf("dropping database %q: %w", d.Name, err))
		}
	})
}

// awaitDrops waits for every dropLater and returns what went wrong.
func (s *Server) awaitDrops() error {
	s.drops.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropErr
}

// endSessions kills every MySQL session whose current database it is.
func (s *Server) endSessions(database string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	rows, err := s.adminPool().QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = ?", database)
	if err != nil {
		return fmt.Errorf("listing sessions: %w", err)
	}
	defer rows.Close()
	var kills []string
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return fmt.Errorf("listing sessions: %w", err)
		}
		kills = append(kills, fmt.Sprint("KILL ", id))
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("listing sessions: %w", err)
	}
	for _, kill := range kills {
		_ = s.do(kill) // a session that has ended meanwhile is none to end
	}
	return nil
}

// adminPool is the administrator's pool as of now.
func (s *Server) adminPool() *sql.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool
}

// connect opens the administrator's pool. What a former one held is closed: after a restart its connections are dead.
func (s *Server) connect() error {
	pool, err := s.admin.open()
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(adminConnections)
	pool.SetMaxIdleConns(adminConnections)
	s.mu.Lock()
	former := s.pool
	s.pool = pool
	s.mu.Unlock()
	if former != nil {
		_ = former.Close()
	}
	return nil
}

// unique makes a name of at most 33 letters, digits and '-' that begins with what the hint has of those.
func unique(hint string) string {
	const most = 24
	hint = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimPrefix(hint, "Test")))
	if hint == "" || hint[0] <= '9' {
		hint = "t" + hint
	}
	return hint[:min(most, len(hint))] + "-" + randomText()
}

// randomText is 8 hexadecimal digits.
func randomText() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

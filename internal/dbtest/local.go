package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/installed"
)

const (
	startLimit = 2 * time.Minute      // for a server to answer; busy machines are slow
	startPause = 5 * time.Millisecond // between two attempts to connect
	startTries = 3                    // other ports to try when a server ends at once
)

// errEnded is under the error of a server that ended instead of starting.
var errEnded = errors.New("the server ended")

// local is a server program that this process started.
type local struct {
	soft     *software
	as       *syscall.Credential
	home     string // holds data, log and socket
	settings []string
	release  func() // gives the port back
	shared   bool   // ended by Run, not by a test

	mu   sync.Mutex // guards the field below and keeps starts and stops apart
	proc *process   // nil before the first start
}

// PostgresOptions shape a private PostgreSQL server. The zero value is the shared server's shape.
type PostgresOptions struct {
	// Settings win over the defaults of the harness: "wal_level=logical".
	Settings []string
}

// MariaDBOptions shape a private MariaDB server. The zero value is the shared server's shape.
type MariaDBOptions struct {
	// Settings win over the defaults of the harness: "log-bin=bin".
	Settings []string
}

// NewPostgres starts a PostgreSQL server for this test alone, which may stop, kill and restart it. It is ended and
// removed with the test. SHARDWAY_TEST_POSTGRES does not matter here; without PostgreSQL's programs the test is
// skipped, or fails where SHARDWAY_TEST_REQUIRE names postgres.
func NewPostgres(t testing.TB, o PostgresOptions) *Server {
	t.Helper()
	return newPrivate(t, EnginePostgres, o.Settings)
}

// NewMariaDB is [NewPostgres] for MariaDB.
func NewMariaDB(t testing.TB, o MariaDBOptions) *Server {
	t.Helper()
	return newPrivate(t, EngineMySQL, o.Settings)
}

func newPrivate(t testing.TB, e Engine, settings []string) *Server {
	t.Helper()
	soft, err := locate(e)
	if err != nil {
		e.unavailable(t, err)
	}
	s, err := startLocal(soft, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Stop ends a private server in order: its sessions are ended, its data is complete.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.mustBePrivate(t)
	if err := s.local.endProcess(s.local.soft.stop); err != nil {
		t.Fatal(err)
	}
}

// Kill ends a private server as a crash does. What was committed is there after a restart.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.mustBePrivate(t)
	if err := s.local.endProcess(s.local.soft.crash); err != nil {
		t.Fatal(err)
	}
}

// Restart starts a private server that was stopped or killed, and stops it first if it was not, on the same port
// and data. When it returns, the server answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) mustBePrivate(t testing.TB) {
	t.Helper()
	if s.local == nil || s.local.shared {
		t.Fatal("other tests use this server: take one from dbtest.NewPostgres or dbtest.NewMariaDB")
	}
}

// startLocal makes a server of its own folder and port and starts it.
func startLocal(soft *software, settings []string) (*Server, error) {
	s, err := prepareLocal(soft, settings)
	if err != nil {
		return nil, err
	}
	if err := copyTemplate(soft, s.local.as, s.local.data()); err != nil {
		return nil, err
	}
	if err := s.startOnFreePort(); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// prepareLocal makes a server's folder, which has no data directory yet.
func prepareLocal(soft *software, settings []string) (*Server, error) {
	run, err := runFolder()
	if err != nil {
		return nil, err
	}
	as, err := installed.Account(soft.account)
	if err != nil {
		return nil, err
	}
	l := &local{soft: soft, as: as, settings: settings, home: filepath.Join(run, unique(string(soft.engine)))}
	if err := makeFolder(l.home, as); err != nil {
		return nil, err
	}
	return &Server{local: l, dropSlots: make(chan struct{}, dropsAtOnce), admin: Database{
		Engine: string(soft.engine), Host: loopback, Name: soft.adminDB, User: adminUser, Password: adminPassword,
	}}, nil
}

// startOnFreePort starts a server for the first time, on a port that it keeps.
func (s *Server) startOnFreePort() error {
	l := s.local
	err := errEnded
	for try := 0; try < startTries && errors.Is(err, errEnded); try++ { // somebody else may have taken the port
		if l.release != nil {
			l.release()
		}
		if s.admin.Port, l.release, err = reservePort(); err != nil {
			return err
		}
		err = s.start()
	}
	if err != nil {
		return err
	}
	return s.chooseCreateOptions()
}

// start starts the program and waits until the administrator can log in.
func (s *Server) start() error {
	l := s.local
	l.mu.Lock()
	defer l.mu.Unlock()
	logPath := filepath.Join(l.home, "log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", l.soft.engine, err)
	}
	defer log.Close()
	cmd := command(l.as, l.home, l.soft.server, l.soft.arguments(l.home, s.admin.Port, l.settings)...)
	cmd.Stdout, cmd.Stderr = log, log // not the test's: a caller that reads those to the end would wait for the server
	if l.proc, err = startProcess(cmd, l.soft.crash); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.awaitReady(l.proc); err != nil {
		return fmt.Errorf("starting %s on port %d: %w\n%s", l.soft.engine, s.admin.Port, err, tail(logPath))
	}
	return nil
}

// awaitReady connects until it works, the program ends or the time is up.
func (s *Server) awaitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	pause := time.NewTicker(startPause)
	defer pause.Stop()
	for {
		err := s.adminPool().PingContext(ctx)
		if err == nil && !p.ended() { // else somebody else's server answered
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%w: %v", errEnded, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("no answer in %v: %w", startLimit, err)
		case <-pause.C:
		}
	}
}

// chooseCreateOptions has PostgreSQL copy files, which takes half the time of its default, where it knows how.
func (s *Server) chooseCreateOptions() error {
	if s.Engine() != EnginePostgres {
		return nil
	}
	const since = 150000
	var version int
	err := s.adminPool().QueryRow("SELECT current_setting('server_version_num')::int").Scan(&version)
	if err != nil {
		return fmt.Errorf("asking PostgreSQL for its version: %w", err)
	}
	if version >= since {
		s.createOptions = " STRATEGY file_copy"
	}
	return nil
}

// end ends the server at once and removes its files: nobody will read them.
func (s *Server) end() error {
	dropErr := s.awaitDrops()
	if pool := s.adminPool(); pool != nil {
		_ = pool.Close()
	}
	l := s.local
	err := l.endProcess(l.soft.crash)
	if l.release != nil {
		l.release()
	}
	return errors.Join(dropErr, err, os.RemoveAll(l.home))
}

// data is the server's data directory.
func (l *local) data() string { return filepath.Join(l.home, "data") }

// endProcess ends the program if it runs.
func (l *local) endProcess(how syscall.Signal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proc == nil || l.proc.ended() {
		return nil
	}
	return l.proc.end(how)
}

func (l *local) pid() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proc.cmd.Process.Pid
}

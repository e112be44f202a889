package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway/internal/installed"
)

// PgBouncerOptions shape a PgBouncer.
type PgBouncerOptions struct {
	// Settings win over the defaults of the harness: "default_pool_size=2".
	Settings []string
}

// PgBouncer is a PgBouncer in transaction mode before a PostgreSQL server, for one test alone.
type PgBouncer struct {
	port int
	proc *process
}

// Addr is the pooler's host:port.
func (p *PgBouncer) Addr() string { return fmt.Sprintf("%s:%d", loopback, p.port) }

// PID is the pooler's process.
func (p *PgBouncer) PID() int { return p.proc.cmd.Process.Pid }

// NewPgBouncer starts a PgBouncer before a server. Databases and logins are those of the server; the administrator
// alone may log in. It is ended and removed with the test. Without PgBouncer the test is skipped, or fails where
// SHARDWAY_TEST_REQUIRE names postgres.
func NewPgBouncer(t testing.TB, s *Server, o PgBouncerOptions) *PgBouncer {
	t.Helper()
	const name = "pgbouncer"
	program, ok := installed.Program(name, "/usr/sbin", "/usr/local/sbin", "/usr/local/bin")
	if !ok {
		EnginePostgres.unavailable(t, fmt.Errorf("PgBouncer is %w: run %q, or %q", errNotInstalled, "make test-deps", "apt-get install "+name))
	}
	as, err := installed.Account("postgres") // its package makes this account too
	if err != nil {
		t.Fatal(err)
	}
	run, err := runFolder()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(run, unique(name))
	if err := makeFolder(home, as); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	for try := 1; ; try++ {
		p, err := startPgBouncer(t, program, home, as, s, o)
		if err == nil {
			return p
		}
		if try == startTries || !errors.Is(err, errEnded) {
			t.Fatal(err)
		}
	}
}

func startPgBouncer(t testing.TB, program, home string, as *syscall.Credential, s *Server, o PgBouncerOptions) (*PgBouncer, error) {
	t.Helper()
	port, release, err := reservePort()
	if err != nil {
		return nil, err
	}
	t.Cleanup(release)
	settings := append([]string{
		"listen_addr=" + loopback, fmt.Sprint("listen_port=", port), "unix_socket_dir=", "pool_mode=transaction",
		"auth_type=scram-sha-256", "auth_file=users", "default_pool_size=20", "max_client_conn=500",
	}, o.Settings...)
	admin := s.Admin()
	quote := func(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
	for file, text := range map[string]string{
		"ini":   fmt.Sprintf("[databases]\n* = host=%s port=%d\n[pgbouncer]\n%s\n", s.Host(), s.Port(), strings.Join(settings, "\n")),
		"users": quote(admin.User) + " " + quote(admin.Password) + "\n",
	} {
		path := filepath.Join(home, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("configuring PgBouncer: %w", err)
		}
		if err := giveTo(path, as); err != nil {
			return nil, err
		}
	}
	logPath := filepath.Join(home, "log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("opening the log of PgBouncer: %w", err)
	}
	defer log.Close()
	cmd := command(as, home, program, "ini")
	cmd.Stdout, cmd.Stderr = log, log
	p := &PgBouncer{port: port}
	if p.proc, err = startProcess(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := p.proc.end(syscall.SIGINT); err != nil {
			t.Error(err)
		}
	})
	at := admin
	at.Host, at.Port = loopback, port
	if err := p.await(at); err != nil {
		return nil, fmt.Errorf("starting PgBouncer on port %d: %w\n%s", port, err, tail(logPath))
	}
	return p, nil
}

// await connects until it works, the program ends or the time is up.
func (p *PgBouncer) await(at Database) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	pause := time.NewTicker(startPause)
	defer pause.Stop()
	for {
		conn, err := pgx.Connect(ctx, at.DSN())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.proc.done:
			return fmt.Errorf("%w: %v", errEnded, p.proc.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("no answer in %v: %w", startLimit, err)
		case <-pause.C:
		}
	}
}

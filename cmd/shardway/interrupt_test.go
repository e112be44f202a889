package main

import (
	"bufio"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
)

// stalled is a move from s1 to s2 that stands still in the middle: s1 has given
// the mapping up, and s2 waits for a row that the test has locked.
type stalled struct {
	t      *testing.T
	p      program
	s1     dbtest.Database
	proxy  *faultconn.Proxy // between the program and s2
	lock   *sql.Tx          // held on s2
	move   *exec.Cmd
	errs   *bufio.Scanner
	told   []string // lines of the standard error
	global *sql.DB
}

// newStalled starts the move on PostgreSQL and returns when it stands still.
func newStalled(t *testing.T, flags ...string) *stalled {
	t.Helper()
	w := newWorld(t, dbtest.EnginePostgres)
	s := &stalled{t: t, p: w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password}), s1: w.s1, global: w.global.Open(t)}
	s.proxy = faultconn.New(t, w.s2.Addr())
	through := w.s2
	through.Host, through.Port = s.proxy.Host(), s.proxy.Port()
	s.p.must("init")
	s.p.must("map", "create", "customers", "--kind", "range", "--key", "int64")
	s.p.must("shard", "add", "s1", location(w.s1))
	s.p.must("shard", "add", "s2", location(through))
	s.p.must("mapping", "add", "--shard", "s1", "--low", "0", "--high", "10", "--offline")

	direct := w.s2.Open(t)
	var err error
	if s.lock, err = direct.BeginTx(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.lock.ExecContext(t.Context(), `SELECT 1 FROM shardway.local_store FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	s.move = s.p.command(append([]string{"mapping", "move-metadata", "--key", "5", "--to", "s2"}, flags...)...)
	pipe, err := s.move.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.errs = bufio.NewScanner(pipe)
	if err := s.move.Start(); err != nil {
		t.Fatal(err)
	}
	for waiting := 0; waiting == 0; {
		// The pause is the server's, so that the test does not spin.
		err := direct.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_sleep(0.01), pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// signal sends a signal to the program in the middle of its change.
func (s *stalled) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.move.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// hear reads the standard error up to a line with a text.
func (s *stalled) hear(text string) {
	s.t.Helper()
	for s.errs.Scan() {
		s.told = append(s.told, s.errs.Text())
		if strings.Contains(s.errs.Text(), text) {
			return
		}
	}
	s.t.Fatalf("the program does not say %q but:\n%s", text, strings.Join(s.told, "\n"))
}

// end waits for the program and returns its exit code and what it has said.
func (s *stalled) end() (code int, said string) {
	s.t.Helper()
	for s.errs.Scan() {
		s.told = append(s.told, s.errs.Text())
	}
	var exit *exec.ExitError
	if err := s.move.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.move.ProcessState.ExitCode(), strings.Join(s.told, "\n")
}

func (s *stalled) unlock() {
	s.t.Helper()
	if err := s.lock.Rollback(); err != nil {
		s.t.Fatal(err)
	}
}

// owner returns the shard that the global map routes key 5 to.
func (s *stalled) owner() string {
	s.t.Helper()
	r := s.p.must("mapping", "get", "5", "--output", "json")
	return regexp.MustCompile(`"shard": "(.*)"`).FindStringSubmatch(r.out)[1]
}

// TestInterruptLeavesPending presses Ctrl-C in the middle of a change, and cuts
// the shard off, so that the change can neither be finished nor taken back. The
// program names the operation and the command that ends it (ADM-06).
func TestInterruptLeavesPending(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	s.signal(os.Interrupt)
	s.hear("note: interrupted; bringing the change to an end")
	s.proxy.Cut()
	code, said := s.end()
	if code != exitPending {
		t.Fatalf("exit code %d, want %d\n%s", code, exitPending, said)
	}
	found := regexp.MustCompile(`operation ([0-9a-f]{16}) is pending, neither done nor taken back`).FindStringSubmatch(said)
	if found == nil || !strings.Contains(said, "hint: shardway recover finishes it or takes it back") {
		t.Fatalf("the program does not name the operation and the next command:\n%s", said)
	}
	if got := s.owner(); got != "s1" {
		t.Errorf("routers see shard %s before the change is published", got)
	}
	if r := s.p.must("operations"); !strings.Contains(r.out, found[1]) || !strings.Contains(r.out, "lapsed") {
		t.Errorf("operations:\n%s", r.out)
	}
	// As long as the shard is away, recovery says so and changes nothing.
	if r := s.p.run("recover"); r.code != exitPending || !strings.Contains(r.errs, found[1]) || !strings.Contains(r.out, "pending") {
		t.Errorf("recover: exit code %d\n%s%s", r.code, r.out, r.errs)
	}
	// Whoever does not need its rows goes on.
	s.p.must("mapping", "add", "--shard", "s1", "--low", "100")
	if r := s.p.run("mapping", "online", "--key", "5", "--wait", "1s"); r.code != exitPending || !strings.Contains(r.errs, found[1]) {
		t.Errorf("changing the same mapping: exit code %d\n%s", r.code, r.errs)
	}

	s.unlock()
	s.proxy.Restore()
	r := s.p.must("map", "create", "other", "--kind", "list", "--key", "int64") // needs none of its rows
	if !strings.Contains(r.errs, "note: operation "+found[1]+` (move mapping) of shard map "customers", left behind by another client, was taken back`) {
		t.Errorf("the next command does not say what it has done:\n%s", r.errs)
	}
	if r := s.p.must("operations", found[1]); !strings.Contains(r.out, "undone") {
		t.Errorf("outcome: %s", r.out)
	}
	s.p.must("mapping", "online", "--key", "5")
	if got := s.owner(); got != "s1" {
		t.Errorf("key 5 is on %s, want s1", got)
	}
	if r := s.p.must("route", "5", "--explain"); !strings.Contains(r.out, "local    validated") {
		t.Errorf("route:\n%s", r.out)
	}
}

// TestInterruptInBlackHole presses Ctrl-C while a shard swallows every byte:
// the program does not hang, and names the operation that it leaves.
func TestInterruptInBlackHole(t *testing.T) {
	t.Parallel()
	s := newStalled(t, "--lease", "1s")
	s.proxy.BlackHole()
	s.signal(os.Interrupt)
	code, said := s.end()
	if code != exitPending || !strings.Contains(said, "is pending, neither done nor taken back") {
		t.Fatalf("exit code %d, want %d\n%s", code, exitPending, said)
	}
	s.unlock()
	s.proxy.Restore()
	if r := s.p.must("recover"); !strings.Contains(r.out, "undone") {
		t.Errorf("recover:\n%s%s", r.out, r.errs)
	}
	if got := s.owner(); got != "s1" {
		t.Errorf("key 5 is on %s, want s1", got)
	}
}

// TestInterruptEnds presses Ctrl-C in the middle of a change whose shards can
// be reached: it comes to an end, and the program says to which.
func TestInterruptEnds(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	s.signal(os.Interrupt)
	s.hear("note: interrupted; bringing the change to an end")
	s.unlock()
	code, said := s.end()
	switch owner := s.owner(); {
	case owner == "s1" && code == exitInterrupted && strings.Contains(said, "was taken back, nothing has changed"):
	case owner == "s2" && code == exitOK && strings.Contains(said, "it is done"):
	default:
		t.Errorf("key 5 is on %s, exit code %d\n%s", owner, code, said)
	}
	if r := s.p.must("operations"); !strings.Contains(r.out, "(none)") {
		t.Errorf("operations are left:\n%s", r.out)
	}
}

// TestKilled kills the program in the middle of a change. The next command
// waits for the lease to lapse, ends the change, and says so.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := newStalled(t, "--lease", "500ms")
	s.signal(os.Kill)
	s.end()
	s.unlock()
	if r := s.p.must("operations"); !strings.Contains(r.out, "move mapping") {
		t.Fatalf("operations:\n%s", r.out)
	}
	r := s.p.must("mapping", "online", "--key", "5")
	if !strings.Contains(r.errs, "(move mapping)") || !strings.Contains(r.errs, "was taken back") {
		t.Errorf("the next command does not say what it has done:\n%s", r.errs)
	}
	if got := s.owner(); got != "s1" {
		t.Errorf("key 5 is on %s, want s1", got)
	}
}

// TestRecoverByForce takes an operation away from an owner that still holds a
// lease: the owner then cannot write any more.
func TestRecoverByForce(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	if r := s.p.run("recover"); r.code != exitPending || !strings.Contains(r.out, "its owner is at work") {
		t.Errorf("recover: exit code %d\n%s%s", r.code, r.out, r.errs)
	}
	if r := s.p.must("recover", "--force", "--dry-run"); !strings.Contains(r.out, "would end 1 operation") {
		t.Errorf("dry run: %s", r.out)
	}
	forced := s.p.command("recover", "--force", "--output", "json")
	if err := forced.Start(); err != nil {
		t.Fatal(err)
	}
	for epoch := 1; epoch == 1; { // until it has claimed the operation
		if err := s.global.QueryRowContext(t.Context(), `SELECT epoch FROM pg_sleep(0.01), shardway.operations`).Scan(&epoch); err != nil {
			t.Fatal(err)
		}
	}
	s.unlock()
	if err := forced.Wait(); err != nil {
		t.Errorf("recover --force: %v", err)
	}
	code, said := s.end()
	switch owner := s.owner(); {
	case owner == "s1" && code != exitOK:
	case owner == "s2" && code == exitOK:
	default:
		t.Errorf("key 5 is on %s, the owner before ends with exit code %d\n%s", owner, code, said)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/replicas"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func noEnvironment(string) string { return "" }

// cluster is a primary and two secondaries. The first secondary is far away;
// the last one has another host name than the others.
type cluster struct {
	*dbtest.PostgresSet
	database dbtest.Database
	last     string // address of the last secondary
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	c := cluster{PostgresSet: set, database: set.NewDatabase(t), last: fmt.Sprint("localhost:", set.Proxy(2).Port())}
	set.AwaitReplay(t, 1)
	set.AwaitReplay(t, 2)
	set.Proxy(1).Delay(100 * time.Millisecond)
	return c
}

func (c cluster) secondaries() string { return c.Addr(1) + "," + c.last }

// checkStory looks for what every run must say, and for secrets.
func (c cluster) checkStory(t *testing.T, text string) {
	t.Helper()
	for _, line := range []string{
		c.Addr(0) + " took it",
		regexp.QuoteMeta(c.Addr(1)) + " is secondary, round trip [0-9.]+ms: out, by latency window",
		regexp.QuoteMeta(c.last) + " is secondary, round trip .*: near enough to serve",
		"20 reads were served by " + regexp.QuoteMeta(c.last) + ` \(20\)`,
		`20 reads where host == "localhost" were served by ` + regexp.QuoteMeta(c.last) + ` \(20\)`,
		regexp.QuoteMeta(c.last) + " takes the writes now",
		"20 more writes went there, and none to " + regexp.QuoteMeta(c.Addr(0)),
		"All of this was checked on the servers.",
	} {
		if !regexp.MustCompile(line).MatchString(text) {
			t.Errorf("the story does not say %q:\n%s", line, text)
		}
	}
	for _, secret := range []string{c.database.Password, url.QueryEscape(c.database.Password)} {
		if strings.Contains(text, secret) {
			t.Errorf("a secret is shown:\n%s", text)
		}
	}
}

// checkGone demands that nothing is left on the new primary.
func (c cluster) checkGone(t *testing.T) {
	t.Helper()
	d := c.At(c.database, 2)
	var left bool
	err := d.Open(t).QueryRowContext(t.Context(), `SELECT to_regnamespace('shardway') IS NOT NULL OR to_regclass($1) IS NOT NULL`, replicas.Table).Scan(&left)
	if err != nil || left {
		t.Errorf("something is left on the new primary: %v, %v", left, err)
	}
}

// The program promotes a secondary, and the former primary lives on: no write
// goes there any more.
func TestRun_promotes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	environment := map[string]string{"REPLICAS_PRIMARY": c.database.DSN(), "REPLICAS_SECONDARIES": c.secondaries()}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-promote"}, func(name string) string { return environment[name] }, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs.String(), out.String())
	}
	c.checkStory(t, out.String()+errs.String())
	c.checkGone(t)
}

// told is what the program writes; it calls back when it asks for a failover.
type told struct {
	bytes.Buffer
	asked func()
}

func (w *told) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "promote a secondary") {
		w.asked()
	}
	return w.Buffer.Write(p)
}

// The primary dies and somebody promotes a secondary.
func TestRun_failover(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	out := &told{asked: func() {
		c.Kill(t, 0)
		c.Promote(t, 2)
	}}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"-primary", c.database.DSN(), "-secondaries", c.secondaries()}, noEnvironment, out, &errs); code != exitOK {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs.String(), out.String())
	}
	c.checkStory(t, out.String()+errs.String())
	c.checkGone(t)
}

// A failover that does not come is an error, and the database is left as it was.
func TestRun_noFailover(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	d := set.NewDatabase(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &told{asked: func() { cancel(errors.New("nobody came")) }}
	args := []string{"-primary", d.DSN(), "-secondaries", set.Addr(1)}
	var errs bytes.Buffer
	if code := run(ctx, args, noEnvironment, out, &errs); code != exitFailed || !strings.Contains(errs.String(), "no other server has become primary: nobody came") {
		t.Errorf("exit code %d, %s, after\n%s", code, errs.String(), out.String())
	}
	var left bool
	err := d.Open(t).QueryRowContext(t.Context(), `SELECT to_regnamespace('shardway') IS NOT NULL OR to_regclass($1) IS NOT NULL`, replicas.Table).Scan(&left)
	if err != nil || left {
		t.Errorf("something is left: %v, %v", left, err)
	}
	if _, err := d.Open(t).ExecContext(t.Context(), "CREATE SCHEMA shardway"); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), args, noEnvironment, out, &errs); code != exitUsage || !strings.Contains(errs.String(), "give one of its own") {
		t.Errorf("a database that is in use: exit code %d, %s", code, errs.String())
	}
	set.AwaitReplay(t, 1)
	swapped := []string{"-primary", set.At(d, 1).DSN(), "-secondaries", set.Addr(0)}
	if code := run(t.Context(), swapped, noEnvironment, out, &errs); code != exitUsage || !strings.Contains(errs.String(), "primary is a secondary") {
		t.Errorf("a secondary as primary: exit code %d, %s", code, errs.String())
	}
}

// Bad input names what is wrong and shows no secret.
func TestRun_badInput(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://app:hunter2@127.0.0.1:1/d"
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":         {nil, exitUsage, "-primary is missing, and so is REPLICAS_PRIMARY"},
		"no secondaries":  {[]string{"-primary", dsn}, exitUsage, "-secondaries is missing"},
		"another engine":  {[]string{"-primary", "mysql://app:hunter2@h/d", "-secondaries", "h:2"}, exitUsage, "primary: "},
		"bad address":     {[]string{"-primary", dsn, "-secondaries", "h:port"}, exitUsage, "h:port"},
		"server twice":    {[]string{"-primary", dsn, "-secondaries", "127.0.0.1:1"}, exitUsage, "twice"},
		"no wait":         {[]string{"-primary", dsn, "-secondaries", "h:2", "-wait", "0s"}, exitUsage, "-wait"},
		"unknown flag":    {[]string{"-tertiary", "x"}, exitUsage, "command line"},
		"an argument":     {[]string{"x"}, exitUsage, "command line"},
		"nobody is there": {[]string{"-primary", dsn, "-secondaries", "127.0.0.1:2"}, exitFailed, "looking at the database"},
		"help":            {[]string{"-help"}, exitOK, "REPLICAS_PRIMARY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := run(t.Context(), c.args, noEnvironment, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.want) {
				t.Errorf("exit code %d, want %d and %q: %s", code, c.code, c.want, errs.String())
			}
			if strings.Contains(out.String()+errs.String(), "hunter2") {
				t.Errorf("a secret is shown: %s", errs.String())
			}
		})
	}
}

package main

import (
	"bytes"
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var names = []string{"global", "shard1", "shard2", "shard3"}

func noEnvironment(string) string { return "" }

// TestRun runs the program on real databases, which it takes from flags or from
// the environment.
func TestRun(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EngineSQLite, dbtest.EnginePostgres, dbtest.EngineMySQL} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			var args, secrets []string
			environment := map[string]string{}
			for _, name := range names {
				db := e.NewDatabase(t)
				args = append(args, "-"+name, db.DSN())
				environment["CUSTOMERS_"+strings.ToUpper(name)] = db.DSN()
				if db.Password != "" {
					secrets = append(secrets, db.Password, url.QueryEscape(db.Password))
				}
			}
			getenv := noEnvironment
			if e != dbtest.EngineMySQL {
				args, getenv = nil, func(name string) string { return environment[name] }
			}
			var out, errs bytes.Buffer
			if code := run(t.Context(), args, getenv, &out, &errs); code != exitOK {
				t.Fatalf("exit code %d, %s, after\n%s", code, errs.String(), out.String())
			}
			for _, line := range []string{"2000 customers, each on the shard that owns it, none on two", "All counts are right."} {
				if !strings.Contains(out.String(), line) {
					t.Errorf("the story does not say %q:\n%s", line, out.String())
				}
			}
			hides(t, out.String()+errs.String(), secrets...)
		})
	}
}

// hides checks that no secret is in a text.
func hides(t *testing.T, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("a secret is shown:\n%s", text)
		}
	}
}

// TestRun_badInput covers what people get wrong: each of it has its exit code,
// names what is wrong and shows no secret.
func TestRun_badInput(t *testing.T) {
	t.Parallel()
	file := func(name string) string { return "sqlite:" + t.TempDir() + "/" + name }
	all := func(global, shard1, shard2, shard3 string) []string {
		return []string{"-global", global, "-shard1", shard1, "-shard2", shard2, "-shard3", shard3}
	}
	const hush = "postgres://app:hush@127.0.0.1:1/"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":            {[]string{"-help"}, exitOK, "-global DSN"},
		"nothing":         {nil, exitUsage, "-global is missing, and so is CUSTOMERS_GLOBAL"},
		"no third shard":  {all(file("g"), file("1"), file("2"), ""), exitUsage, "-shard3 is missing"},
		"unknown flag":    {[]string{"-globe", "hush"}, exitUsage, "-globe"},
		"argument":        {append(all(file("g"), file("1"), file("2"), file("3")), "hush"), exitUsage, "command line"},
		"unknown engine":  {all("oracle://app:hush@db/x", file("1"), file("2"), file("3")), exitUsage, "database of the global shard map: DSN does not begin"},
		"malformed DSN":   {all(file("g"), "postgres://app:hush@127.0.0.1:port/db", file("2"), file("3")), exitUsage, "database of the first shard"},
		"no database":     {all(file("g"), file("1"), hush, file("3")), exitUsage, "database of the second shard"},
		"two engines":     {all(file("g"), file("1"), hush+"two", file("3")), exitUsage, "shard 2 has another engine"},
		"two logins":      {all(file("g"), hush+"one", hush+"two", "postgres://other:hush@127.0.0.1:1/three"), exitUsage, "shard 3 has another login"},
		"nobody is there": {all(hush+"global", hush+"one", hush+"two", hush+"three"), exitFailed, "unavailable"},
		"no folder":       {all(file("g"), file("1"), file("2"), "sqlite:"+t.TempDir()+"/none/s"), exitFailed, "none/s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), c.args, noEnvironment, &out, &errs)
			if code != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit code %d, want %d, and %q in\n%s", code, c.code, c.says, errs.String())
			}
			hides(t, out.String()+errs.String(), "hush")
		})
	}
}

// TestRun_oneDatabaseTwice gives two shards one database.
func TestRun_oneDatabaseTwice(t *testing.T) {
	t.Parallel()
	dir := "sqlite:" + t.TempDir()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-global", dir + "/g", "-shard1", dir + "/1", "-shard2", dir + "/2", "-shard3", dir + "/1"}, noEnvironment, &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), `location `) || !strings.Contains(errs.String(), `of shard "s1": already exists`) {
		t.Errorf("exit code %d, and\n%s", code, errs.String())
	}
}

// TestRun_interrupted ends the program before it begins: that is no success.
func TestRun_interrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := "sqlite:" + t.TempDir()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"-global", dir + "/g", "-shard1", dir + "/1", "-shard2", dir + "/2", "-shard3", dir + "/3"}, noEnvironment, &out, &errs)
	if code != exitFailed || !strings.Contains(out.String(), "Interrupted.") {
		t.Errorf("exit code %d, and\n%s%s", code, out.String(), errs.String())
	}
}

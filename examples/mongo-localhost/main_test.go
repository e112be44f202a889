package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardway/shardway/internal/mongotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// routers are three mongos, of which one is localhost.
func routers(t *testing.T) *mongotest.Cluster {
	t.Helper()
	return mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Hosts: []string{"127.0.0.1", "localhost", "127.0.0.1"}})
}

func execute(t *testing.T, uri string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, func(string) string { return uri }, &o, &e)
	return code, o.String(), e.String()
}

// The seed example: of several mongos the one on localhost is read from.
func TestRun_localhost(t *testing.T) {
	t.Parallel()
	c := routers(t)
	code, out, errs := execute(t, c.URI())
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	local := c.Server(1).Addr()
	for _, line := range []string{
		"The deployment is Sharded:", regexp.QuoteMeta(local) + " is mongos, round trip ",
		`100 commands of 20 reads were served by ` + regexp.QuoteMeta(local) + ` \(100\)`,
	} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
	for i := range c.Servers() {
		want := 0
		if i == 1 {
			want = 21 // and the cursors stayed there
		}
		s := c.Server(i)
		if s.Count("find") != want || s.Count("aggregate") != want || s.Count("getMore") != 3*want {
			t.Errorf("%s: %d finds, %d of aggregate, %d of getMore", s.Addr(), s.Count("find"), s.Count("aggregate"), s.Count("getMore"))
		}
	}
	if c.Count("drop") != 1 {
		t.Errorf("%d collections dropped, want the one that was made", c.Count("drop"))
	}
}

// Preferring is no demand: the others serve while localhost is down.
func TestRun_prefer(t *testing.T) {
	t.Parallel()
	c := routers(t)
	if code, out, errs := execute(t, c.URI(), "-prefer"); code != exitOK || c.Server(1).Count("find") != 21 {
		t.Fatalf("exit code %d, %s, %d finds on localhost, after\n%s", code, errs, c.Server(1).Count("find"), out)
	}
	c.Server(1).Stop()
	code, out, errs := execute(t, c.URI(), "-prefer")
	if code != exitOK {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	if n := c.Server(0).Count("find") + c.Server(2).Count("find"); n != 20 {
		t.Errorf("%d finds on the others, want 20", n)
	}
}

// Nobody on localhost: the error names each server and the step that dropped it.
func TestRun_nobody(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 2})
	code, out, errs := execute(t, c.URI()+"?serverSelectionTimeoutMS=300")
	if code != exitFailed {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	for _, part := range []string{"predicate", c.Server(0).Addr(), c.Server(1).Addr(), " after "} { // whichever bound of 300 ms ends it
		if !strings.Contains(errs, part) {
			t.Errorf("the error does not name %s: %s", part, errs)
		}
	}
	if c.Count("find") != 0 {
		t.Errorf("%d finds in spite of the predicate", c.Count("find"))
	}
}

func TestRun_mistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, uri string
		args      []string
		code      int
		text      string
	}{
		{"no_uri", "", nil, exitUsage, "MONGODB_URI"},
		{"no_mongodb", "http://host/", nil, exitUsage, "scheme"},
		{"contradiction", "mongodb://localhost/?readPreference=secondary", nil, exitUsage, "ReadPreference"},
		{"secret", "mongodb://app:hu%sh@localhost/", nil, exitUsage, "it holds a login"},
		{"argument", "mongodb://localhost/", []string{"x"}, exitUsage, ""},
		{"help", "", []string{"-h"}, exitOK, "MONGODB_URI"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if code, _, errs := execute(t, tc.uri, tc.args...); code != tc.code || !strings.Contains(errs, tc.text) || strings.Contains(errs, "hu%sh") {
				t.Errorf("exit code %d: %s", code, errs)
			}
		})
	}
}

// A replica set is not what the example is about.
func TestRun_otherDeployment(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	if code, out, errs := execute(t, c.URI()); code != exitFailed || !strings.Contains(errs, "no sharded cluster") {
		t.Errorf("exit code %d, %s, after\n%s", code, errs, out)
	}
}

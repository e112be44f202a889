package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/shardway/shardway/internal/mongotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// members are a primary, a secondary with a tag and one that is far away and
// lags behind.
func members(t *testing.T) *mongotest.Cluster {
	t.Helper()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: true})
	c.Server(1).SetTags(map[string]string{"zone": "a"})
	c.Server(2).SetDelay(60 * time.Millisecond)
	c.Server(2).SetLag(10 * time.Minute)
	return c
}

// told is what the program writes; it calls back when it asks for an election.
type told struct {
	bytes.Buffer
	asked func()
}

func (w *told) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "step down") && w.asked != nil {
		w.asked()
	}
	return w.Buffer.Write(p)
}

func execute(t *testing.T, uri string, asked func(), args ...string) (code int, out, errs string) {
	t.Helper()
	o, e := told{asked: asked}, bytes.Buffer{}
	code = run(t.Context(), args, func(string) string { return uri }, &o, &e)
	return code, o.String(), e.String()
}

// checkStory looks for what every run must say.
func checkStory(t *testing.T, c *mongotest.Cluster, text string) {
	t.Helper()
	at := func(i int) string { return regexp.QuoteMeta(c.Server(i).Addr()) }
	for _, line := range []string{
		"20 writes went to " + at(0) + ` \(20\)`,
		`2. Reads go to secondaries with the tag zone=a\n   20 reads were served by ` + at(1) + ` \(20\)`,
		at(2) + " is secondary, round trip [0-9.]+ms: out, by latency window",
		`4. .*\n   20 reads were served by ` + at(1) + ` \(20\)`,
		at(1) + " takes the writes now; 0 were refused meanwhile",
		"20 more writes went to " + at(1) + ` \(20\)`,
		"All of this was told by the driver's own command events.",
	} {
		if !regexp.MustCompile(line).MatchString(text) {
			t.Errorf("the story does not say %q:\n%s", line, text)
		}
	}
	counted := regexp.MustCompile(`(\d+) documents are there, of (\d+) acknowledged writes`).FindStringSubmatch(text)
	if counted == nil || counted[1] != counted[2] {
		t.Errorf("the story counts %q", counted)
	}
}

// The primary steps down when the program tells it to.
func TestRun_stepDown(t *testing.T) {
	t.Parallel()
	c := members(t)
	c.Server(0).Handle("replSetStepDown", func(mongotest.Command) (bson.D, bool) {
		c.Elect(1)
		return bson.D{{Key: "ok", Value: 1}}, true
	})
	code, out, errs := execute(t, c.URI(), nil, "-step-down")
	if code != exitOK {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	checkStory(t, c, out)
	if c.Count("drop") != 1 {
		t.Errorf("%d collections dropped, want the one that was made", c.Count("drop"))
	}
}

// The primary dies, and another one is elected while writes go on.
func TestRun_primaryDies(t *testing.T) {
	t.Parallel()
	c := members(t)
	code, out, errs := execute(t, c.URI(), func() {
		c.Server(0).Stop()
		c.Elect(1)
	})
	if code != exitOK {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	checkStory(t, c, out)
}

// An election that does not come is an error, and nothing is left.
func TestRun_noElection(t *testing.T) {
	t.Parallel()
	c := members(t)
	code, out, errs := execute(t, c.URI(), nil, "-wait", "100ms")
	if code != exitFailed || !strings.Contains(errs, "no other member became primary in time") {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
	if c.Count("drop") != 1 {
		t.Errorf("%d collections dropped, want the one that was made", c.Count("drop"))
	}
}

// A write that one member alone remembers is a lost one: the program says so.
func TestRun_lostWrites(t *testing.T) {
	t.Parallel()
	c := members(t)
	code, out, errs := execute(t, c.URI(), func() {
		c.Server(1).Handle("insert", func(mongotest.Command) (bson.D, bool) {
			return bson.D{{Key: "n", Value: 1}, {Key: "ok", Value: 1}}, true // acknowledged and forgotten
		})
		c.Elect(1)
	})
	if code != exitFailed || !strings.Contains(errs, "acknowledged writes are lost") {
		t.Fatalf("exit code %d, %s, after\n%s", code, errs, out)
	}
}

func TestRun_mistakes(t *testing.T) {
	t.Parallel()
	routers := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	for _, tc := range []struct {
		name, uri string
		args      []string
		code      int
		text      string
	}{
		{"no_uri", "", nil, exitUsage, "MONGODB_URI"},
		{"no_mongodb", "http://host/", nil, exitUsage, "scheme"},
		{"secret", "mongodb://app:hu%sh@localhost/", nil, exitUsage, "it holds a login"},
		{"wait", "mongodb://localhost/", []string{"-wait", "0s"}, exitUsage, ""},
		{"help", "", []string{"-h"}, exitOK, "MONGODB_URI"},
		{"other_set", "mongodb://" + members(t).Server(0).Addr() + "/?replicaSet=other&serverSelectionTimeoutMS=300", nil, exitFailed, `"rs0", not of "other"`},
		{"mongos", routers.URI(), nil, exitFailed, "no replica set"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := execute(t, tc.uri, nil, tc.args...)
			if code != tc.code || !strings.Contains(errs, tc.text) || strings.Contains(errs, "hu%sh") {
				t.Errorf("exit code %d: %s", code, errs)
			}
		})
	}
}

package mongoshard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// brief are options that give up soon.
func brief(c *mongotest.Cluster) *options.ClientOptions {
	return uri(c).SetServerSelectionTimeout(300 * time.Millisecond)
}

// wantSelectionError checks the type of an error and what it names.
func wantSelectionError(t *testing.T, err error, names ...string) selection.Explanation {
	t.Helper()
	var failed *mongoshard.Error
	var none *selection.Error
	if !errors.As(err, &failed) || !errors.As(err, &none) || !errors.Is(err, selection.ErrNoServer) {
		t.Fatalf("error %v (%T), want an Error with a selection.Error", err, err)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not name %q", err, name)
		}
	}
	return none.Explanation
}

// Nothing matches: within the selection timeout an error names the deployment,
// the predicate, and for each server the step that dropped it (OBS-06, LAT-11).
func TestNothingMatches(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Server(2).SetRole(mongotest.Arbiter)
	client := open(t, brief(c), mongoshard.Config{Criteria: selection.Where(refuseAll)})
	untilKnown(t, client, 3)
	err := customers(client).FindOne(bounded(t), bson.D{}).Err()
	none := wantSelectionError(t, err, c.Server(0).Addr()+",", "replicaSet=rs0", "refuseAll", c.Server(1).Addr(), c.Server(2).Addr())
	steps := map[selection.Step]int{}
	for _, v := range none.Servers {
		steps[v.Step]++
	}
	if steps[selection.StepPredicate] != 2 || steps[selection.StepRole] != 1 {
		t.Errorf("steps %v, want two servers refused by the predicate and an arbiter", steps)
	}
	if !mongo.IsTimeout(err) {
		t.Error("mongo.IsTimeout does not hold")
	}
	insert(bounded(t), t, customers(client)) // the predicate does not concern it
	if got := c.Count("find"); got != 0 {
		t.Errorf("%d finds", got)
	}
}

func refuseAll(selection.ServerInfo) bool { return false }

// What is left to the driver fails with the same error: commands say what
// dropped each server, reads with a read preference of their own which
// deployment it was.
func TestNothingMatchesForTheDriver(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.StepDown()
	client := open(t, brief(c), mongoshard.Config{})
	untilKnown(t, client, 3)
	err := client.Database("app").RunCommand(bounded(t), one("ping", 1)).Err()
	none := wantSelectionError(t, err, "replicaSet=rs0", "role (secondary)", c.Server(2).Addr())
	if len(none.Servers) != 3 || !mongo.IsTimeout(err) {
		t.Errorf("%d servers; error %v", len(none.Servers), err)
	}
	tagged := readpref.Secondary(readpref.WithTags("zone", "nowhere"))
	err = customers(client, ownPreference(tagged)).FindOne(bounded(t), bson.D{}).Err()
	var failed *mongoshard.Error
	if !errors.As(err, &failed) || !strings.Contains(failed.Deployment, "replicaSet=rs0") || !mongo.IsTimeout(err) {
		t.Errorf("error %v", err)
	}
}

// The caller's context ends the wait before the selection timeout.
func TestContextEndsTheWait(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(refuseAll)})
	cause := errors.New("the request is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
	err := customers(client).FindOne(ctx, bson.D{}).Err()
	wantSelectionError(t, err)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("error %v, want the context's and its cause", err)
	}
}

// A predicate that panics fails its operation with an error that names it; the
// next operation works.
func TestPredicateThatPanics(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	panicking := mongoshard.WithCriteria(ctx, selection.Where(func(selection.ServerInfo) bool { panic("no zone") }))
	err := customers(client).FindOne(panicking, bson.D{}).Err()
	var panicked *selection.PredicateError
	if !errors.As(err, &panicked) || panicked.Value != "no zone" || !strings.Contains(err.Error(), "TestPredicateThatPanics") {
		t.Errorf("error %v, want a PredicateError that names the predicate", err)
	}
	insert(ctx, t, customers(client))
	findOne(ctx, t, customers(client))
}

// A blocked predicate holds up its own operation only (LAT-11).
func TestPredicateThatBlocks(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 1)
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var running sync.WaitGroup
	running.Go(func() {
		blocking := mongoshard.WithCriteria(ctx, selection.Where(func(selection.ServerInfo) bool {
			once.Do(func() { close(blocked) })
			<-release
			return true
		}))
		if err := customers(client).FindOne(blocking, bson.D{}).Err(); err != nil {
			t.Error(err)
		}
	})
	<-blocked
	findOne(ctx, t, customers(client))
	before := c.Count("hello")
	until(t, "a heartbeat", func() bool { return c.Count("hello") > before })
	close(release)
	running.Wait()
}

// Criteria that no deployment could serve fail at once, per operation too.
func TestInvalidCriteriaFailAtOnce(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	o := options.Client().ApplyURI(c.URI() + "&readPreference=secondary&maxStalenessSeconds=10")
	client := open(t, o, mongoshard.Config{})
	ctx := bounded(t)
	insert(ctx, t, customers(client))
	for name, ctx := range map[string]context.Context{
		"small max staleness": ctx,
		"nil predicate":       mongoshard.WithCriteria(ctx, selection.Where(nil)),
	} {
		err := customers(client).FindOne(ctx, bson.D{}).Err()
		var invalid *selection.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: error %v, want an InvalidError", name, err)
		}
	}
	if _, err := mongoshard.With(client, selection.Where(nil)); err == nil {
		t.Error("With took a nil predicate")
	}
}

// A replica set of another name: the error names both, and the servers, within
// the timeout. The driver leaves them out without a word.
func TestUnknownReplicaSetName(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	client := open(t, brief(c).SetReplicaSet("orders"), mongoshard.Config{Criteria: selection.Nearest()})
	until(t, "an answer of each", func() bool { s, _ := mongoshard.Servers(client); return s.Len() == 0 })
	err := customers(client).FindOne(bounded(t), bson.D{}).Err()
	wantSelectionError(t, err, `"rs0"`, `"orders"`, "replicaSet=orders")
	var stranger *mongoshard.StrangerError
	if !errors.As(err, &stranger) || stranger.SetName != "rs0" || stranger.Want != "orders" {
		t.Errorf("stranger %+v", stranger)
	}
	mixed := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	client = open(t, brief(mixed).SetReplicaSet("orders"), mongoshard.Config{})
	until(t, "an answer", func() bool { s, _ := mongoshard.Servers(client); return s.Len() == 0 })
	err = customers(client).FindOne(bounded(t), bson.D{}).Err()
	wantSelectionError(t, err, "Mongos", `"orders"`)
}

// Servers that are all gone are named with their errors, and come back without
// a restart (OBS-06). The text stays short with many of them.
func TestServersThatAreGone(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 30})
	for i := range c.Servers() {
		c.Server(i).Stop()
	}
	client := open(t, brief(c), mongoshard.Config{})
	err := customers(client).FindOne(bounded(t), bson.D{}).Err()
	none := wantSelectionError(t, err, c.Server(29).Addr())
	if len(none.Servers) != 30 || len(err.Error()) > 4096+1024 {
		t.Errorf("%d servers in %d bytes", len(none.Servers), len(err.Error()))
	}
	for i := range c.Servers() {
		c.Server(i).Restart()
	}
	until(t, "a find", func() bool {
		return errors.Is(customers(client).FindOne(t.Context(), bson.D{}).Err(), mongo.ErrNoDocuments)
	})
}

// Members announce names that do not resolve: the error shows the seeds and
// the announced names, and a direct connection works (DSN-06).
func TestAnnouncedNamesThatDoNotResolve(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1, Hosts: []string{"db.invalid"}})
	seed := strings.Replace(c.Server(0).Addr(), "db.invalid", "127.0.0.1", 1)
	o := options.Client().SetHosts([]string{seed}).SetReplicaSet("rs0").SetServerSelectionTimeout(time.Second).SetHeartbeatInterval(500 * time.Millisecond)
	client := open(t, o, mongoshard.Config{})
	err := customers(client).FindOne(bounded(t), bson.D{}).Err()
	wantSelectionError(t, err, seed, c.Server(0).Addr())
	direct := open(t, options.Client().SetHosts([]string{seed}).SetDirect(true), mongoshard.Config{})
	findOneOrNone(t, direct)
}

// A deployment that the driver cannot speak to fails at once.
func TestIncompatibleServers(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, MaxWireVersion: 1})
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Nearest()})
	until(t, "an answer", func() bool {
		s, _ := mongoshard.Servers(client)
		return slices.ContainsFunc(s.Servers(), func(s topology.Server) bool { return s.Err != nil })
	})
	err := customers(client).FindOne(bounded(t), bson.D{}).Err()
	var failed *mongoshard.Error
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "wire version") {
		t.Errorf("error %v", err)
	}
}

// The log has what the specification asks for: started and succeeded, or
// started, waiting and failed, with the deployment and the criteria.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	var text safeBuffer
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := open(t, brief(c), mongoshard.Config{Logger: logger})
	untilKnown(t, client, 1)
	ctx := t.Context()
	findOneOrNone(t, client)
	wantEvents(t, text.take(), "", "started", "succeeded")
	if err := customers(client).FindOne(mongoshard.WithCriteria(ctx, selection.Where(refuseAll)), bson.D{}).Err(); err == nil {
		t.Fatal("found")
	}
	wantEvents(t, text.take(), "refuseAll", "started", "waiting", "failed")
}

func wantEvents(t *testing.T, text, criteria string, events ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(text) {
		var record struct{ Level, Msg, Deployment, Operation, Criteria string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimPrefix(record.Msg, "server selection "))
		if record.Level != "DEBUG" || !strings.HasPrefix(record.Deployment, "mongodb://") || record.Operation != "read" || !strings.Contains(record.Criteria, criteria) {
			t.Errorf("record %s", line)
		}
	}
	wantTexts(t, events, got)
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.b.String()
	s.b.Reset()
	return text
}

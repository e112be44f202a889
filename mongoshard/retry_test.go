package mongoshard_test

import (
	"errors"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// hostUnreachable is a code after which reads and writes are sent again.
const hostUnreachable = 6

// A retry goes to another mongos that the predicate admits, never to one that
// it does not.
func TestRetryStaysAmongTheAdmitted(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 4})
	c.Fill("app", "customers", 3)
	outside := c.Server(3).Addr()
	client := open(t, uri(c), mongoshard.Config{
		Criteria:        selection.Where(func(s selection.ServerInfo) bool { return s.Address != outside }),
		MongosForWrites: true,
	})
	ctx := bounded(t)
	untilKnown(t, client, 4)
	for name, run := range map[string]func(){
		"find":   func() { findOne(ctx, t, customers(client)) },
		"insert": func() { insert(ctx, t, customers(client)) },
	} {
		for round := range 20 {
			before := counts(c, name)
			for i := range c.Servers() {
				c.Server(i).Heal(name)
				c.Server(i).Fail(name, mongotest.Fault{Code: hostUnreachable})
			}
			heal := onlyFirst(c, name)
			run()
			heal()
			after := counts(c, name)
			for i := range after {
				if n := after[i] - before[i]; n > 1 || i == 3 && n != 0 {
					t.Fatalf("%s, round %d: before %v, after %v; want one on each of two admitted servers", name, round, before, after)
				}
			}
		}
	}
}

// onlyFirst lets only the first command of a name fail, whichever server gets
// it: it heals the others at once.
func onlyFirst(c *mongotest.Cluster, command string) (stop func()) {
	var once sync.Once
	for i := range c.Servers() {
		s := c.Server(i)
		s.Heal(command)
		s.Handle(command, func(mongotest.Command) (bson.D, bool) {
			failed := false
			once.Do(func() { failed = true })
			if !failed {
				return nil, false
			}
			return bson.D{
				{Key: "ok", Value: 0.0},
				{Key: "code", Value: int32(hostUnreachable)},
				{Key: "errmsg", Value: "injected"},
				{Key: "errorLabels", Value: bson.A{"RetryableWriteError"}},
			}, true
		})
	}
	return func() {
		for i := range c.Servers() {
			c.Server(i).Handle(command, nil)
		}
	}
}

// With one admitted server the retry goes there again.
func TestRetryOnTheOnlyAdmitted(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 3)
	client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(1)), MongosForWrites: true})
	ctx := bounded(t)
	for range 10 {
		c.Server(1).Fail("find", mongotest.Fault{Code: hostUnreachable})
		findOne(ctx, t, customers(client))
		c.Server(1).Fail("insert", mongotest.Fault{Code: hostUnreachable})
		insert(ctx, t, customers(client))
	}
	wantCounts(t, c, "find", 0, 20, 0)
	wantCounts(t, c, "insert", 0, 20, 0)
}

// If a slow server is the only other one, the retry prefers it to the one that
// failed: what is avoided goes before the window is drawn (LAT-07).
func TestRetryPrefersASlowServer(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 2})
	c.Fill("app", "customers", 3)
	c.Server(1).SetDelay(far)
	client := open(t, narrow(c), mongoshard.Config{})
	untilKnown(t, client, 2)
	c.Server(0).Fail("find", mongotest.Fault{Code: hostUnreachable})
	findOne(bounded(t), t, customers(client))
	wantCounts(t, c, "find", 1, 1)
}

// What fails on every admitted server fails with the server's error after one
// retry, as without us. (With a deadline the driver repeats until then.)
func TestRetryThatFailsToo(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(0))})
	c.Server(0).Fail("find", mongotest.Fault{Code: hostUnreachable, Times: -1})
	err := customers(client).FindOne(t.Context(), bson.D{}).Err()
	var answer mongo.CommandError
	if !errors.As(err, &answer) || answer.Code != hostUnreachable || c.Server(0).Count("find") != 2 {
		t.Errorf("error %v after %d finds", err, c.Server(0).Count("find"))
	}
}

// After an election a write meets 10107 and is repeated on the new primary.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: streaming})
		client := open(t, uri(c), mongoshard.Config{Criteria: selection.Nearest()})
		ctx := bounded(t)
		insert(ctx, t, customers(client))
		c.Elect(2)
		insert(ctx, t, customers(client))
		if got := counts(c, "insert"); got[2] != 1 || got[1] != 0 {
			t.Errorf("inserts by server: %v, want one on the new primary", got)
		}
		if n, err := customers(client).CountDocuments(ctx, bson.D{}); err != nil || n != 2 {
			t.Errorf("%d documents, %v", n, err)
		}
	}
}

// A primary that dies is replaced; writers wait for the new one, and the
// driver's limit of connections made at once holds (LAT-10).
func TestWritersWaitForTheNewPrimary(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: true})
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	insert(ctx, t, customers(client))
	c.StepDown()
	var writers sync.WaitGroup
	for range 50 {
		writers.Go(func() {
			if _, err := customers(client).InsertOne(ctx, bson.D{}); err != nil {
				t.Error(err)
			}
		})
	}
	c.Elect(1)
	writers.Wait()
	if n, err := customers(client).CountDocuments(ctx, bson.D{}); err != nil || n != 51 {
		t.Errorf("%d documents, %v, want 51", n, err)
	}
}

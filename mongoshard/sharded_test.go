package mongoshard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// The seed example: several mongos, prefer the one on localhost.
func TestMongosOnLocalhost(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Hosts: []string{"", "localhost", ""}})
	c.Fill("app", "customers", 3)
	client := open(t, uri(c), mongoshard.Config{
		Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" }),
	})
	ctx := bounded(t)
	for range 30 {
		findOne(ctx, t, customers(client))
		if _, err := customers(client).CountDocuments(ctx, bson.D{}); err != nil {
			t.Fatal(err)
		}
	}
	wantCounts(t, c, "find", 0, 30, 0)
	wantCounts(t, c, "aggregate", 0, 30, 0)
	for _, p := range preferences(c.Server(1), "find") {
		if p != "" {
			t.Errorf("a mongos was sent $readPreference %s, want none: its shards read from primaries", p)
		}
	}
}

func TestWithoutCriteriaEveryMongosServes(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 3)
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	untilKnown(t, client, 3)
	for range 90 {
		findOne(ctx, t, customers(client))
		insert(ctx, t, customers(client))
	}
	for _, command := range []string{"find", "insert"} {
		if got := counts(c, command); slices.Min(got) < 10 {
			t.Errorf("%s by server: %v; one of them is left out", command, got)
		}
	}
}

// Writes use any mongos, and the option applies the predicate to them and to
// commands.
func TestMongosForWrites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		option bool
		only   bool
	}{"by default": {}, "by option": {option: true, only: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
			client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(1)), MongosForWrites: test.option})
			ctx := bounded(t)
			insert(ctx, t, customers(client))
			untilKnown(t, client, 3)
			for range 60 {
				insert(ctx, t, customers(client))
				if err := client.Database("app").RunCommand(ctx, one("ping", 1)).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, command := range []string{"insert", "ping"} {
				got := counts(c, command)
				if only := got[0]+got[2] == 0; only != test.only {
					t.Errorf("%s by server: %v", command, got)
				}
			}
		})
	}
}

// A read preference goes to the shards through the mongos, for the client, for
// another client and for one operation; a collection's own one is the driver's.
func TestReadPreferenceReachesTheShards(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 1})
	c.Fill("app", "customers", 1)
	o := uri(c)
	o.SetReadPreference(readpref.SecondaryPreferred())
	client := open(t, o, mongoshard.Config{})
	tagged := with(t, client, selection.Nearest(selection.Tags{"zone": "a", "disk": "ssd"}, selection.Tags{}, selection.MaxStaleness(2*time.Minute)))
	primary := with(t, client, selection.Primary())
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	findOne(ctx, t, customers(tagged))
	findOne(mongoshard.WithCriteria(ctx, selection.Secondary()), t, customers(tagged))
	findOne(mongoshard.WithCriteria(ctx, selection.Primary()), t, customers(tagged))
	findOne(ctx, t, customers(primary))
	findOne(ctx, t, customers(primary, ownPreference(readpref.PrimaryPreferred())))
	insert(ctx, t, customers(tagged))
	want := []string{
		`{"mode": "secondaryPreferred"}`,
		`{"mode": "nearest","tags": [{"disk": "ssd","zone": "a"},{}],"maxStalenessSeconds": {"$numberInt":"120"}}`,
		`{"mode": "secondary"}`,
		"",
		"",
		`{"mode": "primaryPreferred"}`,
	}
	wantTexts(t, want, preferences(c.Server(0), "find"))
	wantTexts(t, []string{""}, preferences(c.Server(0), "insert"))
}

// The application selector of the specification's prose test: the server with
// the highest port.
func TestHighestPort(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 1)
	highest := 0
	for i := range c.Servers() {
		if port(c.Server(i)) > port(c.Server(highest)) {
			highest = i
		}
	}
	limit := port(c.Server(highest))
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Port == limit })})
	ctx := bounded(t)
	for range 10 {
		findOne(ctx, t, customers(client))
	}
	if got := c.Server(highest).Count("find"); got != 10 {
		t.Errorf("%d of 10 finds on the highest port: %v", got, counts(c, "find"))
	}
}

// The prose test of operationCount-based selection: a server that answers
// slowly gets less, and its share again when it is quick (LAT-05).
func TestFewerOperationsToASlowMongos(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 2})
	c.Fill("app", "customers", 1)
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	untilKnown(t, client, 2)
	finds := func(each int) (first, second int) {
		before := counts(c, "find")
		var running sync.WaitGroup
		for range 10 {
			running.Go(func() {
				for range each {
					findOne(ctx, t, customers(client))
				}
			})
		}
		running.Wait()
		after := counts(c, "find")
		return after[0] - before[0], after[1] - before[1]
	}
	c.Server(0).Fail("find", mongotest.Fault{Delay: 500 * time.Millisecond, Times: -1})
	if slow, quick := finds(10); slow*4 >= slow+quick {
		t.Errorf("the slow server got %d, the quick one %d, want less than a quarter", slow, quick)
	}
	c.Server(0).Heal("find")
	if a, b := finds(100); a < 400 || b < 400 {
		t.Errorf("%d and %d of 1000 finds on equal servers, want 500 ± 100 each", a, b)
	}
}

// The in-flight count is zero again when the operations have ended, cursors and
// failures included.
func TestInFlightReturnsToZero(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 50)
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	cursor, err := customers(client).Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		cursor.Next(ctx)
	}
	if err := cursor.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range c.Servers() {
		c.Server(i).Fail("find", mongotest.Fault{Drop: true})
		c.Server(i).Fail("find", mongotest.Fault{Code: 2, Times: 2})
	}
	for range 20 {
		_ = customers(client).FindOne(ctx, bson.D{}).Err() // some of them fail
	}
	expired, cancel := context.WithCancel(ctx)
	cancel()
	if err := customers(client).FindOne(expired, bson.D{}).Err(); err == nil {
		t.Error("an operation succeeded after its context had ended")
	}
	set, err := mongoshard.Servers(client)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range set.Servers() {
		if n := s.InFlight(); n != 0 {
			t.Errorf("server %s has %d operations in flight", s.Address, n)
		}
	}
}

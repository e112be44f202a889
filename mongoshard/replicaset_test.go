package mongoshard_test

import (
	"context"
	"strings"
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

// set starts a replica set of three with the given tag zones.
func set(t *testing.T, zones ...string) *mongotest.Cluster {
	t.Helper()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Fill("app", "customers", 3)
	for i, zone := range zones {
		c.Server(i).SetTags(map[string]string{"zone": zone})
	}
	return c
}

// A predicate sees what the driver knows of each server; writes go to the
// primary although the predicate excludes it.
func TestPredicateOnEveryFact(t *testing.T) {
	t.Parallel()
	c := set(t, "a", "b", "b")
	c.Server(2).SetTags(map[string]string{"zone": "b", "disk": "ssd"})
	c.Server(2).SetLag(30 * time.Second)
	c.Server(1).SetMaxWireVersion(21)
	client := open(t, uri(c), mongoshard.Config{})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	untilKnown(t, client, 3)
	started := time.Now()
	for name, test := range map[string]struct {
		predicate func(selection.ServerInfo) bool
		want      int
	}{
		"address": {func(s selection.ServerInfo) bool { return s.Address == c.Server(1).Addr() }, 1},
		"port":    {func(s selection.ServerInfo) bool { return s.Port == port(c.Server(2)) }, 2},
		"type":    {func(s selection.ServerInfo) bool { return s.Role == topology.RolePrimary }, 0},
		"tags": {func(s selection.ServerInfo) bool {
			disk, ok := s.Tags.Get("disk")
			return ok && disk == "ssd"
		}, 2},
		"last write": {func(s selection.ServerInfo) bool {
			return !s.LastWrite.IsZero() && started.Sub(s.LastWrite) > 20*time.Second
		}, 2},
		"wire version": {func(s selection.ServerInfo) bool { return s.MaxWireVersion == 21 && s.MinWireVersion == 0 }, 1},
		"staleness":    {func(s selection.ServerInfo) bool { d, known := s.Staleness.Value(); return known && d > 20*time.Second }, 2},
		"the rest": {func(s selection.ServerInfo) bool {
			return s.SetName == "rs0" && s.SetVersion == 1 && s.Err == nil && s.AverageRTT.Known() && !s.LastUpdate.IsZero() &&
				s.InFlight() == 0 && s.Kind == topology.KindReplicaSetWithPrimary && s.Role == topology.RolePrimary
		}, 0},
	} {
		ctx := mongoshard.WithCriteria(ctx, selection.Where(test.predicate))
		before := counts(c, "find")
		for range 5 {
			findOne(ctx, t, customers(client))
			insert(ctx, t, customers(client))
		}
		for i, n := range counts(c, "find") {
			if want := map[bool]int{true: 5}[i == test.want]; n-before[i] != want {
				t.Errorf("%s: server %d got %d finds, want %d", name, i, n-before[i], want)
			}
		}
	}
	if got := counts(c, "insert"); got[0] != 40 {
		t.Errorf("inserts by server: %v, want all on the primary", got)
	}
}

// The nearest criteria win: the operation's, else those of the client that With
// made, else those of the first client.
func TestNearestCriteriaWin(t *testing.T) {
	t.Parallel()
	c := set(t)
	first := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(0))})
	second := with(t, first, at(c.Server(1)))
	ctx := bounded(t)
	findOne(ctx, t, customers(first))
	wantCounts(t, c, "find", 1, 0, 0)
	findOne(ctx, t, customers(second))
	wantCounts(t, c, "find", 1, 1, 0)
	findOne(mongoshard.WithCriteria(ctx, at(c.Server(2))), t, customers(second))
	wantCounts(t, c, "find", 1, 1, 1)
	findOne(ctx, t, customers(first, ownPreference(readpref.Secondary())))
	if got := counts(c, "find"); got[0] != 1 {
		t.Errorf("finds by server: %v; the collection's own read preference is secondary", got)
	}
	before := c.Server(0).Count("find")
	findOne(mongoshard.WithCriteria(ctx, at(c.Server(0))), t, customers(first, ownPreference(readpref.Secondary())))
	if got := c.Server(0).Count("find") - before; got != 1 {
		t.Error("the operation's criteria did not win over the collection's read preference")
	}
	with := []string{`{"mode": "primaryPreferred"}`, `{"mode": "secondary"}`} // the driver sends the collection's
	wantTexts(t, with, preferences(c.Server(0), "find"))
}

// What must use the primary does, whatever the predicate says.
func TestCommandsUseThePrimary(t *testing.T) {
	t.Parallel()
	c := set(t)
	client := open(t, uri(c), mongoshard.Config{Criteria: at(c.Server(2)), MongosForWrites: true})
	ctx := bounded(t)
	db := client.Database("app")
	for name, run := range map[string]func() error{
		"listCollections": func() error { _, err := db.ListCollectionNames(ctx, bson.D{}); return err },
		"listDatabases":   func() error { _, err := client.ListDatabaseNames(ctx, bson.D{}); return err },
		"listIndexes":     func() error { _, err := customers(client).Indexes().List(ctx); return err },
		"buildInfo":       func() error { return db.RunCommand(ctx, one("buildInfo", 1)).Err() },
		"createIndexes": func() error {
			_, err := customers(client).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: one("i", 1)})
			return err
		},
		"findAndModify": func() error { return customers(client).FindOneAndDelete(ctx, one("_id", 1)).Err() },
		"bulkWrite": func() error {
			_, err := client.BulkWrite(ctx, []mongo.ClientBulkWrite{{Database: "app", Collection: "customers", Model: mongo.NewClientInsertOneModel().SetDocument(bson.D{})}})
			return err
		},
	} {
		if err := run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := counts(c, name); got[0] != 1 || got[2] != 0 {
			t.Errorf("%s by server: %v, want the primary", name, got)
		}
	}
	for _, command := range c.Server(0).Commands() {
		if _, err := command.Body.LookupErr("$readPreference"); err == nil {
			t.Errorf("%s was sent with a read preference: %s", command.Name, command.Body)
		}
	}
}

// reads are all operations that read, by the command that they send.
func reads(client *mongo.Client) map[string]func(context.Context) error {
	c := customers(client)
	return map[string]func(context.Context) error{
		"find":     func(ctx context.Context) error { return c.FindOne(ctx, bson.D{}).Err() },
		"count":    func(ctx context.Context) error { _, err := c.EstimatedDocumentCount(ctx); return err },
		"distinct": func(ctx context.Context) error { return c.Distinct(ctx, "i", bson.D{}).Err() },
		"aggregate": func(ctx context.Context) error {
			_, err := c.CountDocuments(ctx, bson.D{})
			return err
		},
		"change stream": func(ctx context.Context) error {
			stream, err := c.Watch(ctx, mongo.Pipeline{})
			if err != nil {
				return err
			}
			return stream.Close(ctx)
		},
	}
}

// Each way of reading passes the same predicate and the same latency window
// (LAT-02), and tells the member that any role may answer.
func TestEveryReadSelectsTheSame(t *testing.T) {
	t.Parallel()
	c := set(t, "a", "b", "b")
	c.Server(2).SetDelay(far)
	client := open(t, narrow(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool {
		zone, _ := s.Tags.Get("zone")
		return zone == "b"
	})})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	untilKnown(t, client, 3)
	seen := len(c.Server(1).Commands()) + len(c.Server(2).Commands())
	for name, read := range reads(client) {
		for range 3 {
			if err := read(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	commands := c.Server(1).Commands()
	if far := len(c.Server(2).Commands()); far > 1 || len(c.Server(0).Commands()) != 0 {
		t.Errorf("%d commands outside the window, %d outside the predicate", far, len(c.Server(0).Commands()))
	}
	if len(commands) < seen+15 {
		t.Errorf("%d commands, want at least %d", len(commands), seen+15)
	}
	for _, command := range commands {
		mode, _ := command.Body.Lookup("$readPreference", "mode").StringValueOK()
		if mode != "primaryPreferred" && command.Name != "getMore" && command.Name != "killCursors" {
			t.Errorf("%s was sent with mode %q", command.Name, mode)
		}
	}
}

// A server outside the latency window is used if the predicate leaves only it.
func TestWindowIsOfTheAdmitted(t *testing.T) {
	t.Parallel()
	c := set(t)
	c.Server(1).SetDelay(far)
	client := open(t, narrow(c), mongoshard.Config{Criteria: at(c.Server(1))})
	ctx := bounded(t)
	findOne(ctx, t, customers(client))
	wantCounts(t, c, "find", 0, 1, 0)
	untilKnown(t, client, 3)
	near := with(t, client, selection.Nearest())
	for range 20 {
		findOne(ctx, t, customers(near))
	}
	if got := c.Server(1).Count("find"); got != 1 {
		t.Errorf("finds by server: %v; server 1 is far away", counts(c, "find"))
	}
}

// Round trips are those of the last heartbeats, not of the first (LAT-03).
func TestRoundTripsStayCurrent(t *testing.T) {
	t.Parallel()
	c := set(t)
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool {
		rtt, known := s.AverageRTT.Value()
		return known && rtt > far/4
	})})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	c.Server(2).SetDelay(far)
	findOne(ctx, t, customers(client)) // waits until the average has grown
	wantCounts(t, c, "find", 0, 0, 1)
}

// Lags of 0, 300 and 20 s with a limit of 90 s; one member was never reached
// and does not matter (LAG-06).
func TestMaxStaleness(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 4})
	c.Fill("app", "customers", 3)
	c.Server(1).SetLag(300 * time.Second)
	c.Server(2).SetLag(20 * time.Second)
	c.Server(3).Stop()
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Secondary(selection.MaxStaleness(90 * time.Second))})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	for range 20 {
		findOne(ctx, t, customers(client))
	}
	wantCounts(t, c, "find", 0, 0, 20, 0)
}

// secondaryPreferred never uses the primary while a secondary suits, however
// near it is, and always when none does (LAT-08).
func TestSecondaryPreferred(t *testing.T) {
	t.Parallel()
	c := set(t)
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.SecondaryPreferred()})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	for range 50 {
		findOne(ctx, t, customers(client))
	}
	if got := counts(c, "find"); got[0] != 0 || got[1] == 0 || got[2] == 0 {
		t.Errorf("finds by server: %v, want both secondaries only", got)
	}
	c.Server(1).Stop()
	c.Server(2).Stop()
	untilKnown(t, client, 1)
	findOne(ctx, t, customers(client))
	if got := c.Server(0).Count("find"); got != 1 {
		t.Errorf("%d finds on the primary, want 1", got)
	}
}

// Tag sets are tried in order, and the empty one is the last resort (LAT-09).
func TestTagSetsInOrder(t *testing.T) {
	t.Parallel()
	c := set(t, "west", "east", "west")
	o := uri(c).ApplyURI(c.URI() + "&readPreference=nearest&readPreferenceTags=zone:east&readPreferenceTags=")
	client := open(t, o, mongoshard.Config{})
	ctx := bounded(t)
	untilKnown(t, client, 3)
	for range 20 {
		findOne(ctx, t, customers(client))
	}
	wantCounts(t, c, "find", 0, 20, 0)
	c.Server(1).Stop()
	untilKnown(t, client, 2)
	findOne(ctx, t, customers(client))
	if got := counts(c, "find"); got[0]+got[2] != 1 {
		t.Errorf("finds by server: %v, want one elsewhere", got)
	}
}

// Members that call themselves by other names than the seeds are found by
// their own (DSN-06).
func TestMembersHaveTheirOwnNames(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Hosts: []string{"localhost", "localhost", "localhost"}})
	c.Fill("app", "customers", 3)
	o := options.Client().ApplyURI(strings.ReplaceAll(c.URI(), "localhost", "127.0.0.1")).SetServerSelectionTimeout(20 * time.Second)
	client := open(t, o, mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" && s.Role == topology.RoleSecondary })})
	findOne(bounded(t), t, customers(client))
	if got := counts(c, "find"); got[0] != 0 {
		t.Errorf("finds by server: %v", got)
	}
}

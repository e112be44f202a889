package mongoshard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/tag"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/selection"
)

// The canaries guard what this package assumes of the driver and the driver
// does not promise. TestDriverVersions runs them with other versions of it.

// spy is a handle that notes each selector.
type spy struct {
	*handle
	mu    sync.Mutex
	calls []call
}

type call struct {
	purpose     purpose
	transaction bool
	marked      bool // the caller's context value arrived
	spared      []string
}

type canaryKey struct{}

func (s *spy) SelectServer(ctx context.Context, selector description.ServerSelector) (driver.Server, error) {
	c := call{purpose: classify(selector), transaction: inTransaction(ctx), marked: ctx.Value(canaryKey{}) == "tweet"}
	if c.purpose != forPin {
		for _, at := range spared(selector, s.handle.Topology.Description().Servers) {
			c.spared = append(c.spared, at.String())
		}
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	return s.handle.SelectServer(ctx, selector)
}

// take returns the calls since the last take.
func (s *spy) take() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// watch connects a client whose selectors are noted.
func watch(t *testing.T, c *mongotest.Cluster) (*mongo.Client, *spy) {
	t.Helper()
	o, err := checkedOptions(options.Client().ApplyURI(c.URI()).SetHeartbeatInterval(500 * time.Millisecond).SetServerSelectionTimeout(20 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	o.ReadPreference = marked()
	d, err := newDeployment(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &spy{handle: &handle{Topology: d.topology, deployment: d, rule: newRule(selection.Criteria{})}}
	if err := xoptions.SetInternalClientOptions(o, "deployment", s); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for known := 0; known < c.Servers(); {
		known = 0
		for _, s := range d.topology.Description().Servers {
			if s.Kind != description.Unknown {
				known++
			}
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the servers are not known")
		}
	}
	return client, s
}

// operation is one way of using the driver.
type operation struct {
	name string
	want purpose
	run  func(context.Context, *mongo.Client) error
}

func collection(client *mongo.Client, p *readpref.ReadPref) *mongo.Collection {
	o := options.Collection()
	if p != nil {
		o.SetReadPreference(p)
	}
	return client.Database("app").Collection("customers", o)
}

func some(client *mongo.Client) *mongo.Collection { return collection(client, nil) }

func field(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// operations are those of the driver, one for each path to a selector.
var operations = []operation{
	{"find", forRead, func(ctx context.Context, c *mongo.Client) error { return some(c).FindOne(ctx, bson.D{}).Err() }},
	{"count", forRead, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).CountDocuments(ctx, bson.D{})
		return err
	}},
	{"estimated count", forRead, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).EstimatedDocumentCount(ctx)
		return err
	}},
	{"distinct", forRead, func(ctx context.Context, c *mongo.Client) error { return some(c).Distinct(ctx, "i", bson.D{}).Err() }},
	{"aggregate", forRead, func(ctx context.Context, c *mongo.Client) error {
		cursor, err := some(c).Aggregate(ctx, mongo.Pipeline{field("$match", bson.D{})})
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	}},
	{"aggregate with $out", forRead, func(ctx context.Context, c *mongo.Client) error {
		cursor, err := some(c).Aggregate(ctx, mongo.Pipeline{field("$out", "copy")})
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	}},
	{"change stream", forRead, func(ctx context.Context, c *mongo.Client) error {
		stream, err := some(c).Watch(ctx, mongo.Pipeline{})
		if err != nil {
			return err
		}
		return stream.Close(ctx)
	}},
	{"change stream of all", forRead, func(ctx context.Context, c *mongo.Client) error {
		stream, err := c.Watch(ctx, mongo.Pipeline{})
		if err != nil {
			return err
		}
		return stream.Close(ctx)
	}},
	{"ping", forRead, func(ctx context.Context, c *mongo.Client) error { return c.Ping(ctx, nil) }},
	{"GridFS download", forRead, func(ctx context.Context, c *mongo.Client) error {
		cursor, err := c.Database("app").GridFSBucket().Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	}},

	{"find of a secondary", forOwnPreference, own(readpref.Secondary())},
	{"find of the nearest", forOwnPreference, own(readpref.Nearest())},
	{"find of a preferred secondary", forOwnPreference, own(readpref.SecondaryPreferred())},
	{"find of the preferred primary", forOwnPreference, own(readpref.PrimaryPreferred())},
	{"find with max staleness", forOwnPreference, own(readpref.Nearest(readpref.WithMaxStaleness(2 * time.Minute)))},
	{"find of the primary", forCommand, own(readpref.Primary())},
	{"find with tags and a fallback", forCommand, own(readpref.SecondaryPreferred(readpref.WithTagSets(tag.Set{{Name: "zone", Value: "a"}})))},

	{"command", forCommand, func(ctx context.Context, c *mongo.Client) error {
		return c.Database("app").RunCommand(ctx, field("ping", 1)).Err()
	}},
	{"command of a secondary", forOwnPreference, func(ctx context.Context, c *mongo.Client) error {
		return c.Database("app").RunCommand(ctx, field("ping", 1), options.RunCmd().SetReadPreference(readpref.Secondary())).Err()
	}},
	{"list of databases", forCommand, func(ctx context.Context, c *mongo.Client) error {
		_, err := c.ListDatabaseNames(ctx, bson.D{})
		return err
	}},
	{"list of collections", forCommand, func(ctx context.Context, c *mongo.Client) error {
		_, err := c.Database("app").ListCollectionNames(ctx, bson.D{})
		return err
	}},
	{"list of indexes", forCommand, func(ctx context.Context, c *mongo.Client) error {
		cursor, err := some(c).Indexes().List(ctx)
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	}},

	{"insert", forWrite, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).InsertOne(ctx, bson.D{})
		return err
	}},
	{"update", forWrite, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).UpdateOne(ctx, field("_id", 1), field("$set", field("a", 1)))
		return err
	}},
	{"delete", forWrite, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).DeleteOne(ctx, field("_id", -1))
		return err
	}},
	{"find and update", forWrite, func(ctx context.Context, c *mongo.Client) error {
		return some(c).FindOneAndUpdate(ctx, field("_id", 1), field("$set", field("a", 2))).Err()
	}},
	{"find and replace", forWrite, func(ctx context.Context, c *mongo.Client) error {
		return some(c).FindOneAndReplace(ctx, field("_id", 1), field("a", 2)).Err()
	}},
	{"bulk write", forWrite, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).BulkWrite(ctx, []mongo.WriteModel{mongo.NewInsertOneModel().SetDocument(bson.D{})})
		return err
	}},
	{"bulk write of the client", forWrite, func(ctx context.Context, c *mongo.Client) error {
		model := mongo.NewClientInsertOneModel().SetDocument(bson.D{})
		_, err := c.BulkWrite(ctx, []mongo.ClientBulkWrite{{Database: "app", Collection: "customers", Model: model}})
		return err
	}},
	{"create", forWrite, func(ctx context.Context, c *mongo.Client) error {
		return c.Database("app").CreateCollection(ctx, "fresh"+bson.NewObjectID().Hex())
	}},
	{"create index", forWrite, func(ctx context.Context, c *mongo.Client) error {
		_, err := some(c).Indexes().CreateOne(ctx, mongo.IndexModel{Keys: field("a", 1)})
		return err
	}},
	{"drop index", forWrite, func(ctx context.Context, c *mongo.Client) error { return some(c).Indexes().DropOne(ctx, "a_1") }},
	{"drop", forWrite, func(ctx context.Context, c *mongo.Client) error {
		return c.Database("app").Collection("fresh").Drop(ctx)
	}},
	{"drop database", forWrite, func(ctx context.Context, c *mongo.Client) error { return c.Database("other").Drop(ctx) }},
}

func own(p *readpref.ReadPref) func(context.Context, *mongo.Client) error {
	return func(ctx context.Context, c *mongo.Client) error { return collection(c, p).FindOne(ctx, bson.D{}).Err() }
}

// Each operation selects once, with the caller's context, and shows what it is,
// also within a transaction that has not begun on a server yet.
func TestCanaryOperations(t *testing.T) {
	t.Parallel()
	for _, kind := range []mongotest.Kind{mongotest.Sharded, mongotest.ReplicaSet} {
		c := mongotest.New(t, mongotest.Options{Kind: kind})
		c.Fill("app", "customers", 3)
		client, s := watch(t, c)
		ctx := context.WithValue(t.Context(), canaryKey{}, "tweet")
		for _, o := range operations {
			s.take()
			if err := o.run(ctx, client); err != nil {
				t.Errorf("kind %d, %s: %v", kind, o.name, err)
			}
			want := []call{{purpose: o.want, marked: true}}
			if diff := cmp.Diff(want, s.take(), cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("kind %d, %s (-want +got):\n%s", kind, o.name, diff)
			}
		}
	}
}

// Cursors never select again.
func TestCanaryCursors(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 50)
	client, s := watch(t, c)
	cursor, err := some(client).Find(t.Context(), bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	for range 25 {
		cursor.Next(t.Context())
	}
	if err := cursor.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); len(got) != 1 || c.Count("getMore") < 2 || c.Count("killCursors") != 1 {
		t.Errorf("%d selections, %d getMore, %d killCursors", len(got), c.Count("getMore"), c.Count("killCursors"))
	}
}

// A transaction shows through the session in the context; in a sharded cluster
// its selectors are pinned after the first operation, to the end.
func TestCanaryTransactions(t *testing.T) {
	t.Parallel()
	for kind, want := range map[mongotest.Kind][]call{
		mongotest.Sharded: {
			{purpose: forRead, transaction: true, marked: true},
			{purpose: forPin, transaction: true, marked: true},
			{purpose: forPin, transaction: true, marked: true},
			{purpose: forPin, marked: true},
		},
		mongotest.ReplicaSet: {
			{purpose: forRead, transaction: true, marked: true},
			{purpose: forWrite, transaction: true, marked: true},
			{purpose: forRead, transaction: true, marked: true},
			{purpose: forWrite, marked: true},
		},
	} {
		c := mongotest.New(t, mongotest.Options{Kind: kind})
		c.Fill("app", "customers", 1)
		client, s := watch(t, c)
		for _, end := range []func(*mongo.Session, context.Context) error{(*mongo.Session).CommitTransaction, (*mongo.Session).AbortTransaction} {
			s.take()
			err := client.UseSession(context.WithValue(t.Context(), canaryKey{}, "tweet"), func(ctx context.Context) error {
				session := mongo.SessionFromContext(ctx)
				if err := session.StartTransaction(); err != nil {
					return err
				}
				if err := some(client).FindOne(ctx, bson.D{}).Err(); err != nil {
					return err
				}
				if _, err := some(client).InsertOne(ctx, bson.D{}); err != nil {
					return err
				}
				if err := some(client).FindOne(ctx, bson.D{}).Err(); err != nil {
					return err
				}
				return end(session, ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			got := s.take()
			if len(got) == len(want) {
				got[len(got)-1].transaction = false // the driver may say either of a transaction that ends
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("kind %d (-want +got):\n%s", kind, diff)
			}
		}
	}
}

// A retry in a sharded cluster spares the servers that failed before, and shows
// their addresses when it is asked about all.
func TestCanaryRetries(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 1)
	client, s := watch(t, c)
	for name, run := range map[string]func(context.Context) error{
		"find":   func(ctx context.Context) error { return some(client).FindOne(ctx, bson.D{}).Err() },
		"insert": func(ctx context.Context) error { _, err := some(client).InsertOne(ctx, bson.D{}); return err },
	} {
		for i := range c.Servers() {
			c.Server(i).Fail(name, mongotest.Fault{Code: 6})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // with a deadline the driver repeats until then
		if err := run(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		calls := s.take()
		if len(calls) != 4 {
			t.Fatalf("%s: %d selections, want 4", name, len(calls))
		}
		for i, call := range calls[:3] {
			if len(call.spared) != i || len(slices.Compact(slices.Sorted(slices.Values(call.spared)))) != i {
				t.Errorf("%s: attempt %d spares %v", name, i, call.spared)
			}
		}
	}
}

// A description that the driver replaces is another one: its servers stand
// elsewhere. The views rely on it.
func TestCanaryDescriptions(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	_, s := watch(t, c)
	before := s.handle.Topology.Description()
	v, _, err := s.handle.deployment.look()
	if err != nil {
		t.Fatal(err)
	}
	texts := fmt.Sprint(before.Servers)
	subscription, err := s.handle.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	<-subscription.Updates // the current one
	<-subscription.Updates // a heartbeat's
	if v.of(s.handle.Topology.Description()) {
		t.Error("a heartbeat left the description in place: round trips would never change")
	}
	if got := fmt.Sprint(before.Servers); got != texts {
		t.Errorf("a description changed in place:\n%s\n%s", texts, got)
	}
}

package mongotest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway/internal/mongotest"
)

func TestEachKindServesTheDriver(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]mongotest.Options{
		"sharded": {Kind: mongotest.Sharded}, "replica_set": {Kind: mongotest.ReplicaSet, Streaming: true},
		"standalone": {Kind: mongotest.Standalone}, "load_balanced": {Kind: mongotest.LoadBalanced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mongotest.New(t, o)
			customers := connect(t, c).Database("app").Collection("customers")
			ctx := bounded(t)
			if _, err := customers.InsertMany(ctx, []bson.D{one("_id", 1), one("_id", 2), one("_id", 3)}); err != nil {
				t.Fatal(err)
			}
			if _, err := customers.UpdateOne(ctx, one("_id", 2), one("$set", one("name", "b"))); err != nil {
				t.Fatal(err)
			}
			if _, err := customers.DeleteOne(ctx, one("_id", 1)); err != nil {
				t.Fatal(err)
			}
			cursor, err := customers.Find(ctx, bson.D{}, options.Find().SetSort(one("_id", -1)))
			if err != nil {
				t.Fatal(err)
			}
			var got []bson.M
			if err := cursor.All(ctx, &got); err != nil {
				t.Fatal(err)
			}
			want := []bson.M{{"_id": int32(3)}, {"_id": int32(2), "name": "b"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if c.Count("insert") != 1 || c.Count("find") != 1 {
				t.Errorf("insert %d times, find %d times", c.Count("insert"), c.Count("find"))
			}
		})
	}
}

func TestCursorStaysOnItsServer(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 95)
	ctx := bounded(t)
	cursor, err := connect(t, c).Database("app").Collection("customers").Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for cursor.Next(ctx) {
		n++
	}
	if err := cursor.Err(); err != nil || n != 95 {
		t.Fatalf("%d documents, %v", n, err)
	}
	for i := range c.Servers() {
		want := 9 * c.Server(i).Count("find") // 10 batches, all where the first came from
		if got := c.Server(i).Count("getMore"); got != want {
			t.Errorf("server %d: %d of getMore, want %d", i, got, want)
		}
	}

	half, err := connect(t, c).Database("app").Collection("customers").Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for i := range c.Servers() {
		open += c.Server(i).Cursors()
	}
	if open != 1 {
		t.Errorf("%d cursors are open, want 1", open)
	}
	foreign := c.Server(0)
	if foreign.Cursors() == 1 {
		foreign = c.Server(1)
	}
	direct := connect(t, c, options.Client().SetHosts([]string{foreign.Addr()}).SetDirect(true))
	err = direct.Database("app").RunCommand(ctx, bson.D{{Key: "getMore", Value: half.ID()}, {Key: "collection", Value: "customers"}}).Err()
	if got := code(err); got != 43 {
		t.Errorf("getMore on another server: %v, want code 43", err)
	}
	if err := half.Close(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "killCursors", func() bool { return c.Count("killCursors") == 1 })
}

func code(err error) int32 {
	var e mongo.CommandError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestRetryableWriteAfterAnElection(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	customers := connect(t, c).Database("app").Collection("customers")
	ctx := bounded(t)
	if _, err := customers.InsertOne(ctx, one("_id", 1)); err != nil {
		t.Fatal(err)
	}
	c.Elect(2)
	if _, err := customers.InsertOne(ctx, one("_id", 2)); err != nil {
		t.Fatal(err)
	}
	if got := c.Server(2).Count("insert"); got != 1 {
		t.Errorf("the new primary got %d inserts, want 1", got)
	}
	if got := c.Server(0).Count("insert"); got > 2 {
		t.Errorf("the old primary got %d inserts", got)
	}
}

func TestWriteWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	customers := connect(t, c).Database("app").Collection("customers")
	ctx := bounded(t)
	c.Fill("app", "customers", 1)
	c.Server(0).Fail("update", mongotest.Fault{Drop: true, AfterReply: true})
	if _, err := customers.UpdateOne(ctx, one("_id", 0), one("$inc", one("i", 1))); err != nil {
		t.Fatal(err)
	}
	var got bson.M
	if err := customers.FindOne(ctx, one("_id", 0)).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got["i"] != int32(1) || c.Count("update") != 2 {
		t.Errorf("i = %v after %d updates, want 1 after 2", got["i"], c.Count("update"))
	}
}

func TestReadsFollowRoles(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 5, Streaming: true})
	c.Server(2).SetRole(mongotest.Hidden)
	c.Server(3).SetRole(mongotest.Arbiter)
	c.Server(4).SetRole(mongotest.Recovering)
	c.Server(1).SetTags(map[string]string{"zone": "a"})
	c.Fill("app", "customers", 3)
	preference, err := readpref.New(readpref.SecondaryMode, readpref.WithTags("zone", "a"))
	if err != nil {
		t.Fatal(err)
	}
	customers := connect(t, c).Database("app").Collection("customers", options.Collection().SetReadPreference(preference))
	for range 10 {
		if err := customers.FindOne(bounded(t), bson.D{}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Server(1).Count("find"); got != 10 {
		t.Errorf("the tagged secondary answered %d finds, want 10", got)
	}

	body := c.Server(1).Commands()[0].Body
	if mode := body.Lookup("$readPreference", "mode").StringValue(); mode != "secondary" {
		t.Errorf("mode %q on the wire", mode)
	}
}

// A member that is asked in spite of its role answers as MongoDB does.
func TestRolesRefuse(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 3})
	c.Server(2).SetRole(mongotest.Recovering)
	for _, tc := range []struct {
		server  int
		command bson.D
		want    int32
	}{
		{1, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{one("_id", 1)}}}, 10107},
		{2, bson.D{{Key: "find", Value: "c"}}, 13436},
	} {
		direct := connect(t, c, options.Client().SetHosts([]string{c.Server(tc.server).Addr()}).SetDirect(true).SetReplicaSet("rs0"))
		if err := direct.Database("app").RunCommand(bounded(t), tc.command).Err(); code(err) != tc.want {
			t.Errorf("server %d, %v: %v, want code %d", tc.server, tc.command[0], err, tc.want)
		}
	}
}

func TestShardedTransactionIsPinned(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	client := connect(t, c)
	customers := client.Database("app").Collection("customers")
	ctx := bounded(t)
	for round := range 4 {
		session, err := client.StartSession()
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			for i := range 5 {
				if _, err := customers.InsertOne(ctx, one("_id", 10*round+i)); err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		session.EndSession(ctx)
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Servers() {
		s := c.Server(i)
		if s.Count("insert") != 5*s.Count("commitTransaction") {
			t.Errorf("server %d: %d inserts and %d commits", i, s.Count("insert"), s.Count("commitTransaction"))
		}
	}
	if n, err := customers.CountDocuments(ctx, bson.D{}); err != nil || n != 20 {
		t.Errorf("%d documents, %v", n, err)
	}
}

func TestStreamedHelloTellsOfAnElectionAtOnce(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: true})
	var mu sync.Mutex
	primary, awaited := "", 0
	monitor := &event.ServerMonitor{
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range e.NewDescription.Servers {
				if s.Kind == "RSPrimary" {
					primary = s.Addr.String()
				}
			}
		},
		ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
			mu.Lock()
			defer mu.Unlock()
			if e.Awaited {
				awaited++
			}
		},
	}
	// With heartbeats an hour apart only the stream can tell.
	connect(t, c, options.Client().SetServerMonitor(monitor).SetHeartbeatInterval(time.Hour))
	// A driver that is told to end while it begins to read a stream waits for the next message of it.
	t.Cleanup(c.Close)
	is := func(want string) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return primary == want }
	}
	until(t, "the first primary", is(c.Server(0).Addr()))
	c.Elect(1)
	until(t, "the second primary", is(c.Server(1).Addr()))
	mu.Lock()
	defer mu.Unlock()
	if awaited == 0 {
		t.Error("no heartbeat was awaited")
	}
}

// A client that knows less than the newest version, or that of a process that is gone, does not wait for a change.
func TestHelloOfAnOldVersionIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone, Streaming: true})
	c.Server(0).SetDelay(0) // a change
	db := connect(t, c).Database("admin")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var now struct {
		TopologyVersion struct {
			ProcessID bson.ObjectID `bson:"processId"`
			Counter   int64         `bson:"counter"`
		} `bson:"topologyVersion"`
	}
	if err := db.RunCommand(ctx, one("hello", 1)).Decode(&now); err != nil || now.TopologyVersion.Counter == 0 {
		t.Fatal(now, err)
	}
	process, counter := now.TopologyVersion.ProcessID, now.TopologyVersion.Counter
	for _, known := range []bson.D{
		{{Key: "processId", Value: process}, {Key: "counter", Value: counter - 1}},
		{{Key: "processId", Value: bson.NewObjectID()}, {Key: "counter", Value: counter}},
	} {
		command := bson.D{{Key: "hello", Value: 1}, {Key: "topologyVersion", Value: known}, {Key: "maxAwaitTimeMS", Value: time.Hour.Milliseconds()}}
		if err := db.RunCommand(ctx, command).Err(); err != nil {
			t.Errorf("%v: %v", known, err)
		}
	}
}

func TestStopAndRestart(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Servers: 2})
	c.Fill("app", "customers", 1)
	customers := connect(t, c).Database("app").Collection("customers")
	addr := c.Server(0).Addr()
	until(t, "a find on each mongos: the driver knows both", func() bool {
		return customers.FindOne(t.Context(), bson.D{}).Err() == nil && c.Server(0).Count("find") > 0 && c.Server(1).Count("find") > 0
	})
	c.Server(0).Stop()
	gone, living := c.Server(0).Count("find"), c.Server(1).Count("find")
	for range 20 {
		if err := customers.FindOne(bounded(t), bson.D{}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Server(1).Count("find") - living; got < 20 {
		t.Errorf("the living mongos answered %d finds", got)
	}
	c.Server(0).Restart()
	until(t, "a find on the mongos that came back", func() bool {
		return customers.FindOne(t.Context(), bson.D{}).Err() == nil && c.Server(0).Count("find") > gone
	})
	if c.Server(0).Addr() != addr {
		t.Errorf("address %s, was %s", c.Server(0).Addr(), addr)
	}
}

func TestFaultsAndAnswers(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone})
	db := connect(t, c, options.Client().SetRetryReads(false)).Database("app")
	ctx, s := bounded(t), c.Server(0)
	s.Fail("ping", mongotest.Fault{Code: 189, Labels: []string{"L"}, Message: "stepped down", Times: 2})
	s.Fail("ping", mongotest.Fault{Code: 6})
	for _, want := range []int32{189, 189, 6, 0} {
		err := db.RunCommand(ctx, one("ping", 1)).Err()
		if code(err) != want {
			t.Errorf("ping: %v, want code %d", err, want)
		}
		var e mongo.CommandError
		if want == 189 && errors.As(err, &e) && (e.Message != "stepped down" || !e.HasErrorLabel("L")) {
			t.Errorf("ping: %v with labels %v", err, e.Labels)
		}
	}
	s.Fail("*", mongotest.Fault{Drop: true, Times: -1})
	if err := db.RunCommand(ctx, one("ping", 1)).Err(); !mongo.IsNetworkError(err) {
		t.Errorf("a dropped ping: %v", err)
	}
	s.Heal("*")
	s.Handle("ping", func(command mongotest.Command) (bson.D, bool) {
		return bson.D{{Key: "db", Value: command.DB}, {Key: "ok", Value: 1}}, true
	})
	var got bson.M
	if err := db.RunCommand(ctx, one("ping", 1)).Decode(&got); err != nil || got["db"] != "app" {
		t.Errorf("handled ping: %v, %v", got, err)
	}
}

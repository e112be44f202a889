package mongoshard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.uber.org/goleak"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uri returns options that notice changes within half a second, with a latency
// window that a busy machine does not close.
func uri(c *mongotest.Cluster) *options.ClientOptions {
	return options.Client().ApplyURI(c.URI()).SetHeartbeatInterval(500 * time.Millisecond).
		SetServerSelectionTimeout(20 * time.Second).SetLocalThreshold(time.Minute)
}

// far is the delay of a server outside the window of narrow.
const far = 500 * time.Millisecond

// narrow are options with a latency window that leaves out what is far.
func narrow(c *mongotest.Cluster) *options.ClientOptions { return uri(c).SetLocalThreshold(far / 2) }

// open connects a client that ends before the cluster does.
func open(t testing.TB, o *options.ClientOptions, config mongoshard.Config) *mongo.Client {
	t.Helper()
	client, err := mongoshard.Connect(t.Context(), o, config)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, client)
	return client
}

func closeAtEnd(t testing.TB, client *mongo.Client) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil {
			t.Error(err)
		}
	})
}

// with connects another client of the same deployment.
func with(t testing.TB, client *mongo.Client, criteria selection.Criteria) *mongo.Client {
	t.Helper()
	other, err := mongoshard.With(client, criteria)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, other)
	return other
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// until polls a condition for half a minute.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come about", what)
		}
	}
}

// untilKnown waits until the client knows every server of the cluster.
func untilKnown(t testing.TB, client *mongo.Client, servers int) {
	t.Helper()
	var set topology.Set
	until(t, fmt.Sprintf("knowing %d servers", servers), func() bool {
		var err error
		if set, err = mongoshard.Servers(client); err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, s := range set.Servers() {
			if s.Role.Available() {
				known++
			}
		}
		return known == servers
	})
}

// at accepts the server of an address.
func at(s *mongotest.Server) selection.Criteria {
	address := s.Addr()
	return selection.Where(func(i selection.ServerInfo) bool { return i.Address == address })
}

func one(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

func customers(client *mongo.Client, o ...*options.CollectionOptionsBuilder) *mongo.Collection {
	list := make([]options.Lister[options.CollectionOptions], len(o))
	for i := range o {
		list[i] = o[i]
	}
	return client.Database("app").Collection("customers", list...)
}

// findOne reads once.
func findOne(ctx context.Context, t testing.TB, c *mongo.Collection) {
	t.Helper()
	if err := c.FindOne(ctx, bson.D{}).Err(); err != nil {
		t.Fatal(err)
	}
}

// counts returns how many commands of a name each server received.
func counts(c *mongotest.Cluster, command string) []int {
	list := make([]int, c.Servers())
	for i := range list {
		list[i] = c.Server(i).Count(command)
	}
	return list
}

// wantCounts compares counts.
func wantCounts(t testing.TB, c *mongotest.Cluster, command string, want ...int) {
	t.Helper()
	if got := counts(c, command); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s by server: %v, want %v", command, got, want)
	}
}

// preferences returns $readPreference of each command of a name that a server
// received, "" where there was none.
func preferences(s *mongotest.Server, command string) []string {
	var list []string
	for _, c := range s.Commands() {
		if c.Name != command {
			continue
		}
		text := ""
		if value, err := c.Body.LookupErr("$readPreference"); err == nil {
			text = value.String()
		}
		list = append(list, text)
	}
	return list
}

func ownPreference(p *readpref.ReadPref) *options.CollectionOptionsBuilder {
	return options.Collection().SetReadPreference(p)
}

func insert(ctx context.Context, t testing.TB, c *mongo.Collection) {
	t.Helper()
	if _, err := c.InsertOne(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
}

// wantTexts compares lists.
func wantTexts(t testing.TB, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func port(s *mongotest.Server) int {
	a, err := topology.ParseAddress(s.Addr(), 0)
	if err != nil {
		panic(err)
	}
	return a.Port
}

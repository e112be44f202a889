package mongoshard_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Behind a load balancer no predicate is asked, and a read preference goes on
// to the mongos there.
func TestLoadBalancerIsNeverAsked(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.LoadBalanced})
	c.Fill("app", "customers", 30)
	var asked atomic.Int64
	client := open(t, uri(c), mongoshard.Config{MongosForWrites: true, Criteria: selection.Where(func(selection.ServerInfo) bool {
		asked.Add(1)
		return false
	})})
	ctx := bounded(t)
	insert(ctx, t, customers(client))
	cursor, err := customers(client).Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	var all []bson.Raw
	if err := cursor.All(ctx, &all); err != nil || len(all) != 31 {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	err = client.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			insert(ctx, t, customers(client))
			findOne(ctx, t, customers(client))
			return nil, nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the predicate was asked %d times", n)
	}
	wantTexts(t, []string{"", ""}, preferences(c.Server(0), "find"))

	cursor, err = customers(with(t, client, selection.Secondary())).Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	if err := cursor.All(ctx, &all); err != nil || len(all) != 32 {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	wantTexts(t, []string{"", "", `{"mode": "secondary"}`}, preferences(c.Server(0), "find"))
	for _, p := range preferences(c.Server(0), "getMore") {
		if p != "" {
			t.Errorf("getMore was sent with $readPreference %s", p)
		}
	}
}

// A direct connection reads and asks its server whatever it is, a hidden
// member too.
func TestDirectConnection(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	c.Fill("app", "customers", 3)
	c.Server(2).SetRole(mongotest.Hidden)
	for i := range c.Servers() {
		o := options.Client().SetHosts([]string{c.Server(i).Addr()}).SetDirect(true)
		for _, criteria := range []selection.Criteria{{}, at(c.Server(i)), selection.Secondary()} {
			client := open(t, o, mongoshard.Config{Criteria: criteria})
			findOne(bounded(t), t, customers(client))
		}
		want := `{"mode": "primaryPreferred"}`
		wantTexts(t, []string{want, want, want}, preferences(c.Server(i), "find"))
	}
}

// A standalone server takes everything, and a predicate that refuses it leaves
// nothing.
func TestStandalone(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone})
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Role == topology.RoleStandalone })})
	ctx := bounded(t)
	insert(ctx, t, customers(client))
	findOne(ctx, t, customers(client))
	wantTexts(t, []string{""}, preferences(c.Server(0), "find"))
}

// A predicate is asked about servers that hold data only: not about arbiters,
// hidden or recovering members, ghosts, or servers that do not answer.
func TestPredicateSeesDataBearingServersOnly(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 6})
	c.Fill("app", "customers", 3)
	for i, role := range []mongotest.Role{mongotest.Arbiter, mongotest.Hidden, mongotest.Recovering, mongotest.Ghost} {
		c.Server(2 + i).SetRole(role)
	}
	var wrong atomic.Int64
	client := open(t, uri(c), mongoshard.Config{Criteria: selection.Where(func(s selection.ServerInfo) bool {
		if s.Role != topology.RolePrimary && s.Role != topology.RoleSecondary {
			wrong.Add(1)
		}
		return true
	})})
	ctx := bounded(t)
	until(t, "knowing all", func() bool {
		servers, err := mongoshard.Servers(client)
		known := 0
		for _, s := range servers.Servers() {
			if s.Role.Available() {
				known++
			}
		}
		return err == nil && known >= 4 // the primary names no hidden member and no ghost
	})
	for range 50 {
		findOne(ctx, t, customers(client))
	}
	if n := wrong.Load(); n != 0 {
		t.Errorf("the predicate was asked %d times about servers without data", n)
	}
	if got := counts(c, "find"); got[2]+got[3]+got[4]+got[5] != 0 {
		t.Errorf("finds by server: %v", got)
	}
}

// Two clients share one topology: the same monitors and pools, other criteria.
// It ends with the last of them, in any order.
func TestTwoClientsOnOneTopology(t *testing.T) {
	t.Parallel()
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded})
	c.Fill("app", "customers", 3)
	first, err := mongoshard.Connect(t.Context(), uri(c), mongoshard.Config{Criteria: at(c.Server(0))})
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	findOne(ctx, t, customers(first))
	untilKnown(t, first, 3)
	second, err := mongoshard.With(first, at(c.Server(1)))
	if err != nil {
		t.Fatal(err)
	}
	findOne(ctx, t, customers(second))
	findOne(ctx, t, customers(first))
	wantCounts(t, c, "find", 2, 1, 0)
	// A monitor's connection to each, and one of a pool where a find went.
	if got := c.Server(0).Connections() + c.Server(1).Connections() + c.Server(2).Connections(); got > 5 {
		t.Errorf("%d connections, want at most 5: monitors and pools are shared", got)
	}
	if err := first.Disconnect(ctx); err != nil {
		t.Fatal(err)
	}
	findOne(ctx, t, customers(second))
	if err := customers(first).FindOne(ctx, bson.D{}).Err(); !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("the first client is disconnected, but its error is %v", err)
	}
	if _, err := mongoshard.With(first, selection.Nearest()); !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("With a disconnected client: %v", err)
	}
	if err := second.Disconnect(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of all connections", func() bool {
		return c.Server(0).Connections()+c.Server(1).Connections()+c.Server(2).Connections() == 0
	})
	if _, err := mongoshard.Servers(second); !errors.Is(err, mongo.ErrClientDisconnected) {
		t.Errorf("Servers of a disconnected client: %v", err)
	}
	if err := second.Disconnect(ctx); err == nil {
		t.Error("a client was disconnected twice")
	}
}

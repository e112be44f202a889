package mongoshard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Several mongos, of which one runs next to the application: prefer that one.
func ExampleConnect() {
	ctx := context.Background()
	uri := "mongodb://mongos1.example.net,localhost,mongos2.example.net/"
	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI(uri), mongoshard.Config{
		Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" }),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Disconnect(ctx) }()
	servers, err := mongoshard.Servers(client)
	fmt.Println(servers.Len(), err)
	// Output: 3 <nil>
}

// A predicate that admits one server makes the application depend on it. With
// Prefer the others step in.
func ExampleConnect_prefer() {
	ctx := context.Background()
	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI("mongodb://localhost/"), mongoshard.Config{
		Criteria: selection.Nearest(selection.Prefer(func(s selection.ServerInfo) bool { return s.Host == "localhost" })),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Disconnect(ctx))
	// Output: <nil>
}

// Reports read from fresh secondaries that are set aside for them, over the
// same monitors and pools.
func ExampleWith() {
	ctx := context.Background()
	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI("mongodb://db1,db2,db3/?replicaSet=rs0"), mongoshard.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	reports, err := mongoshard.With(client, selection.Where(func(s selection.ServerInfo) bool {
		use, _ := s.Tags.Get("use")
		return use == "reports" && s.Staleness.AtMost(time.Minute)
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reports.Disconnect(ctx), client.Disconnect(ctx))
	// Output: <nil> <nil>
}

// One operation reads from another place.
func ExampleWithCriteria() {
	find := func(ctx context.Context, customers *mongo.Collection) error {
		idle := func(s selection.ServerInfo) bool { return s.Role == topology.RoleSecondary && s.InFlight() < 10 }
		return customers.FindOne(mongoshard.WithCriteria(ctx, selection.Where(idle)), bson.D{}).Err()
	}
	ctx := context.Background()
	o := options.Client().ApplyURI("mongodb://localhost:1/").SetServerSelectionTimeout(time.Millisecond)
	client, err := mongoshard.Connect(ctx, o, mongoshard.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = find(ctx, client.Database("app").Collection("customers"))
	fmt.Println(errors.Is(err, selection.ErrNoServer)) // nobody listens in this example
	fmt.Println(client.Disconnect(ctx))
	// Output:
	// true
	// <nil>
}

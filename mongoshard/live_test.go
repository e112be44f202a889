package mongoshard_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// liveEnv names the URI of a real deployment. The test writes to the database
// shardway_test and drops it.
const liveEnv = "SHARDWAY_TEST_MONGODB"

// A real deployment of any kind: each server that holds data, by a predicate;
// writes; a transaction where there are some.
func TestLiveDeployment(t *testing.T) {
	t.Parallel()
	uri := os.Getenv(liveEnv)
	if uri == "" {
		t.Skipf("set %s to the URI of a MongoDB deployment to test with it; the other tests use an emulator", liveEnv)
	}
	client := open(t, options.Client().ApplyURI(uri), mongoshard.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	db := client.Database("shardway_test")
	c := db.Collection("customers")
	if _, err := c.InsertOne(ctx, bson.D{{Key: "name", Value: "ann"}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Drop(ctx); err != nil {
			t.Error(err)
		}
	}()
	servers, err := mongoshard.Servers(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", servers)
	for _, s := range servers.Servers() {
		if !s.Role.Readable() || servers.Kind() == topology.KindLoadBalanced {
			continue
		}
		only := selection.Where(func(i selection.ServerInfo) bool { return i.Address == s.Address })
		err := c.FindOne(mongoshard.WithCriteria(ctx, only), bson.D{}).Err()
		if err != nil && !errors.Is(err, mongo.ErrNoDocuments) { // a secondary may lag
			t.Errorf("reading from %s: %v", s.Address, err)
		}
	}
	if servers.Kind() == topology.KindSingle {
		return
	}
	err = client.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if err := c.FindOne(ctx, bson.D{}).Err(); err != nil {
				return nil, err
			}
			return c.InsertOne(ctx, bson.D{{Key: "name", Value: "bob"}})
		})
		return err
	})
	if err != nil {
		t.Errorf("transaction: %v", err)
	}
}

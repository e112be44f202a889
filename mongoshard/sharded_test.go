package mongoshard_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

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
	}
	for range 30 {
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

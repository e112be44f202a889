package mongotest_test

import (
	"context"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mongotest"
)

// A real database behind three mongos: documents and cursors are its own, sessions and transactions do not reach it.
func TestBackend(t *testing.T) {
	t.Parallel()
	database := dbtest.Mongo(t).NewDatabase(t)
	if database.External {
		t.Skip("SKIPPED, the forwarding was not tested: a real deployment wants a login")
	}
	c := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Backend: database.Addr})
	client := connect(t, c)
	customers := client.Database(database.Name).Collection("customers")
	ctx := bounded(t)
	var documents []bson.D
	for i := range 50 {
		documents = append(documents, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: 0}})
	}
	if _, err := customers.InsertMany(ctx, documents); err != nil {
		t.Fatal(err)
	}
	cursor, err := customers.Find(ctx, bson.D{}, options.Find().SetBatchSize(7))
	if err != nil {
		t.Fatal(err)
	}
	var found []bson.D
	if err := cursor.All(ctx, &found); err != nil || len(found) != 50 {
		t.Fatalf("%d documents, %v", len(found), err)
	}
	for i := range c.Servers() {
		if s := c.Server(i); s.Count("getMore") != 7*s.Count("find") || s.Cursors() != 0 {
			t.Errorf("server %d: %d finds, %d of getMore, %d cursors left", i, s.Count("find"), s.Count("getMore"), s.Cursors())
		}
	}

	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(ctx)
	if _, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return customers.UpdateOne(ctx, one("_id", 1), one("$set", one("name", "b")))
	}); err != nil {
		t.Fatal(err)
	}

	// One command at a time: no update is lost, whatever the backend does.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := customers.UpdateOne(ctx, one("_id", 2), one("$inc", one("n", 1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var got bson.M
	if err := customers.FindOne(ctx, one("_id", 2)).Decode(&got); err != nil || got["n"] != int32(80) {
		t.Errorf("n = %v, %v, want 80", got["n"], err)
	}
}

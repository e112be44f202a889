package mongoshard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// errEnough stops a unit that the driver repeats.
var errEnough = errors.New("repeated too often")

// A transaction whose context has ended ends: the driver repeats a unit after
// every failed selection, for two minutes, whatever its context says.
func TestTransactionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*mongotest.Cluster{"replica set": set(t), "sharded": mongotest.New(t, mongotest.Options{})} {
		for _, gone := range []bool{false, true} {
			client := open(t, uri(c), mongoshard.Config{Criteria: selection.Nearest()})
			untilKnown(t, client, 3)
			ctx, cancel := context.WithCancel(bounded(t))
			session, err := client.StartSession()
			if err != nil {
				t.Fatal(err)
			}
			if gone {
				for i := range 3 {
					c.Server(i).Stop()
				}
				until(t, "losing every server", func() bool {
					known, err := mongoshard.Servers(client)
					return err == nil && !known.Server(0).Role.Available() && !known.Server(1).Role.Available() && !known.Server(2).Role.Available()
				})
			}
			attempts := 0
			_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
				if attempts++; attempts > 3 {
					return nil, errEnough
				}
				cancel()
				if attempts%2 == 0 {
					_, err := customers(client).InsertOne(ctx, bson.D{})
					return nil, err
				}
				return nil, customers(client).FindOne(ctx, bson.D{}).Err()
			})
			for i := range 3 {
				c.Server(i).Restart()
			}
			session.EndSession(context.Background())
			var ours *mongoshard.Error
			if attempts != 1 || !errors.Is(err, context.Canceled) || !errors.As(err, &ours) {
				t.Errorf("%s, servers gone %v: %d attempts, %v", name, gone, attempts, err)
			}
		}
	}
}

// Disconnect ends the operations that wait for a server, at once, whether the
// driver or the criteria choose it and whether another client is left.
func TestDisconnectEndsTheWait(t *testing.T) {
	t.Parallel()
	c := set(t)
	for name, o := range map[string]*options.CollectionOptionsBuilder{
		"criteria": options.Collection(), "driver": ownPreference(readpref.Secondary(readpref.WithTags("zone", "nowhere"))),
	} {
		for _, shared := range []bool{false, true} {
			client, err := mongoshard.Connect(t.Context(), uri(c).SetServerSelectionTimeout(time.Hour), mongoshard.Config{Criteria: nowhere})
			if err != nil {
				t.Fatal(err)
			}
			untilKnown(t, client, 3)
			if shared {
				with(t, client, selection.Nearest())
			}
			ended := make(chan error)
			asked := c.Count("hello")
			go func() { ended <- customers(client, o).FindOne(context.Background(), bson.D{}).Err() }()
			until(t, "waiting", func() bool { return c.Count("hello") >= asked+3 }) // it asks for checks
			if err := client.Disconnect(bounded(t)); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, mongo.ErrClientDisconnected) {
					t.Errorf("%s, shared %v: %v", name, shared, err)
				}
			case <-bounded(t).Done():
				t.Fatalf("%s, shared %v: it still waits", name, shared)
			}
		}
	}
}

var nowhere = selection.Where(func(selection.ServerInfo) bool { return false })

package mongotest_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mongotest"
)

func TestMain(m *testing.M) {
	// The goroutine that starts programs lives as long as the test binary.
	goleak.VerifyTestMain(databases{m}, goleak.IgnoreTopFunction("github.com/shardway/shardway/internal/dbtest.init.func1.1"))
}

// databases runs tests with a database for those who want one.
type databases struct{ m *testing.M }

func (d databases) Run() int { return dbtest.Run(d.m) }

// connect opens a client of the official driver that ends before the cluster does.
func connect(t *testing.T, c *mongotest.Cluster, more ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	first := options.Client().ApplyURI(c.URI()).SetHeartbeatInterval(500 * time.Millisecond).SetServerSelectionTimeout(20 * time.Second)
	client, err := mongo.Connect(append([]*options.ClientOptions{first}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// until polls a condition for half a minute.
func until(t *testing.T, what string, condition func() bool) {
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

func one(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

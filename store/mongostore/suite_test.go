package mongostore

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// deployment is a kind of deployment that tests run on.
type deployment struct {
	name string
	// uri returns the URI of an empty database of that deployment, and its name.
	uri func(t *testing.T) (uri, database string)
}

var deployments = []deployment{
	{"ferretdb", func(t *testing.T) (string, string) {
		at := dbtest.Mongo(t).NewDatabase(t)
		return at.URI, at.Name
	}},
	{"standalone", emulated(mongotest.Standalone)},
	{"replica set", emulated(mongotest.ReplicaSet)},
	{"sharded cluster", emulated(mongotest.Sharded)},
}

func emulated(kind mongotest.Kind) func(t *testing.T) (string, string) {
	return func(t *testing.T) (string, string) {
		servers := 2
		if kind == mongotest.Standalone {
			servers = 1
		}
		return mongotest.New(t, mongotest.Options{Kind: kind, Servers: servers}).URI(), "shard"
	}
}

// connect returns a database of a client of its own.
func connect(t *testing.T, uri, database string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database(database)
}

func (d deployment) open(t *testing.T) *mongo.Database {
	t.Helper()
	uri, name := d.uri(t)
	return connect(t, uri, name)
}

func each(t *testing.T, test func(t *testing.T, d deployment)) {
	t.Helper()
	for _, d := range deployments {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		storetest.Local(t, func(t *testing.T) store.Local {
			if d.name == "ferretdb" && strings.HasSuffix(t.Name(), "/large_step") {
				t.Skip("FerretDB searches the whole table for each document that it changes: minutes")
			}
			return NewLocal(d.open(t), nil)
		})
	})
}

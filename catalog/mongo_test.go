package catalog_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
	"github.com/shardway/shardway/store/mongostore"
)

// mongoEngine gives tests local stores on one MongoDB deployment, which lasts
// as long as t; the global store is in memory. Databases are never used twice.
func mongoEngine(t *testing.T, name, uri, database string) engine {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	var databases atomic.Int32
	empty := func(t *testing.T) *rig {
		g := memstore.NewGlobal()
		r := newRig(t, g, func(*testing.T) store.Local {
			return mongostore.NewLocal(client.Database(fmt.Sprintf("%s-%d", database, databases.Add(1))), nil)
		})
		g.Now = func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
		if _, err := g.Deploy(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		return r
	}
	return engine{
		name: name, require: func(*testing.T) {}, empty: empty,
		world: func(t *testing.T) (*rig, world) {
			r := empty(t)
			return r, populate(r)
		},
	}
}

// mongoEngines are an emulated replica set, which is quick, and FerretDB, which
// is a database of its own making.
func mongoEngines(t *testing.T) (emulated, ferretdb engine) {
	t.Helper()
	cluster := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
	at := dbtest.Mongo(t).NewDatabase(t)
	return mongoEngine(t, "replica set", cluster.URI(), "shard"), mongoEngine(t, "ferretdb", at.URI, at.Name)
}

// TestKillMatrixMongoDB is TestKillMatrix with local stores on MongoDB: every
// case on the emulated replica set, some of them on FerretDB.
func TestKillMatrixMongoDB(t *testing.T) {
	t.Parallel()
	const someOf = 12
	emulated, ferretdb := mongoEngines(t)
	for _, e := range []engine{emulated, ferretdb} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var all, cases atomic.Int32
			t.Cleanup(func() { t.Logf("kill matrix: %d of %d cases on %s", cases.Load(), all.Load(), e.name) })
			for _, kc := range killCases {
				t.Run(kc.name, func(t *testing.T) {
					t.Parallel()
					x := expect(t, kc.change)
					for kind := range numFaults {
						for n := int32(1); n <= x.commits; n++ {
							if sameMoment(kind) && n < x.commits || all.Add(1)%someOf != 0 && e.name == ferretdb.name {
								continue
							}
							cases.Add(1)
							//nolint:paralleltest // the kinds of change are parallel
							t.Run(fmt.Sprintf("%s %d", kind, n), func(t *testing.T) { runKill(t, e, kc.change, x, kind, n) })
						}
					}
				})
			}
		})
	}
}

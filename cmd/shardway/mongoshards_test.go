package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mongotest"
)

// TestMongoShards runs the scripts on shards in MongoDB databases: S1 and S2 are
// locations on a real database, SET is one on a replica set, DOWN is one on a
// server that does not answer. The global store is a file.
func TestMongoShards(t *testing.T) {
	t.Parallel()
	set := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet})
	set.Server(1).SetTags(map[string]string{"zone": "a"})
	down := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone})
	down.Server(0).Stop()
	testscript.Run(t, scripts("testdata/mongoshards", func(e *testscript.Env) error {
		server := dbtest.Mongo(t)
		s1, s2 := server.NewDatabase(t), server.NewDatabase(t)
		addresses := make([]string, set.Servers())
		for i := range addresses {
			addresses[i] = set.Server(i).Addr()
			e.Setenv("SET"+string(rune('0'+i)), addresses[i])
		}
		for name, value := range map[string]string{
			"SHARDWAY_STORE": "sqlite:maps.db", "S1": "mongodb://" + s1.Addr + "/" + s1.Name, "S2": "mongodb://" + s2.Addr + "/" + s2.Name,
			"SERVER": s1.Addr, "D1": s1.Name, "SET": "mongodb://" + strings.Join(addresses, ",") + "/tenants",
			"DOWN": "mongodb://" + down.Server(0).Addr() + "/tenants",
		} {
			e.Setenv(name, value)
		}
		return nil
	}))
}

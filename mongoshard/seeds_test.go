package mongoshard_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// A seed that is named twice, in one spelling or in two, is one server: the
// driver keeps both, and with them every selection failed.
func TestSeedNamedTwice(t *testing.T) {
	t.Parallel()
	for _, kind := range []mongotest.Kind{mongotest.Sharded, mongotest.ReplicaSet} {
		for _, again := range []func(string) string{
			func(address string) string { return address },
			func(address string) string { return strings.Replace(address, ":", ":0", 1) },
		} {
			c := mongotest.New(t, mongotest.Options{Kind: kind, Hosts: []string{"localhost"}})
			c.Fill("app", "customers", 1)
			seed := c.Server(0).Addr()
			named := strings.Replace(c.URI(), seed, seed+","+again(seed), 1)
			o := uri(c)
			o.Hosts = options.Client().ApplyURI(named).Hosts
			if len(o.Hosts) != 4 {
				t.Fatalf("hosts %q", o.Hosts)
			}
			client := open(t, o, mongoshard.Config{Criteria: selection.Nearest()})
			ctx := bounded(t)
			for i := range 3 {
				findOne(mongoshard.WithCriteria(ctx, at(c.Server(i))), t, customers(client))
			}
			insert(ctx, t, customers(client))
			wantCounts(t, c, "find", 1, 1, 1)
			set, err := mongoshard.Servers(client)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range set.Servers() {
				if s.InFlight() != 0 {
					t.Errorf("%s has %d operations in flight", s.Address, s.InFlight())
				}
			}
		}
	}
}

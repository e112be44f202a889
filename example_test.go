package shardway_test

import (
	"context"
	"log"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

// The README's snippet: it needs a server, so it is compiled and not run. What
// it does is run against real servers in package sqlshard.
//
//nolint:ineffassign,staticcheck // shows the calls alone
func Example() {
	ctx, secret, customerID, name := context.Background(), "", int64(4711), "Ada"

	// once
	source, err := postgres.GlobalStore("postgres://router@gsm.internal/shardmaps")
	router, err := shardway.Open(ctx, source, shardway.Config{})
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	db, err := sqlshard.New(customers, sqlshard.Config{
		Engines:     []shardway.Engine{postgres.Engine{}},
		Credentials: shardway.Credentials{User: "app", Password: secret},
	})

	// per request
	conn, err := db.OpenConnectionForKey(ctx, customerID)
	defer conn.Close()
	_, err = conn.ExecContext(ctx, `UPDATE customer SET name = $1 WHERE customer_id = $2`, name, customerID)
	if err != nil {
		log.Print(err)
	}
}

// The README's snippet for changing a map. The catalog's changes are run
// against real servers in package catalog.
//
//nolint:ineffassign // shows the calls alone
func Example_catalog() {
	ctx, secret := context.Background(), ""

	source, err := postgres.GlobalStore("postgres://catalog@gsm.internal/shardmaps")
	locals, err := sqlstore.NewLocals([]shardway.Engine{postgres.Engine{}}, shardway.Credentials{User: "catalog", Password: secret})
	c, err := catalog.New(source, locals, catalog.Config{Who: "ann"})
	customers, err := c.ShardMap(ctx, "customers")
	mapping, err := c.MappingForKey(ctx, customers, shardway.Int64Key(500))
	result, err := c.Do(ctx, catalog.SplitMapping{Mapping: mapping, At: shardway.Int64Key(500), Reason: "shard is full"})

	log.Print(result.Summary, err)
}

// The README's snippet for reads from secondaries. What it does is run against
// real servers in packages sqlshard and examples/replicas.
//
//nolint:ineffassign // shows the calls alone
func Example_servers() {
	var db *sqlshard.DB[int64]
	ctx, customerID := context.Background(), int64(4711)

	reports := db.With(selection.Nearest(selection.MaxStaleness(30*time.Second), selection.Tags{"zone": "eu-1a"}))
	local := db.With(selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" }))
	conn, err := reports.OpenConnectionForKey(ctx, customerID)
	conn, err = local.OpenConnectionForKey(ctx, customerID)

	log.Print(conn.Server(), err)
}

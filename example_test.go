package shardway_test

import (
	"context"
	"log"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlshard"
)

// The README's snippet: it needs a server, so it is compiled and not run. What
// it does is run against real servers in package sqlshard.
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

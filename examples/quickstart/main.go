// Command quickstart is the program that follows the first steps of README.md:
// it writes one customer on the shard that owns it, and reads it back.
//
//	export SHARDWAY_STORE=postgres://postgres@127.0.0.1:5432/shardmaps
//	export SHARDWAY_STORE_PASSWORD=secret
//	go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Getenv("SHARDWAY_STORE"), os.Getenv("SHARDWAY_STORE_PASSWORD"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run opens what a program opens once, and serves one request.
func run(ctx context.Context, dsn, password string, out io.Writer) error {
	engine, location, login, err := postgres.Parse(dsn)
	if err != nil {
		return fmt.Errorf("reading SHARDWAY_STORE: %w", err)
	}
	if password != "" {
		login.Password = password
	}
	source, err := sqlstore.OpenGlobal(engine, location, login)
	if err != nil {
		return err
	}
	defer source.Close()
	router, err := shardway.Open(ctx, source, shardway.Config{})
	if err != nil {
		return err
	}
	defer router.Close()
	// Nothing has connected so far: a wrong address or password is told here.
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		return err
	}
	// The login on the shards is the application's own in production: see shardway grants.
	db, err := sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{engine}, Credentials: login})
	if err != nil {
		return err
	}
	defer db.Close()
	return rename(ctx, db, 4711, "Ada", out)
}

// rename is one request: it writes a customer on the shard that owns its key.
func rename(ctx context.Context, db *sqlshard.DB[int64], customerID int64, name string, out io.Writer) error {
	conn, err := db.OpenConnectionForKey(ctx, customerID)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, `INSERT INTO customer (customer_id, name) VALUES ($1, $2)
ON CONFLICT (customer_id) DO UPDATE SET name = excluded.name`, customerID, name)
	if err != nil {
		return fmt.Errorf("writing customer %d on shard %s: %w", customerID, conn.Shard(), err)
	}
	var found string
	if err := conn.QueryRowContext(ctx, `SELECT name FROM customer WHERE customer_id = $1`, customerID).Scan(&found); err != nil {
		return fmt.Errorf("reading customer %d on shard %s: %w", customerID, conn.Shard(), err)
	}
	_, err = fmt.Fprintf(out, "customer %d on shard %s is %s\n", customerID, conn.Shard(), found)
	return err
}

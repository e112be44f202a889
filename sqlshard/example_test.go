package sqlshard_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

// A map of customers over two SQLite databases, and a connection by customer.
func Example() {
	ctx := context.Background()
	maps, cleanUp := exampleMaps(ctx)
	defer cleanUp()

	// once
	router, err := shardway.Open(ctx, maps, shardway.Config{})
	if err != nil {
		panic(err)
	}
	defer router.Close()
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		panic(err)
	}
	db, err := sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{sqlite.Engine{}}})
	if err != nil {
		panic(err)
	}
	defer db.Close()

	// per request
	for _, customerID := range []int64{42, 1042} {
		conn, err := db.OpenConnectionForKey(ctx, customerID)
		if err != nil {
			panic(err)
		}
		_, err = conn.ExecContext(ctx, `INSERT INTO customer (id, name) VALUES (?, 'Ann')`, customerID)
		fmt.Println("customer", customerID, "is on", conn.Shard(), err)
		conn.Close()
	}

	_, err = db.OpenConnectionForKey(ctx, 5000)
	fmt.Println(err)
	// Output:
	// customer 42 is on east <nil>
	// customer 1042 is on west <nil>
	// shard map "customers", key "5000": key not mapped
}

// Generated code and ORMs take the key from the context.
func ExampleDB_ByContext() {
	ctx := context.Background()
	maps, cleanUp := exampleMaps(ctx)
	defer cleanUp()
	router, err := shardway.Open(ctx, maps, shardway.Config{})
	if err != nil {
		panic(err)
	}
	defer router.Close()
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		panic(err)
	}
	db, err := sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{sqlite.Engine{}}})
	if err != nil {
		panic(err)
	}
	defer db.Close()

	queries := db.ByContext() // has what sqlc calls DBTX, and GORM a ConnPool

	ctx, err = shardway.WithKey(ctx, int64(1042)) // by a middleware, say
	if err != nil {
		panic(err)
	}
	if _, err := queries.ExecContext(ctx, `INSERT INTO customer (id, name) VALUES (1042, 'Ben')`); err != nil {
		panic(err)
	}
	var name string
	err = queries.QueryRowContext(ctx, `SELECT name FROM customer WHERE id = ?`, 1042).Scan(&name)
	fmt.Println(name, err)

	_, err = queries.ExecContext(context.Background(), `DELETE FROM customer`)
	fmt.Println(err)
	// Output:
	// Ben <nil>
	// shard map "customers": key required
}

// exampleMaps creates a global store with the map customers: [0, 1000) on
// shard east, [1000, 2000) on shard west.
func exampleMaps(ctx context.Context) (maps *sqlstore.Global, cleanUp func()) {
	dir, err := os.MkdirTemp("", "shardway-example-")
	if err != nil {
		panic(err)
	}
	if maps, err = sqlite.GlobalStore("sqlite:" + filepath.Join(dir, "maps.db")); err != nil {
		panic(err)
	}
	if _, err := maps.Deploy(ctx, false); err != nil {
		panic(err)
	}
	locals, err := sqlstore.NewLocals([]shardway.Engine{sqlite.Engine{}}, shardway.Credentials{})
	if err != nil {
		panic(err)
	}
	cat, err := catalog.New(maps, locals, catalog.Config{})
	if err != nil {
		panic(err)
	}
	do := func(change catalog.Change) catalog.Result {
		result, err := cat.Do(ctx, change)
		if err != nil {
			panic(err)
		}
		return result
	}
	m := do(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	for i, name := range []string{"east", "west"} {
		at := shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: filepath.Join(dir, name+".db")}}}
		shard := do(catalog.AddShard{Map: m, Name: name, Location: at}).Shards[0]
		low := int64(i) * 1000
		do(catalog.AddMappings{Map: m, New: []catalog.NewMapping{{
			Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(low + 1000)}, ShardID: shard.ID,
		}}})
		exampleTable(ctx, at)
	}
	return maps, func() {
		_ = locals.Close()
		_ = maps.Close()
		_ = os.RemoveAll(dir)
	}
}

func exampleTable(ctx context.Context, at shardway.Location) {
	connector, err := sqlite.Engine{}.Connector(at.Servers[0].Address, "", shardway.Credentials{})
	if err != nil {
		panic(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE customer (id integer PRIMARY KEY, name text NOT NULL)`); err != nil {
		panic(err)
	}
}

// A transaction that cannot commit on a shard that no longer has the key.
func ExampleDB_InTx() {
	ctx := context.Background()
	db, customerID, cleanUp := exampleVisits(ctx)
	defer cleanUp()

	err := db.InTx(ctx, customerID, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE customer SET visits = visits + 1 WHERE id = $1`, customerID)
		return err
	})
	fmt.Println(err)

	// A unit that can say whether its work was kept is repeated even when the
	// answer to its commit was lost.
	const unit = "order 4711"
	options := &sqlshard.TxOptions{Applied: func(ctx context.Context) (done bool, err error) {
		conn, err := db.OpenConnectionForKey(ctx, customerID)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		err = conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM done WHERE unit = $1)`, unit).Scan(&done)
		return done, err
	}}
	err = db.InTx(ctx, customerID, options, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO done (unit) VALUES ($1)`, unit)
		return err
	})
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}

// exampleVisits returns a DB whose shard for customer 42 has tables customer and done.
func exampleVisits(ctx context.Context) (db *sqlshard.DB[int64], customerID int64, cleanUp func()) {
	maps, removeMaps := exampleMaps(ctx)
	router, err := shardway.Open(ctx, maps, shardway.Config{})
	if err != nil {
		panic(err)
	}
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		panic(err)
	}
	if db, err = sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{sqlite.Engine{}}}); err != nil {
		panic(err)
	}
	conn, err := db.OpenConnectionForKey(ctx, 42)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for _, text := range []string{"ALTER TABLE customer ADD COLUMN visits integer NOT NULL DEFAULT 0", "CREATE TABLE done (unit text PRIMARY KEY)"} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			panic(err)
		}
	}
	return db, 42, func() {
		_ = db.Close()
		_ = router.Close()
		removeMaps()
	}
}

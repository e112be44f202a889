package sqlshard_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/pgprobe"
)

// What can be said about servers; the zero value of each field is a safe choice.
func ExampleServerConfig() {
	secret, probeSecret := os.Getenv("APP_PASSWORD"), os.Getenv("PROBE_PASSWORD")
	cfg := sqlshard.Config{
		Engines: []shardway.Engine{
			postgres.Engine{},
			mysql.Engine{Probe: mysqlprobe.Options{Heartbeat: "shardway_heartbeat"}},
		},
		Credentials: shardway.Credentials{User: "app", Password: secret},
		Servers: sqlshard.ServerConfig{
			LocalThreshold:   15 * time.Millisecond,
			SelectionTimeout: 30 * time.Second,
			Heartbeat:        10 * time.Second,
			TokenWait:        500 * time.Millisecond,
			Credentials:      shardway.Credentials{User: "shardway_probe", Password: probeSecret},
		},
	}
	fmt.Println(cfg.Servers.Credentials)
	for _, grant := range pgprobe.Grants("shardway_probe", pgprobe.Options{}) {
		fmt.Println(grant)
	}
	// Output:
	// user shardway_probe
	// GRANT pg_monitor TO "shardway_probe"
}

func exampleDB(ctx context.Context) (*sqlshard.DB[int64], func()) {
	maps, cleanUp := exampleMaps(ctx)
	router, err := shardway.Open(ctx, maps, shardway.Config{})
	if err != nil {
		panic(err)
	}
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		panic(err)
	}
	db, err := sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{sqlite.Engine{}}})
	if err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = router.Close()
		cleanUp()
	}
}

// Reads from a server that suits: by a read preference or by a rule of one's own.
func ExampleDB_With() {
	ctx := context.Background()
	db, closeAll := exampleDB(ctx)
	defer closeAll()
	const customerID = 42

	fresh := selection.MaxStaleness(30 * time.Second)
	reports := db.With(selection.SecondaryPreferred(fresh, selection.Tags{"zone": "eu-1a"}, selection.Tags{}))
	files := db.With(selection.Where(func(s selection.ServerInfo) bool { return s.Engine == "sqlite" }))
	for _, reads := range []*sqlshard.DB[int64]{reports, files} {
		conn, err := reads.OpenConnectionForKey(ctx, customerID)
		if err != nil {
			panic(err)
		}
		fmt.Println("customer", customerID, "is read on", conn.Shard())
		conn.Close()
	}
	// Output:
	// customer 42 is read on east
	// customer 42 is read on east
}

// Every server of a shard, and why a connection could not go there.
func ExampleDB_Servers() {
	ctx := context.Background()
	db, closeAll := exampleDB(ctx)
	defer closeAll()

	explanation, err := db.With(selection.Secondary()).Servers(ctx, "east")
	if err != nil {
		panic(err)
	}
	for _, v := range explanation.Servers {
		fmt.Println(v.Server.Role, v.Server.Staleness, v.InFlight, v.Step, v.Detail, v.InWindow())
	}
	// Output:
	// primary unknown 0 role primary false
}

// Reads that see what was written before, on whatever server.
func ExampleConn_Token() {
	ctx := context.Background()
	db, closeAll := exampleDB(ctx)
	defer closeAll()
	const customerID = 42

	conn, err := db.OpenConnectionForKey(ctx, customerID)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	if _, err = conn.ExecContext(ctx, `INSERT INTO customer (id, name) VALUES (?, 'Ann')`, customerID); err != nil {
		panic(err)
	}
	token, err := conn.Token(ctx)
	if err != nil {
		panic(err)
	}
	cookie := token.String()

	// the next request
	if token, err = sqlshard.ParseToken(cookie); err != nil {
		panic(err)
	}
	ctx = sqlshard.WithToken(ctx, token)
	read, err := db.With(selection.Nearest()).OpenConnectionForKey(ctx, customerID)
	if err != nil {
		panic(err)
	}
	defer read.Close()
	var name string
	err = read.QueryRowContext(ctx, `SELECT name FROM customer WHERE id = ?`, customerID).Scan(&name)
	fmt.Println(name, err)
	// Output:
	// Ann <nil>
}

// A unit of work that is repeated avoids the servers that failed it.
func ExampleWithUnit() {
	ctx := context.Background()
	db, closeAll := exampleDB(ctx)
	defer closeAll()
	reports := db.With(selection.Nearest())

	count := func(ctx context.Context, customerID int64) (n int, err error) {
		err = retry.Do(sqlshard.WithUnit(ctx), retry.Policy{Applied: retry.Idempotent}, func(ctx context.Context, _ int) error {
			conn, err := reports.OpenConnectionForKey(ctx, customerID)
			if err != nil {
				return err
			}
			defer conn.Close()
			return conn.QueryRowContext(ctx, `SELECT count(*) FROM customer`).Scan(&n)
		})
		return n, err
	}

	fmt.Println(count(ctx, 42))
	// Output:
	// 0 <nil>
}

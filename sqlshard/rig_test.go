package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlserver"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

func TestMain(m *testing.M) {
	code := dbtest.Run(m)
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/shardway/shardway/internal/dbtest.init.func1.1")); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines leaked:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// parse reads the engine, location and login of a test database.
func parse(t testing.TB, d dbtest.Database) (shardway.Engine, shardway.Location, shardway.Credentials) {
	t.Helper()
	var e shardway.Engine
	var l shardway.Location
	var c shardway.Credentials
	var err error
	switch dbtest.Engine(d.Engine) {
	case dbtest.EngineSQLite:
		e, l, c, err = sqlite.Parse(d.DSN())
	case dbtest.EnginePostgres:
		e, l, c, err = postgres.Parse(d.DSN())
	case dbtest.EngineMySQL:
		e, l, c, err = mysql.Parse(d.DSN())
	case dbtest.EngineSQLServer:
		e, l, c, err = sqlserver.Parse(d.DSN())
	case dbtest.EngineMongoDB:
		t.Fatal("MongoDB has no SQL")
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, l, c
}

// counted is a store that counts how often it is asked for a key.
type counted struct {
	shardway.Source
	lookups atomic.Int64
}

func (c *counted) Lookup(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	c.lookups.Add(1)
	return c.Source.Lookup(ctx, m, key)
}

// rig is a range map of int64 keys: shard "a" has [0, 100), shard "b" has
// [100, 200), each a database of its own with a table named item.
type rig struct {
	t      testing.TB
	kind   dbtest.Engine
	engine shardway.Engine
	login  shardway.Credentials
	cat    *catalog.Catalog
	source *counted
	m      shardway.ShardMap
	shards map[string]shardway.Shard
	dbs    map[string]dbtest.Database
	at     func(shardway.Location) shardway.Location // changes the location of shards when they are added
}

func newRig(t testing.TB, e dbtest.Engine) *rig {
	t.Helper()
	r := newEmptyRig(t, e)
	r.addShard("a")
	r.addShard("b")
	r.addRange("a", 0, 100)
	r.addRange("b", 100, 200)
	return r
}

func newEmptyRig(t testing.TB, e dbtest.Engine) *rig {
	t.Helper()
	r := &rig{t: t, kind: e, shards: map[string]shardway.Shard{}, dbs: map[string]dbtest.Database{}}
	var at shardway.Location
	r.engine, at, r.login = parse(t, e.NewDatabase(t))
	global, err := sqlstore.OpenGlobal(r.engine, at, r.login)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = global.Close() })
	if _, err := global.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	locals, err := sqlstore.NewLocals([]shardway.Engine{r.engine}, r.login)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locals.Close() })
	if r.cat, err = catalog.New(global, locals, catalog.Config{}); err != nil {
		t.Fatal(err)
	}
	r.source = &counted{Source: global}
	r.m = r.do(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	return r
}

func (r *rig) do(ch catalog.Change) catalog.Result {
	r.t.Helper()
	res, err := r.cat.Do(r.t.Context(), ch)
	if err != nil {
		r.t.Fatalf("%T: %v", ch, err)
	}
	return res
}

// addShard makes a database a shard; in its table item, one row says the
// shard's name.
func (r *rig) addShard(name string) {
	r.t.Helper()
	db := r.kind.NewDatabase(r.t)
	r.addDatabase(name, db)
}

func (r *rig) addDatabase(name string, db dbtest.Database) {
	r.t.Helper()
	r.dbs[name] = db
	_, at, _ := parse(r.t, db)
	if r.at != nil {
		at = r.at(at)
	}
	r.shards[name] = r.do(catalog.AddShard{Map: r.m, Name: name, Location: at}).Shards[0]
	pool := db.Open(r.t)
	if _, err := pool.Exec("CREATE TABLE item (id bigint PRIMARY KEY, name varchar(100))"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := pool.Exec("INSERT INTO item (id, name) VALUES (0, '" + name + "')"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) addRange(shard string, low, high int64) shardway.Mapping {
	r.t.Helper()
	return r.do(catalog.AddMappings{Map: r.m, New: []catalog.NewMapping{{
		Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)}, ShardID: r.shards[shard].ID,
	}}}).Mappings[0]
}

// mapping returns the mapping of a key as the store has it.
func (r *rig) mapping(key int64) shardway.Mapping {
	r.t.Helper()
	m, err := r.cat.MappingForKey(r.t.Context(), r.m, shardway.Int64Key(key))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) setStatus(key int64, status shardway.MappingStatus) {
	r.t.Helper()
	r.do(catalog.UpdateMapping{Mapping: r.mapping(key), Status: &status})
}

// move gives a mapping to another shard.
func (r *rig) move(key int64, shard string) {
	r.t.Helper()
	r.setStatus(key, shardway.Offline)
	id, online := r.shards[shard].ID, shardway.Online
	r.do(catalog.UpdateMapping{Mapping: r.mapping(key), ShardID: &id, Status: &online})
}

// handle returns the map of a router of its own.
func (r *rig) handle() *shardway.RangeShardMap[int64] {
	r.t.Helper()
	router, err := shardway.Open(r.t.Context(), r.source, shardway.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = router.Close() })
	m, err := shardway.OpenRangeShardMap[int64](r.t.Context(), router, "customers")
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// open returns a DB with a router of its own.
func (r *rig) open(cfg sqlshard.Config) *sqlshard.DB[int64] {
	r.t.Helper()
	m := r.handle()
	if cfg.Engines == nil {
		cfg.Engines = []shardway.Engine{r.engine}
	}
	if cfg.Credentials.User == "" {
		cfg.Credentials = r.login
	}
	db, err := sqlshard.New(m, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = db.Close()
		for _, p := range db.Stats().Pools {
			r.t.Errorf("after Close there still is a pool: %+v", p)
		}
	})
	return db
}

// opened opens a connection for a key and checks that it is on a shard.
func opened(t testing.TB, db *sqlshard.DB[int64], key int64, shard string) *sqlshard.Conn {
	t.Helper()
	conn, err := db.OpenConnectionForKey(t.Context(), key)
	if err != nil {
		t.Fatalf("key %d: %v", key, err)
	}
	on(t, conn, shard)
	return conn
}

func on(t testing.TB, conn *sqlshard.Conn, shard string) {
	t.Helper()
	var name string
	if err := conn.QueryRowContext(t.Context(), "SELECT name FROM item WHERE id = 0").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if name != shard || conn.Shard() != shard {
		t.Fatalf("on shard %q, the connection says %q, want %q", name, conn.Shard(), shard)
	}
}

// refused checks that a key gets no connection, and why: the error matches
// want, and names the map and the key.
func refused(t testing.TB, db *sqlshard.DB[int64], key int64, want error) shardway.LookupError {
	t.Helper()
	return refusedWith(t.Context(), t, db, key, want)
}

func refusedWith(ctx context.Context, t testing.TB, db *sqlshard.DB[int64], key int64, want error) shardway.LookupError {
	t.Helper()
	conn, err := db.OpenConnectionForKey(ctx, key)
	if err == nil {
		_ = conn.Close()
		t.Fatalf("key %d got a connection to shard %q, want %v", key, conn.Shard(), want)
	}
	var e *shardway.LookupError
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Map != "customers" || e.Key != fmt.Sprint(key) {
		t.Fatalf("key %d: got %v, want a LookupError with map and key around %v", key, err, want)
	}
	return *e
}

// quiet checks that no session is in use and nobody waits.
func quiet(t testing.TB, db *sqlshard.DB[int64]) {
	t.Helper()
	for _, p := range db.Stats().Pools {
		if p.InUse != 0 || p.Waiting != 0 {
			t.Errorf("not given back: %+v", p)
		}
		if uint64(p.Open) != p.Opened-p.Closed {
			t.Errorf("open sessions are not those opened and not closed: %+v", p)
		}
	}
}

// eventually waits for a condition that another goroutine or a server brings about.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func sum(db *sqlshard.DB[int64], of func(sqlshard.PoolStats) int) (n int) {
	for _, p := range db.Stats().Pools {
		n += of(p)
	}
	return n
}

func exec(t testing.TB, conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string,
) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/postgres"
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

// counted is a store that counts how often it is asked for a key, and may name
// other servers than there are.
type counted struct {
	shardway.Source
	lookups atomic.Int64
	at      func(shardway.Location) shardway.Location
}

func (c *counted) Lookup(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	c.lookups.Add(1)
	a, err := c.Source.Lookup(ctx, m, key)
	if c.at != nil && err == nil && a.Found {
		a.Shard.Location = c.at(a.Shard.Location)
	}
	return a, err
}

// rig is a range map of int64 keys: shard "a" has [0, 100), shard "b" has
// [100, 200), each a database of its own with a table named item and a sequence.
type rig struct {
	t      testing.TB
	engine postgres.Engine
	login  shardway.Credentials
	cat    *catalog.Catalog
	source *counted
	m      shardway.ShardMap
	shards map[string]shardway.Shard
	dbs    map[string]dbtest.Database
	admin  map[string]*pgx.Conn // of the shards' databases
	at     func(shardway.Location) shardway.Location
	router shardway.Config
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := newEmptyRig(t)
	r.addShard("a")
	r.addShard("b")
	r.addRange("a", 0, 100)
	r.addRange("b", 100, 200)
	return r
}

func newEmptyRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, shards: map[string]shardway.Shard{}, dbs: map[string]dbtest.Database{}, admin: map[string]*pgx.Conn{}}
	var at shardway.Location
	var err error
	r.engine, at, r.login, err = postgres.Parse(dbtest.Postgres(t).NewDatabase(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
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

func (r *rig) addShard(name string) {
	r.t.Helper()
	r.addDatabase(name, dbtest.Postgres(r.t).NewDatabase(r.t))
}

func (r *rig) addDatabase(name string, db dbtest.Database) {
	r.t.Helper()
	r.dbs[name] = db
	_, at, _, err := postgres.Parse(db.DSN())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.at != nil {
		at = r.at(at)
	}
	r.shards[name] = r.do(catalog.AddShard{Map: r.m, Name: name, Location: at}).Shards[0]
	conn, err := pgx.Connect(r.t.Context(), db.DSN())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	r.admin[name] = conn
	r.exec(name, "CREATE TABLE item (id bigint PRIMARY KEY, name text, n bigint NOT NULL DEFAULT 0)")
	r.exec(name, "CREATE SEQUENCE counter")
	r.exec(name, "INSERT INTO item (id, name) VALUES (0, '"+name+"')")
}

// exec runs a statement on a shard's database as the administrator.
func (r *rig) exec(shard, sql string, args ...any) {
	r.t.Helper()
	if _, err := r.admin[shard].Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// one reads a number on a shard's database as the administrator.
func (r *rig) one(shard, sql string, args ...any) (n int64) {
	r.t.Helper()
	if err := r.admin[shard].QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (r *rig) addRange(shard string, low, high int64) {
	r.t.Helper()
	r.do(catalog.AddMappings{Map: r.m, New: []catalog.NewMapping{{
		Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)}, ShardID: r.shards[shard].ID,
	}}})
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

func (r *rig) offline(key int64) {
	r.t.Helper()
	status := shardway.Offline
	r.do(catalog.UpdateMapping{Mapping: r.mapping(key), Status: &status})
}

// move gives a mapping to another shard.
func (r *rig) move(key int64, shard string) {
	r.t.Helper()
	r.offline(key)
	id, online := r.shards[shard].ID, shardway.Online
	r.do(catalog.UpdateMapping{Mapping: r.mapping(key), ShardID: &id, Status: &online})
}

// handle returns the map of a router of its own, which learns of no change by
// itself.
func (r *rig) handle() *shardway.RangeShardMap[int64] {
	r.t.Helper()
	router, err := shardway.Open(r.t.Context(), r.source, r.router)
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
func (r *rig) open(cfg pgxshard.Config) *pgxshard.DB[int64] {
	r.t.Helper()
	if cfg.Engine == nil {
		cfg.Engine = r.engine
	}
	if cfg.Credentials.User == "" {
		cfg.Credentials = r.login
	}
	db, err := pgxshard.New(r.handle(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		quiet(r.t, db)
		_ = db.Close()
		for _, p := range db.Stats().Pools {
			r.t.Errorf("after Close there still is a pool: %+v", p)
		}
	})
	return db
}

// withMode has sessions work in an exec mode.
func withMode(mode pgx.QueryExecMode) func(*pgxpool.Config) error {
	return func(c *pgxpool.Config) error {
		c.ConnConfig.DefaultQueryExecMode = mode
		return nil
	}
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// refused checks that an error is a LookupError with the map around want.
func refused(t testing.TB, err, want error) {
	t.Helper()
	var e *shardway.LookupError
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Map != "customers" {
		t.Fatalf("got %v, want a LookupError with the map around %v", err, want)
	}
}

// quiet checks that no session is in use.
func quiet(t testing.TB, db *pgxshard.DB[int64]) {
	t.Helper()
	for _, p := range db.Stats().Pools {
		if p.InUse != 0 {
			t.Errorf("not given back: %+v", p)
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

func sum(db *pgxshard.DB[int64], of func(pgxshard.PoolStats) int) (n int) {
	for _, p := range db.Stats().Pools {
		n += of(p)
	}
	return n
}

// copied numbers what must be unique.
var copied atomic.Int64

func catalogDelete(m shardway.Mapping) catalog.Change { return catalog.DeleteMapping{Mapping: m} }

// through has shards reached by a proxy.
func through(p *faultconn.Proxy) func(shardway.Location) shardway.Location {
	return func(l shardway.Location) shardway.Location {
		l.Servers[0].Address = p.Addr()
		return l
	}
}

package mongoshard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/mongodb"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

// shards is a range map "customers" whose [0, 100) is on shard a and whose
// [100, 200) is on shard b, each a database of a deployment of its own.
type shards struct {
	t       *testing.T
	catalog *catalog.Catalog
	router  *shardway.Router
	a, b    *mongotest.Cluster
	sa, sb  shardway.Shard
	low     shardway.Mapping // [0, 100)
	keys    *shardway.RangeShardMap[int64]
	engine  mongodb.Engine
	login   shardway.Credentials
}

func newShards(t *testing.T, o mongotest.Options) *shards {
	t.Helper()
	s := &shards{t: t, a: mongotest.New(t, o), b: mongotest.New(t, o)}
	s.begin(s.location(s.a, "one"), s.location(s.b, "two"))
	return s
}

// begin makes the map with shards at the two locations.
func (s *shards) begin(a, b shardway.Location) {
	t := s.t
	t.Helper()
	global := memstore.NewGlobal()
	if _, err := global.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	locals, err := mongodb.NewLocals(s.engine, s.login, others{memstore.NewLocal()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locals.Close() })
	if s.catalog, err = catalog.New(global, locals, catalog.Config{}); err != nil {
		t.Fatal(err)
	}
	m := s.do(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	s.sa = s.do(catalog.AddShard{Map: m, Name: "a", Location: a}).Shards[0]
	s.sb = s.do(catalog.AddShard{Map: m, Name: "b", Location: b}).Shards[0]
	sql := s.do(catalog.AddShard{Map: m, Name: "sql", Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "/x"}}}}).Shards[0]
	s.low = s.do(catalog.AddMappings{Map: m, New: []catalog.NewMapping{
		{Range: span(0, 100), ShardID: s.sa.ID}, {Range: span(100, 200), ShardID: s.sb.ID}, {Range: span(200, 300), ShardID: sql.ID},
	}}).Mappings[0]
	if s.router, err = shardway.Open(t.Context(), global, shardway.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.router.Close() })
	if s.keys, err = shardway.OpenRangeShardMap[int64](t.Context(), s.router, "customers"); err != nil {
		t.Fatal(err)
	}
}

// others are shards on another engine, all in one place.
type others struct{ local *memstore.Local }

func (s *shards) location(c *mongotest.Cluster, database string) shardway.Location {
	s.t.Helper()
	_, l, _, err := mongodb.Parse(strings.TrimRight(strings.Split(c.URI(), "?")[0], "/") + "/" + database)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *shards) do(c catalog.Change) catalog.Result {
	s.t.Helper()
	r, err := s.catalog.Do(s.t.Context(), c)
	if err != nil {
		s.t.Fatalf("%T: %v", c, err)
	}
	return r
}

func span(low, high int64) shardway.Range {
	return shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)}
}

func (s *shards) open(cfg mongoshard.ShardConfig) *mongoshard.Shards[int64] {
	s.t.Helper()
	cfg.Engine, cfg.Credentials = quick{s.engine}, s.login
	db, err := mongoshard.For(s.keys, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return db
}

// quick is package mongodb's engine with the times of tests.
type quick struct{ mongodb.Engine }

func (q quick) ClientOptions(ctx context.Context, l shardway.Location, c shardway.Credentials) (*options.ClientOptions, error) {
	o, err := q.Engine.ClientOptions(ctx, l, c)
	if err != nil {
		return nil, err
	}
	return o.SetHeartbeatInterval(500 * time.Millisecond).SetServerSelectionTimeout(2 * time.Second), nil
}

func (s *shards) database(db *mongoshard.Shards[int64], key int64, want string) *mongo.Database {
	s.t.Helper()
	got, err := db.Database(bounded(s.t), key)
	if err != nil {
		s.t.Fatalf("Database(%d) = %v", key, err)
	}
	if got.Name() != want {
		s.t.Errorf("Database(%d) is %q, want %q", key, got.Name(), want)
	}
	return got
}

func TestShardsDatabase(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 3})
	db := s.open(mongoshard.ShardConfig{})
	if _, err := s.database(db, 7, "one").Collection("c").InsertOne(t.Context(), bson.M{"_id": 7}); err != nil {
		t.Fatal(err)
	}
	s.database(db, 107, "two")
	ctx, err := shardway.WithKey(t.Context(), int64(8))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := db.DatabaseByContext(ctx); err != nil || got.Name() != "one" {
		t.Errorf("DatabaseByContext = %v", err)
	}
	if _, err := db.DatabaseByContext(t.Context()); !errors.Is(err, shardway.ErrKeyRequired) {
		t.Errorf("DatabaseByContext without a key = %v", err)
	}
	if _, err := db.Database(t.Context(), 1000); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("Database of a key without a mapping = %v", err)
	}

	// The router's cache is stale now: the shard says so.
	offline := s.do(catalog.UpdateMapping{Mapping: s.low, Status: new(shardway.Offline)}).Mappings[0]
	_, err = db.Database(t.Context(), 7)
	var where *shardway.LookupError
	if !errors.Is(err, shardway.ErrMappingOffline) || !errors.As(err, &where) || where.Shard != "a" || where.Key != "7" {
		t.Errorf("Database of an offline mapping = %v", err)
	}
	s.do(catalog.UpdateMapping{Mapping: offline, ShardID: &s.sb.ID, Status: new(shardway.Online)})
	s.database(db, 7, "two")
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := db.Database(t.Context(), 7); !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("Database after Close = %v", err)
	}
}

// V4: the shard is asked, whatever the cache says; unchecked it is not.
func TestShardsUnchecked(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.Standalone})
	checked, trusting := s.open(mongoshard.ShardConfig{}), s.open(mongoshard.ShardConfig{Unchecked: true})
	s.database(checked, 7, "one")
	for _, c := range []string{"shardway_rows", "shardway_store"} { // somebody has dropped the local map
		client := plain(t, s.a)
		if err := client.Database("one").Collection(c).Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := checked.Database(t.Context(), 7); !errors.Is(err, shardway.ErrNoStore) {
		t.Errorf("Database without a local map = %v", err)
	}
	s.database(trusting, 7, "one")
}

func plain(t *testing.T, c *mongotest.Cluster) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(uri(c))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, client)
	return client
}

func TestShardsWith(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 3})
	for n := range 3 {
		s.a.Server(n).SetTags(map[string]string{"zone": string(rune('a' + n))})
	}
	db := s.open(mongoshard.ShardConfig{})
	local := db.With(selection.Where(func(i selection.ServerInfo) bool { v, _ := i.Tags.Get("zone"); return v == "c" }))
	for range 5 {
		_ = s.database(local, 7, "one").Collection("c").FindOne(t.Context(), bson.M{"x": 1}).Err()
	}
	if got := s.a.Server(2).Count("find"); got != 5 {
		t.Errorf("the chosen server has served %d reads, want 5", got)
	}
	explanation, err := local.Servers(bounded(t), "a")
	if err != nil {
		t.Fatal(err)
	}
	suitable := 0
	for _, v := range explanation.Servers {
		if v.Suitable() {
			suitable++
		}
	}
	if len(explanation.Servers) != 3 || suitable != 1 {
		t.Errorf("explanation = %+v", explanation)
	}
	if _, err := db.Servers(t.Context(), "z"); !errors.Is(err, shardway.ErrShardNotFound) {
		t.Errorf("Servers of an unknown shard = %v", err)
	}
}

// A map that mixes engines: a typed error, with advice where it was not meant.
func TestShardsMixed(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.Standalone})
	for _, mixed := range []bool{false, true} {
		db := s.open(mongoshard.ShardConfig{Mixed: mixed})
		_, err := db.Database(t.Context(), 207)
		var other *mongoshard.EngineError
		if !errors.As(err, &other) || other.Shard != "sql" || other.Engine != "sqlite" || strings.Contains(err.Error(), "ShardConfig.Mixed") == mixed {
			t.Errorf("Database on another engine, mixed %v = %v", mixed, err)
		}
		s.database(db, 7, "one")
	}
}

func TestForRefuses(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.Standalone})
	if _, err := mongoshard.For[int64](nil, mongoshard.ShardConfig{Engine: mongodb.Engine{}}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("For without a map = %v", err)
	}
	if _, err := mongoshard.For(s.keys, mongoshard.ShardConfig{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("For without an engine = %v", err)
	}
	bad := selection.Secondary(selection.MaxStaleness(-time.Second))
	if _, err := mongoshard.For(s.keys, mongoshard.ShardConfig{Engine: mongodb.Engine{}, Criteria: bad}); err == nil {
		t.Error("For with invalid criteria succeeded")
	}
	if _, err := s.open(mongoshard.ShardConfig{}).With(bad).Database(t.Context(), 7); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("Database with invalid criteria = %v", err)
	}
}

// A shard that is down is named, and keeps nobody from the others.
func TestShardsUnavailable(t *testing.T) {
	t.Parallel()
	s := newShards(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
	db := s.open(mongoshard.ShardConfig{})
	s.database(db, 7, "one")
	s.a.Server(0).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := db.Database(ctx, 7); err == nil {
		t.Error("Database of a shard that is down succeeded")
	}
	var where *shardway.LookupError
	if _, err := db.Database(t.Context(), 7); !errors.Is(err, shardway.ErrUnavailable) || !errors.As(err, &where) || where.Shard != "a" {
		t.Errorf("Database of a shard that is down = %v", err)
	}
	s.database(db, 107, "two")
}

func (o others) Open(context.Context, shardway.Location) (store.Local, error) { return o.local, nil }

func (others) Normalize(l shardway.Location) (shardway.Location, error) { return l, nil }

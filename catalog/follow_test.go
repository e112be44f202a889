package catalog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

// counted counts the mappings that routers read of a store.
type counted struct {
	*memstore.Global

	rows atomic.Int64
}

func (c *counted) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	return c.Global.Load(ctx, m, within, func(row shardway.MappingRow) error {
		c.rows.Add(1)
		return each(row)
	})
}

// follower is a catalog, and a router that holds a whole map and follows it.
type follower struct {
	t      *testing.T
	c      *catalog.Catalog
	global *counted
	m      shardway.ShardMap
	router *shardway.Map
}

// read checks how many mappings the router reads of the store for a change.
func (f *follower) read(what string, want int64, ch catalog.Change) catalog.Result {
	f.t.Helper()
	f.global.rows.Store(0)
	res := do(f.t, f.c, ch)
	time.Sleep(time.Second) // fake time
	synctest.Wait()
	if got := f.global.rows.Load(); got != want {
		f.t.Errorf("%s: the router reads %d mappings, want %d", what, got, want)
	}
	m, err := f.global.ShardMap(f.t.Context(), f.m.Name)
	if err != nil || f.router.ShardMap().Generation != m.Generation {
		f.t.Errorf("%s: the router knows generation %d, the store has %d, %v", what, f.router.ShardMap().Generation, m.Generation, err)
	}
	return res
}

// known returns what the router has for a key without asking.
func (f *follower) known(k shardway.Key) shardway.Route {
	f.t.Helper()
	route, err := f.router.Lookup(f.t.Context(), k, shardway.CacheOnly)
	if err != nil {
		f.t.Fatal(err)
	}
	return route
}

// What a router that holds a whole map reads after a change: the shards when
// only these changed, ranges when mappings did, the map when they are too many.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, kind := range []shardway.MapKind{shardway.RangeMap, shardway.ListMap} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { follow(t, kind) })
		})
	}
}

func follow(t *testing.T, kind shardway.MapKind) {
	t.Helper()
	global := &counted{Global: memstore.NewGlobal()}
	if _, err := global.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	c := newRig(t, global, func(*testing.T) store.Local { return memstore.NewLocal() }).client(catalog.Config{})
	m := do(t, c, catalog.CreateShardMap{Name: "m", Kind: kind, KeyKind: shardway.KindInt64}).Map
	router, err := shardway.Open(t.Context(), global, shardway.Config{LoadPolicy: shardway.Eager})
	if err != nil {
		t.Fatal(err)
	}
	defer router.Close()
	f := &follower{t: t, c: c, global: global, m: m}
	if f.router, err = router.Map(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}

	s1 := f.read("a shard", 0, catalog.AddShard{Map: m, Name: "s1", Location: at("s1")}).Shards[0]
	many := catalog.AddMappings{Map: m}
	for i := range int64(300) {
		within := shardway.Range{Low: k(i * 10)}
		if kind == shardway.RangeMap {
			within.High = k(i*10 + 5)
		}
		many.New = append(many.New, catalog.NewMapping{Range: within, ShardID: s1.ID})
	}
	all := f.read("many mappings", 300, many).Mappings
	s1 = f.read("another server", 0, catalog.UpdateShard{Shard: s1, Location: ptr(shardway.Location{
		Engine: "test", Database: "app", Servers: []shardway.Server{{Address: "s1"}, {Address: "second"}},
	})}).Shards[0]
	if servers := f.known(k(20)).Shard.Location.Servers; len(servers) != 2 {
		t.Errorf("the router does not know the other server: %v", servers)
	}
	s1 = f.read("a shard offline", 0, catalog.UpdateShard{Shard: s1, Status: ptr(shardway.ShardOffline)}).Shards[0]
	if got := f.known(k(20)).Shard.Version; got != s1.Version {
		t.Errorf("the router knows version %d of the shard, want %d", got, s1.Version)
	}
	s2 := f.read("a second shard", 0, catalog.AddShard{Map: m, Name: "s2", Location: at("s2")}).Shards[0]
	f.read("the second shard gone", 0, catalog.DeleteShard{Shard: s2})
	one := int64(1)
	if kind == shardway.ListMap {
		one = 0 // points are looked up
	}
	f.read("a mapping offline", one, catalog.UpdateMapping{Mapping: all[2], Status: ptr(shardway.Offline)})
	if got := f.known(k(20)).Status; got != shardway.Offline {
		t.Errorf("the mapping is %s", got)
	}
}

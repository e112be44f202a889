package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

// databases are the local stores of the examples, by address. Programs take
// those of store/sqlstore.
type databases map[string]store.Local

func (d databases) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	address := l.Servers[0].Address
	if d[address] == nil {
		d[address] = memstore.NewLocal()
	}
	return d[address], nil
}

func (databases) Normalize(l shardway.Location) (shardway.Location, error) { return l, nil }

// exampleCatalog returns a catalog with the range map "customers": keys 0 to
// 999 on shard "north", 1000 and above on shard "south".
func exampleCatalog(ctx context.Context) (*catalog.Catalog, catalog.Result) {
	global := memstore.NewGlobal()
	if _, err := global.Deploy(ctx, false); err != nil {
		log.Fatal(err)
	}
	c, err := catalog.New(global, databases{}, catalog.Config{Who: "ann@ops"})
	if err != nil {
		log.Fatal(err)
	}
	m := must(c.Do(ctx, catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64})).Map
	shard := func(name string) shardway.ShardID {
		l := shardway.Location{Engine: "postgres", Database: "app", Servers: []shardway.Server{{Address: name + ":5432"}}}
		return must(c.Do(ctx, catalog.AddShard{Map: m, Name: name, Location: l})).Shards[0].ID
	}
	return c, must(c.Do(ctx, catalog.AddMappings{Map: m, New: []catalog.NewMapping{
		{Range: shardway.Range{Low: shardway.Int64Key(0), High: shardway.Int64Key(1000)}, ShardID: shard("north")},
		{Range: shardway.RangeFrom(shardway.Int64Key(1000)), ShardID: shard("south")},
	}}))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// A change is a value: Do makes it and returns what it has left behind.
func ExampleCatalog_Do() {
	ctx := context.Background()
	c, made := exampleCatalog(ctx)
	res, err := c.Do(ctx, catalog.SplitMapping{Mapping: made.Mappings[0], At: shardway.Int64Key(500), Reason: "shard is full"})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range res.Mappings {
		fmt.Println(m.Format(res.Map.Kind), m.Status)
	}
	// The mapping that was split is stale now, whoever still has it.
	_, err = c.Do(ctx, catalog.DeleteMapping{Mapping: made.Mappings[0]})
	fmt.Println(errors.Is(err, shardway.ErrStale))
	// Output:
	// [0, 500) online
	// [500, 1000) online
	// true
}

// Preview says what a change would do, or why it would be refused.
func ExampleCatalog_Preview() {
	ctx := context.Background()
	c, made := exampleCatalog(ctx)
	res, err := c.Preview(ctx, catalog.SplitMapping{Mapping: made.Mappings[0], At: shardway.Int64Key(500)})
	fmt.Println(res.Kind+":", res.Summary, err)
	_, err = c.Preview(ctx, catalog.DeleteMapping{Mapping: made.Mappings[0]})
	fmt.Println(err)
	// Output:
	// split mapping: [0, 1000) at 500, on shard "north" <nil>
	// deleting mapping [0, 1000) of shard map "customers": take it offline first: mapping is online
}

// A range moves in two steps: it goes offline with the move, and online again
// when its rows have arrived.
func ExampleUpdateMapping() {
	ctx := context.Background()
	c, made := exampleCatalog(ctx)
	offline, online := shardway.Offline, shardway.Online
	south := made.Mappings[1].ShardID
	moved := must(c.Do(ctx, catalog.UpdateMapping{Mapping: made.Mappings[0], Status: &offline, ShardID: &south}))
	fmt.Println(moved.Kind+":", moved.Summary)
	// Here the rows are copied.
	moved = must(c.Do(ctx, catalog.UpdateMapping{Mapping: moved.Mappings[0], Status: &online}))
	fmt.Println(moved.Kind+":", moved.Summary)
	// Output:
	// move mapping: [0, 1000), online → offline, shard "north" → "south"
	// update mapping: [0, 1000), offline → online
}

// A lock keeps others from changing a mapping; its token opens it.
func ExampleLockMapping() {
	ctx := context.Background()
	c, made := exampleCatalog(ctx)
	lock := shardway.Lock{Token: catalog.NewLockToken(), Owner: "nightly move", Reason: "copying rows"}
	locked := must(c.Do(ctx, catalog.LockMapping{Mapping: made.Mappings[0], Lock: lock})).Mappings[0]
	offline := shardway.Offline
	_, err := c.Do(ctx, catalog.UpdateMapping{Mapping: locked, Status: &offline})
	fmt.Println(err)
	_, err = c.Do(ctx, catalog.UpdateMapping{Mapping: locked, Status: &offline, Token: lock.Token})
	fmt.Println(err)
	// Output:
	// changing mapping [0, 1000) of shard map "customers": locked by "nightly move" (copying rows): mapping is locked
	// <nil>
}

// The history tells who has changed what, and how it ended.
func ExampleCatalog_History() {
	ctx := context.Background()
	c, made := exampleCatalog(ctx)
	must(c.Do(ctx, catalog.SplitMapping{Mapping: made.Mappings[0], At: shardway.Int64Key(500), Reason: "shard is full"}))
	entries, err := c.History(ctx, made.Map.ID, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Printf("%s: %s (%s), %s, %q\n", e.Who, e.Kind, e.Summary, e.Outcome, e.Reason)
	}
	// Output:
	// ann@ops: split mapping ([0, 1000) at 500, on shard "north"), done, "shard is full"
	// ann@ops: add mapping (2 mappings, the first is [0, 1000), on shards "north", "south"), done, ""
}

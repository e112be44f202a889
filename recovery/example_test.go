package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

// places are local stores in memory, by address.
type places map[string]*memstore.Local

func (p places) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	address := l.Servers[0].Address
	if p[address] == nil {
		p[address] = memstore.NewLocal()
	}
	return p[address], nil
}

func (p places) Normalize(l shardway.Location) (shardway.Location, error) { return l, nil }

// The database of a shard is lost, and restored empty.
func Example() {
	ctx := context.Background()
	global, locals := memstore.NewGlobal(), places{}
	if _, err := global.Deploy(ctx, false); err != nil {
		panic(err)
	}
	c, err := catalog.New(global, locals, catalog.Config{})
	if err != nil {
		panic(err)
	}
	customers := shardMap(ctx, c)
	locals["db1"] = memstore.NewLocal() // all is lost there
	r, err := recovery.New(global, locals, c, recovery.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(detect(ctx, r, customers))
	all, err := r.RebuildLocal(ctx, customers, recovery.Rebuild{Reason: "empty disk"})
	if err != nil {
		panic(err)
	}
	fmt.Println(all[0].Shard.Name, len(all[0].Effect.LocalAdded), all[0].Err)
	fmt.Println(detect(ctx, r, customers))
	if err := restored(ctx, r, customers, slog.New(slog.DiscardHandler)); err != nil {
		panic(err)
	}
	// Output:
	// no store
	// s1 2 <nil>
	// equal
}

func shardMap(ctx context.Context, c *catalog.Catalog) shardway.ShardMap {
	made, err := c.Do(ctx, catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64})
	if err != nil {
		panic(err)
	}
	added, err := c.Do(ctx, catalog.AddShard{Map: made.Map, Name: "s1", Location: at("db1")})
	if err != nil {
		panic(err)
	}
	id := added.Shards[0].ID
	if _, err := c.Do(ctx, catalog.AddMappings{Map: made.Map, New: []catalog.NewMapping{{Range: span(0, 10), ShardID: id}, {Range: span(10, 20), ShardID: id}}}); err != nil {
		panic(err)
	}
	return made.Map
}

func detect(ctx context.Context, r *recovery.Recovery, customers shardway.ShardMap) recovery.State {
	reports, err := r.Detect(ctx, customers)
	if err != nil {
		panic(err)
	}
	return reports[0].State
}

// restored takes the global side for the truth wherever a shard differs.
func restored(ctx context.Context, r *recovery.Recovery, customers shardway.ShardMap, log *slog.Logger) error {
	reports, err := r.Detect(ctx, customers)
	if err != nil {
		return err
	}
	for _, report := range reports {
		if report.State != recovery.Differs {
			continue
		}
		effect, err := r.Resolve(ctx, recovery.Resolution{Report: report, Keep: recovery.KeepGlobal, Reason: "s1 restored from its backup"})
		if err != nil {
			return err
		}
		log.Info("resolved", "shard", report.Shard.Name, "differences", len(report.Differences), "brought back", len(effect.LocalAdded))
	}
	return nil
}

// A server ends what dead clients leave behind until it is told to stop.
func Example_watch() {
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	global := memstore.NewGlobal()
	if _, err := global.Deploy(ctx, false); err != nil {
		panic(err)
	}
	c, err := catalog.New(global, places{}, catalog.Config{})
	if err != nil {
		panic(err)
	}
	err = c.Watch(ctx, catalog.Watch{Every: 10 * time.Second, Selection: catalog.Selection{OlderThan: time.Minute}})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

package catalog_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// Text that an operation could not keep as it is, is refused before anything is
// written; free text for people becomes readable instead.
func TestNotText(t *testing.T) {
	t.Parallel()
	const bad = "a\xffb"
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		r, w := e.world(t)
		c := r.client(catalog.Config{})
		before := r.look(t)
		location := func(change func(l *shardway.Location)) *shardway.Location {
			l := at("db-s1")
			change(&l)
			return &l
		}
		tag := func(name, value string) catalog.Change {
			return catalog.UpdateShard{Shard: w.s1, Location: location(func(l *shardway.Location) {
				l.Servers[0].Tags = map[string]string{name: value}
			})}
		}
		for argument, changes := range map[string][]catalog.Change{
			"lock token":     {catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: bad, Owner: "bob"}}},
			"lock owner":     {catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: "t", Owner: bad}}},
			"shard map name": {catalog.CreateShardMap{Name: bad, Kind: shardway.ListMap, KeyKind: shardway.KindInt64}},
			"shard name": {
				catalog.AddShard{Map: w.ranges, Name: bad, Location: at("db-s4")},
				catalog.UpdateShard{Shard: w.s1, Name: ptr(bad)},
			},
			"engine":   {catalog.AddShard{Map: w.ranges, Name: "s4", Location: *location(func(l *shardway.Location) { l.Engine = bad })}},
			"database": {catalog.AddShard{Map: w.ranges, Name: "s4", Location: *location(func(l *shardway.Location) { l.Database = bad })}},
			"server": {
				catalog.AddShard{Map: w.ranges, Name: "s4", Location: at("db-s4" + bad)},
				catalog.UpdateShard{Shard: w.s1, Location: location(func(l *shardway.Location) {
					l.Servers = append(l.Servers, shardway.Server{Address: bad})
				})},
			},
			"tag of server db-s1": {tag(bad, "v"), tag("zone", bad)},
		} {
			for _, ch := range changes {
				_, err := c.Do(t.Context(), ch)
				var refused *shardway.ArgumentError
				if !errors.As(err, &refused) || refused.Argument != argument || !strings.Contains(refused.Reason, "UTF-8") {
					t.Errorf("%T with a bad %s: %v, want an error that names it", ch, argument, err)
				}
			}
		}
		after := r.look(t)
		after.checkSettled(t)
		if diff := cmp.Diff(before.published, after.published); diff != "" {
			t.Errorf("refused changes have changed the map (-before +after):\n%s", diff)
		}
		if _, err := catalog.New(r.global, r, catalog.Config{Who: bad}); err == nil || !strings.Contains(err.Error(), "Who") {
			t.Errorf("New = %v, want an error that names Who", err)
		}

		locked := do(t, c, catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: "tökén\x00", Owner: "bob", Reason: bad}}).Mappings[0]
		split := do(t, c, catalog.SplitMapping{Mapping: locked, At: k(50), Token: locked.Lock.Token})
		for _, m := range split.Mappings { // the token has survived an operation
			do(t, c, catalog.UnlockMapping{Mapping: m, Token: locked.Lock.Token})
		}
	})
}

// countedGlobal counts how often operations are read.
type countedGlobal struct {
	store.Global

	reads atomic.Int32
}

func (g *countedGlobal) View(ctx context.Context, fn func(store.Reader) error) error {
	return g.Global.View(ctx, func(tx store.Reader) error { return fn(countedReader{tx, g}) })
}

type countedReader struct {
	store.Reader

	of *countedGlobal
}

func (r countedReader) Operations(ctx context.Context, q store.OperationQuery) ([]store.Operation, error) {
	r.of.reads.Add(1)
	return r.Reader.Operations(ctx, q)
}

// A plan for many shards reads the pending operations, which come with all their
// mappings, once and not once for each shard.
func TestPlanReadsOperationsOnce(t *testing.T) {
	t.Parallel()
	r, w := memory.world(t)
	g := &countedGlobal{Global: r.global}
	c, err := catalog.New(g, r, catalog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ch := catalog.Reconcile{Map: w.ranges}
	for _, s := range []shardway.Shard{w.s1, w.s2, w.s3} {
		ch.Parts = append(ch.Parts, catalog.Part{Shard: s})
	}
	if _, err := c.Preview(t.Context(), ch); err != nil {
		t.Fatal(err)
	}
	if n := g.reads.Load(); n != 1 {
		t.Errorf("operations were read %d times, want once", n)
	}
}

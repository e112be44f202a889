package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// bulk is a global store with one map and one shard, and the shard's local store.
type bulk struct {
	global *sqlstore.Global
	local  *sqlstore.Local
	m      shardway.ShardMap
	shard  shardway.Shard
	next   int64 // the first key that is free
}

func newBulk(b *testing.B, e dbtest.Engine) *bulk {
	b.Helper()
	if err := e.Available(); err != nil {
		b.Skip(err)
	}
	w := &bulk{global: placeOf(b, e.NewDatabase(b)).deployed(b), local: placeOf(b, e.NewDatabase(b)).local(b)}
	w.m = shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	w.shard = shardway.Shard{
		ID: shardway.ShardID(store.NewID()), MapID: w.m.ID, Name: "s", Version: store.NewID(),
		Location: shardway.Location{Engine: string(e), Servers: []shardway.Server{{Address: "a"}}},
	}
	if err := w.local.Deploy(b.Context(), "id"); err != nil {
		b.Fatal(err)
	}
	w.update(b, 0, store.Delta{AddMap: &w.m})
	w.change(b, store.Step{Shard: w.shard, After: &w.shard})
	return w
}

func (w *bulk) update(b *testing.B, m shardway.MapID, d store.Delta) {
	b.Helper()
	err := w.global.Update(b.Context(), m, func(store.Reader, time.Time) (store.Delta, error) { return d, nil })
	if err != nil {
		b.Fatal(err)
	}
}

// change runs one operation through both stores, as package catalog does.
func (w *bulk) change(b *testing.B, step store.Step) {
	b.Helper()
	o := &store.Operation{ID: store.OperationID(store.NewID()), Kind: "k", Map: w.m, Steps: []store.Step{step}, Epoch: 1}
	w.update(b, w.m.ID, store.Delta{Prepare: o})
	_, err := w.local.Step(b.Context(), store.LocalStep{Operation: o.ID, Seq: o.Seq, Epoch: 1, Map: w.m, Step: step, Want: store.StepApplied})
	if err != nil {
		b.Fatal(err)
	}
	entry := store.Entry{Operation: o.ID, MapID: w.m.ID, MapName: w.m.Name, Outcome: store.Done, Ranges: []shardway.Range{shardway.FullRange(w.m.KeyKind)}}
	w.update(b, w.m.ID, store.Delta{Publish: o, History: []store.Entry{entry}})
}

// mappings returns the next n mappings; they touch one another.
func (w *bulk) mappings(n int) []shardway.Mapping {
	all := make([]shardway.Mapping, n)
	for i := range all {
		all[i] = shardway.Mapping{
			ID: shardway.MappingID(store.NewID()), MapID: w.m.ID, ShardID: w.shard.ID, Status: shardway.Online,
			Range: shardway.Range{Low: shardway.Int64Key(w.next), High: shardway.Int64Key(w.next + 1)},
		}
		w.next++
	}
	return all
}

func eachEngine(b *testing.B, run func(b *testing.B, e dbtest.Engine)) {
	for _, e := range dbtest.Engines() {
		b.Run(string(e), func(b *testing.B) { run(b, e) })
	}
}

// BenchmarkBulkCreate creates 100,000 mappings in one change: prepared, applied
// in the local store, published. The goal on PostgreSQL is 5 s.
func BenchmarkBulkCreate(b *testing.B) {
	eachEngine(b, func(b *testing.B, e dbtest.Engine) {
		w := newBulk(b, e)
		for b.Loop() {
			w.change(b, store.Step{Shard: w.shard, Add: w.mappings(100_000)})
		}
	})
}

// BenchmarkLoad reads whole maps. The goal on PostgreSQL is 0.6 s for 1,000,000
// mappings.
func BenchmarkLoad(b *testing.B) {
	eachEngine(b, func(b *testing.B, e dbtest.Engine) {
		w := newBulk(b, e)
		for _, size := range []int{10_000, 100_000, 1_000_000} {
			for int(w.next) < size {
				w.change(b, store.Step{Shard: w.shard, Add: w.mappings(min(size-int(w.next), 100_000))})
			}
			b.Run(fmt.Sprint(size), func(b *testing.B) {
				for b.Loop() {
					n := 0
					_, err := w.global.Load(b.Context(), w.m, shardway.Range{}, func(shardway.MappingRow) error { n++; return nil })
					if err != nil || n != size {
						b.Fatalf("Load = %d mappings, %v", n, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size), "ns/row")
			})
		}
	})
}

// BenchmarkLookup is the cost of one cache miss in a map of 100,000 mappings.
func BenchmarkLookup(b *testing.B) {
	eachEngine(b, func(b *testing.B, e dbtest.Engine) {
		w := newBulk(b, e)
		w.change(b, store.Step{Shard: w.shard, Add: w.mappings(100_000)})
		key := int64(0)
		for b.Loop() {
			key = (key + 7919) % 100_000
			answer, err := w.global.Lookup(b.Context(), w.m, shardway.Int64Key(key))
			if err != nil || !answer.Found {
				b.Fatalf("Lookup = %+v, %v", answer, err)
			}
		}
	})
}

// BenchmarkChange is one small change, through both stores, of a map with
// 100,000 mappings.
func BenchmarkChange(b *testing.B) {
	eachEngine(b, func(b *testing.B, e dbtest.Engine) {
		w := newBulk(b, e)
		w.change(b, store.Step{Shard: w.shard, Add: w.mappings(100_000)})
		for b.Loop() {
			w.change(b, store.Step{Shard: w.shard, Add: w.mappings(1)})
		}
	})
}

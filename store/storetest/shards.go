package storetest

import (
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func testShards(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	other := w.addMap("other", shardway.RangeMap, shardway.KindInt64)
	s := newShard(m, "s")
	s.Status = shardway.ShardOffline
	s.Location = shardway.Location{Engine: "mysql", Database: "Kunden ä", Servers: []shardway.Server{
		{Address: "b.example:3306", Tags: map[string]string{"zone": "eu-1", "": "empty", "ü": `"'\`, "role": ""}},
		{Address: "a.example:3306"},
		{Address: "[::1]:3306", Tags: map[string]string{"zone": "eu-2"}},
		{Address: "/" + strings.Repeat("long/", 20) + "mysql.sock"},
	}}
	o := w.prepare(m, store.Step{Shard: s, After: &s})
	w.same("a shard being added", list(store.ShardRow{Shard: s, Operation: o.ID, Pending: true}), w.shards(m.ID))
	w.must(m.ID, store.Delta{Publish: o})
	w.same("a shard added", list(store.ShardRow{Shard: s}), w.shards(m.ID))
	w.same("shards of another map", []store.ShardRow(nil), w.shards(other.ID))

	twin := newShard(other, "s") // the same name, and the same database, in another map
	twin.Location = s.Location
	w.change(other, store.Step{Shard: twin, After: &twin})
	if all := w.shards(0); len(all) != 2 {
		w.Errorf("shards of all maps = %+v, want two", all)
	}

	moved := *changed(s)
	moved.Status = shardway.ShardOnline
	moved.Location = shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: `C:\data\ä b.db`}}}
	o = w.prepare(m, store.Step{Shard: moved, Before: &s, After: &moved})
	w.same("a shard being changed", list(store.ShardRow{Shard: s, Operation: o.ID}), w.shards(m.ID))
	w.must(m.ID, store.Delta{Publish: o})
	w.same("a shard changed", list(store.ShardRow{Shard: moved}), w.shards(m.ID))

	o = w.prepare(m, store.Step{Shard: moved, Before: &moved})
	w.same("a shard being removed", list(store.ShardRow{Shard: moved, Operation: o.ID}), w.shards(m.ID))
	w.must(m.ID, store.Delta{Publish: o})
	w.same("a shard removed", []store.ShardRow(nil), w.shards(m.ID))
	w.same("the shard of the other map", list(store.ShardRow{Shard: twin}), w.shards(other.ID))
}

func testShardNames(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	names := difficultNames()
	var steps []store.Step
	for n := range names {
		s := newShard(m, names[len(names)-1-n])
		steps = append(steps, store.Step{Shard: s, After: &s})
	}
	w.change(m, steps...)
	var got []string
	for _, row := range w.shards(m.ID) {
		got = append(got, row.Name)
	}
	w.same("names in order", names, got)
	state, err := w.Load(w.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { return nil })
	if err != nil || len(state.Shards) != len(names) {
		w.Errorf("Load = %d shards, %v, want %d", len(state.Shards), err, len(names))
	}
}

package storetest

import (
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func testChanges(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	other := w.addMap("other", shardway.ListMap, shardway.KindString)
	so := w.addShard(other, "s")
	s := w.addShard(m, "s") // generation 2, without a history entry
	publish := func(m shardway.ShardMap, s shardway.Shard, ranges ...shardway.Range) {
		w.Helper()
		o := newOperation(m, store.Step{Shard: s})
		w.must(m.ID, store.Delta{Prepare: o, Publish: o, History: list(newEntry(o, store.Done, ranges...))})
	}
	shards := func(m shardway.ShardMap, s shardway.Shard) {
		w.Helper()
		o := newOperation(m, store.Step{Shard: s})
		e := newEntry(o, store.Done)
		e.ShardsOnly = true
		w.must(m.ID, store.Delta{Prepare: o, Publish: o, History: list(e)})
	}
	see := func(m shardway.ShardMap, since int64, want shardway.Changes) {
		w.Helper()
		got, err := w.Changes(w.Context(), m, since)
		if err != nil {
			w.Errorf("Changes since %d = %v", since, err)
			return
		}
		if !got.Complete {
			got.Ranges, got.Shards = nil, false
		}
		slices.SortFunc(got.Ranges, func(a, b shardway.Range) int { return a.Low.Compare(b.Low) })
		w.same(fmt.Sprintf("changes since %d", since), want, got)
	}
	see(m, 2, shardway.Changes{Generation: 2, Complete: true})
	see(m, 1, shardway.Changes{Generation: 2}) // nobody wrote down what changed
	publish(m, s, span(0, 10), span(40, 50))
	publish(m, s, spanFrom(100))
	points := keysOf("a\x00", "\xff")
	publish(other, so, point(points[0]), point(points[1]))
	undone := w.prepare(m, store.Step{Shard: s})
	w.must(m.ID, store.Delta{Abort: undone, History: list(newEntry(undone, store.Undone, span(60, 70)))})

	see(m, 4, shardway.Changes{Generation: 4, Complete: true})
	see(m, 3, shardway.Changes{Generation: 4, Complete: true, Ranges: list(spanFrom(100))})
	see(m, 2, shardway.Changes{Generation: 4, Complete: true, Ranges: list(span(0, 10), span(40, 50), spanFrom(100))})
	see(m, 1, shardway.Changes{Generation: 4})
	see(m, 5, shardway.Changes{Generation: 4}) // of a store that was, or of another one
	see(other, 2, shardway.Changes{Generation: 3, Complete: true, Ranges: list(point(points[0]), point(points[1]))})

	publish(m, s) // an entry without ranges: the whole map
	publish(m, s, span(70, 80))
	see(m, 5, shardway.Changes{Generation: 6, Complete: true, Ranges: list(span(70, 80))})
	see(m, 4, shardway.Changes{Generation: 6})
	see(m, 3, shardway.Changes{Generation: 6})
	w.change(m, store.Step{Shard: s}) // again without an entry
	publish(m, s, span(80, 90))
	see(m, 7, shardway.Changes{Generation: 8, Complete: true, Ranges: list(span(80, 90))})
	see(m, 6, shardway.Changes{Generation: 8})
	see(m, 5, shardway.Changes{Generation: 8})

	shards(m, s) // no mapping changed
	see(m, 8, shardway.Changes{Generation: 9, Complete: true, Shards: true})
	see(m, 7, shardway.Changes{Generation: 9, Complete: true, Shards: true, Ranges: list(span(80, 90))})
	see(m, 6, shardway.Changes{Generation: 9})
	publish(m, s, span(10, 20))
	see(m, 8, shardway.Changes{Generation: 10, Complete: true, Shards: true, Ranges: list(span(10, 20))})
	see(m, 9, shardway.Changes{Generation: 10, Complete: true, Ranges: list(span(10, 20))})
	shards(other, so)
	see(other, 2, shardway.Changes{Generation: 4, Complete: true, Shards: true, Ranges: list(point(points[0]), point(points[1]))})
}

package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func testHistory(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	other := w.addMap("other ä", shardway.ListMap, shardway.KindString)
	var want []store.Entry // newest first
	write := func(m shardway.ShardMap, entries ...store.Entry) {
		w.Helper()
		w.must(m.ID, store.Delta{History: entries})
		for _, e := range entries {
			want = append(list(e), want...)
		}
	}
	a, b := newOperation(m), newOperation(other)
	first := newEntry(a, store.Done, span(-5, 5), spanFrom(10))
	first.Generation, first.Who, first.Kind = 3, strings.Repeat("w", 120), "kind ü"
	first.Reason = strings.Repeat("it's \"so\" \\ ü 😀\n", 500)
	first.Summary = strings.Repeat("[1, 2) ", 1000)
	write(m, first)
	points := keysOf("", "a\x00", "\xff")
	second := newEntry(b, store.Undone, point(points[0]), point(points[1]), point(points[2]))
	second.At = instant.Add(-time.Hour) // the order is that of writing
	write(other, second, newEntry(a, store.Undone))
	many := newEntry(b, store.Done)
	for n := range int64(2000) {
		many.Ranges = append(many.Ranges, span(n, n+1))
	}
	write(m, store.Entry{Operation: a.ID, At: instant, MapID: m.ID, MapName: "m", Kind: "lock mapping", Outcome: store.Done}, many)

	got := w.history(store.HistoryQuery{})
	w.same("history", want, got)
	for _, e := range got {
		if e.At.Location() != time.UTC {
			w.Errorf("time of an entry is not in UTC: %v", e.At)
		}
	}
	for what, q := range map[string]store.HistoryQuery{
		"of an operation":            {Operation: a.ID},
		"of a map":                   {Map: other.ID},
		"of an operation in a map":   {Operation: a.ID, Map: m.ID},
		"of nothing":                 {Operation: a.ID ^ 1},
		"limited":                    {Limit: 2},
		"limited to all":             {Limit: 5},
		"limited after selecting":    {Map: m.ID, Limit: 3},
		"the latest of an operation": {Operation: b.ID, Limit: 1},
	} {
		var some []store.Entry
		for _, e := range want {
			if (q.Operation == 0 || e.Operation == q.Operation) && (q.Map == 0 || e.MapID == q.Map) && (q.Limit == 0 || len(some) < q.Limit) {
				some = append(some, e)
			}
		}
		w.same("history "+what, some, w.history(q))
	}
}

// manyParts returns a store in which every part of a Delta has something to
// do, and the function that returns that Delta, afresh.
func manyParts(w *world) (m shardway.ShardMap, whole func() store.Delta) {
	m = w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	empty := w.addMap("empty", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	var all []shardway.Mapping
	for n := range int64(6) {
		all = append(all, newMapping(s, span(n*10, n*10+10)))
	}
	w.change(m, add(s, all...))
	publish := w.prepare(m, replace(s, all[0:1], list(next(all[0]))))
	abort := w.prepare(m, replace(s, all[1:2], list(next(all[1]))))
	lease := w.prepare(m, replace(s, all[2:3], list(next(all[2]))))
	fresh := newMap("fresh", shardway.ListMap, shardway.KindString)
	prepared := newOperation(m, replace(s, all[3:4], list(next(all[3]))))
	locked := all[4]
	locked.Lock = shardway.Lock{Token: "t"}
	return m, func() store.Delta {
		p, l := *prepared, *lease
		l.Epoch = 2
		return store.Delta{
			AddMap: &fresh, DropMap: empty.ID, Prepare: &p, Publish: publish, Abort: abort, Lease: &l,
			Lock: list(locked), History: list(newEntry(publish, store.Done, span(0, 10)), newEntry(abort, store.Undone)),
		}
	}
}

// testAtomic breaks one part after the other of a Delta that has them all.
func testAtomic(w *world) {
	m, whole := manyParts(w)
	gone := newOperation(m)
	s := w.shards(m.ID)[0].Shard
	for part, broken := range map[string]struct {
		spoil func(d *store.Delta)
		want  error
	}{
		"AddMap":  {func(d *store.Delta) { taken := *d.AddMap; taken.Name = "m"; d.AddMap = &taken }, shardway.ErrExists},
		"DropMap": {func(d *store.Delta) { d.DropMap = m.ID }, shardway.ErrInUse},
		"Prepare": {func(d *store.Delta) { d.Prepare.Steps = list(replace(s, list(newMapping(s, span(0, 1))), nil)) }, shardway.ErrStale},
		"Publish": {func(d *store.Delta) { d.Publish = gone }, store.ErrLostLease},
		"Abort":   {func(d *store.Delta) { d.Abort = gone }, store.ErrLostLease},
		"Lease":   {func(d *store.Delta) { d.Lease = gone }, store.ErrLostLease},
		"Lock":    {func(d *store.Delta) { d.Lock = append(d.Lock, newMapping(s, span(0, 1))) }, shardway.ErrStale},
	} {
		d := whole()
		broken.spoil(&d)
		w.refused("a Delta with a bad "+part, m.ID, d, broken.want)
	}

	generation := w.generation(m)
	d := whole()
	w.must(m.ID, d)
	after := w.dump()
	got := fmt.Sprint(after.Maps[0].Name, " ", after.Maps[1].Name, " ", len(after.Maps), " ", w.generation(m)-generation)
	w.same("maps and generation", "fresh m 2 1", got)
	state := ""
	for _, row := range w.mappings(store.MappingQuery{Map: m}) {
		mark := "free"
		switch row.Operation {
		case d.Prepare.ID:
			mark = "prepared"
		case d.Lease.ID:
			mark = "leased"
		case 0:
		default:
			mark = "wrong"
		}
		state += fmt.Sprintf("%s %s %v %s\n", row.Range, mark, row.Pending, row.Lock.Token)
	}
	w.same("mappings", `[0, 10) free false `+`
[10, 20) free false `+`
[20, 30) leased false `+`
[20, 30) leased true `+`
[30, 40) prepared false `+`
[30, 40) prepared true `+`
[40, 50) free false t
[50, 60) free false `+`
`, state)
	if first := w.mappings(store.MappingQuery{Map: m})[0]; first.ID != d.Publish.Added()[0].ID {
		w.Errorf("the first mapping is %s, want the published one", first.ID)
	}
	if ops := after.Operations; len(ops) != 2 || ops[0].ID != d.Lease.ID || ops[0].Epoch != 2 || ops[1].ID != d.Prepare.ID {
		w.Errorf("operations = %+v, want the leased and the prepared one", ops)
	}
	if h := after.History; len(h) != 2 || h[0].Generation != 0 || h[1].Generation != generation+1 || h[1].Operation != d.Publish.ID {
		w.Errorf("history = %+v, want abort and publish", h)
	}
}

func testOrder(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	a := newMapping(s, span(0, 10))
	w.change(m, add(s, a))
	o := w.prepare(m, replace(s, list(a), nil))
	again := newOperation(m, replace(s, list(a), nil))
	w.refused("preparing on rows that the same Delta frees", m.ID, store.Delta{Prepare: again, Abort: o}, shardway.ErrStale)
	w.refused("preparing on rows that the same Delta publishes", m.ID, store.Delta{Prepare: again, Publish: o}, shardway.ErrStale)
	w.refused("leasing what the same Delta ends", m.ID, store.Delta{Abort: o, Lease: o}, store.ErrLostLease)
	w.refused("locking what the same Delta removes", m.ID, store.Delta{Publish: o, Lock: list(a)}, shardway.ErrStale)

	fresh := newMap("fresh", shardway.RangeMap, shardway.KindInt64)
	fs := newShard(fresh, "s")
	fm := newMapping(fs, spanFrom(0))
	locked := fm
	locked.Lock = shardway.Lock{Token: "t"}
	fo := newOperation(fresh, store.Step{Shard: fs, After: &fs, Add: list(fm)})
	w.must(0, store.Delta{AddMap: &fresh, Prepare: fo, Publish: fo, Lock: list(locked), History: list(newEntry(fo, store.Done))})
	w.same("a map, its shard and mapping in one Delta", rows(locked), w.mappings(store.MappingQuery{Map: fresh}))
	w.same("generation", int64(2), w.generation(fresh))
	w.same("generation in the history", int64(2), w.history(store.HistoryQuery{Operation: fo.ID})[0].Generation)

	short := newOperation(fresh, replace(fs, list(locked), nil))
	before := w.dump()
	w.must(fresh.ID, store.Delta{Prepare: short, Abort: short})
	w.same("preparing and aborting in one Delta left something", before, w.dump())
}

package storetest

import (
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// testOperationKept reads back an operation in which everything is filled in.
func testOperationKept(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindString)
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	s2after := changed(s2)
	s2after.Location.Servers = []shardway.Server{{Address: "x", Tags: map[string]string{"a": "ü\x00'\""}}, {Address: "y"}}
	s3 := newShard(m, "s3 ä")
	keys := keysOf("", "a\x00\xff", "b\xfe", "c")
	old := newMapping(s1, shardway.Range{Low: keys[0], High: keys[1]})
	old.Status = shardway.Offline
	old.Lock = shardway.Lock{Token: "token", Owner: "owner ü", Reason: "reason\n", Expires: instant}
	w.change(m, add(s1, old))
	kept := next(old)
	kept.ShardID = s2.ID
	open := newMapping(s3, shardway.RangeFrom(keys[2]))

	o := newOperation(m,
		store.Step{Shard: s1, Remove: list(old)},
		store.Step{Shard: s2, Before: &s2, After: s2after, Add: list(kept)},
		store.Step{Shard: s3, After: &s3, Add: list(open)})
	o.Kind = "a kind of change"
	o.Who = strings.Repeat("w", 120) + " ü"
	o.Reason = strings.Repeat("it's \"so\" \\ ü 😀\n", 500)
	o.Summary = strings.Repeat("[a, b) ", 1000)
	o.Epoch, o.Owner, o.LeaseUntil = 42, "owner 😀", instant.Add(time.Microsecond)
	want := *o
	w.must(m.ID, store.Delta{Prepare: o})
	if o.Seq <= 0 {
		w.Errorf("Seq of a prepared operation = %d, want it set", o.Seq)
	}
	want.Seq, want.Map.Generation = o.Seq, 0
	for name, q := range map[string]store.OperationQuery{
		"everything": {}, "by id": {ID: o.ID}, "by map": {Map: m.ID}, "by id and map": {ID: o.ID, Map: m.ID},
	} {
		got := w.operations(q)
		w.same("operation "+name, list(want), got)
		if len(got) == 1 && (got[0].Started.Location() != time.UTC || got[0].LeaseUntil.Location() != time.UTC) {
			w.Errorf("times are not in UTC: %v, %v", got[0].Started, got[0].LeaseUntil)
		}
	}
	w.same("operation by another id", []store.Operation(nil), w.operations(store.OperationQuery{ID: o.ID ^ 1}))
	w.same("operation by another map", []store.Operation(nil), w.operations(store.OperationQuery{Map: m.ID ^ 1}))

	// Oldest first, and Seq only grows, whatever has ended meanwhile and in which map.
	m2 := w.addMap("m2", shardway.ListMap, shardway.KindInt64)
	second := w.prepare(m2, store.Step{Shard: newShard(m2, "unused")})
	w.must(m2.ID, store.Delta{Publish: second})
	third := w.prepare(m, store.Step{Shard: s1})
	w.must(m.ID, store.Delta{Abort: third})
	fourth := w.prepare(m2, store.Step{Shard: newShard(m2, "unused")})
	if !(o.Seq < second.Seq && second.Seq < third.Seq && third.Seq < fourth.Seq) {
		w.Errorf("Seq of four operations = %d, %d, %d, %d, want them to grow", o.Seq, second.Seq, third.Seq, fourth.Seq)
	}
	all := w.operations(store.OperationQuery{})
	if len(all) != 2 || all[0].ID != o.ID || all[1].ID != fourth.ID || all[1].Seq != fourth.Seq {
		w.Errorf("operations = %+v, want %s, %s", all, o.ID, fourth.ID)
	}
}

func testPrepare(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	a, b := newMapping(s1, span(0, 10)), newMapping(s1, span(10, 20))
	w.change(m, add(s1, a, b))
	generation := w.generation(m)

	a2 := next(a)
	a2.ShardID = s2.ID
	a2.Lock = shardway.Lock{Token: "t"}
	s3 := newShard(m, "s3")
	c := newMapping(s3, span(20, 30)) // on a shard that the same operation adds
	o := w.prepare(m, replace(s1, list(a), nil), add(s2, a2),
		store.Step{Shard: s2, Before: &s2, After: changed(s2)},
		store.Step{Shard: s3, After: &s3, Add: list(c)})
	w.same("mappings", []store.MappingRow{
		{Mapping: a, Operation: o.ID}, {Mapping: a2, Operation: o.ID, Pending: true}, row(b), {Mapping: c, Operation: o.ID, Pending: true},
	}, w.mappings(store.MappingQuery{Map: m}))
	w.same("shards", []store.ShardRow{
		{Shard: s1}, {Shard: s2, Operation: o.ID}, {Shard: s3, Operation: o.ID, Pending: true},
	}, w.shards(m.ID))
	if g := w.generation(m); g != generation {
		w.Errorf("generation after preparing = %d, want %d", g, generation)
	}

	// Another operation on other rows of the map is no obstacle.
	o2 := w.prepare(m, replace(s1, list(b), nil))
	if n := len(w.operations(store.OperationQuery{Map: m.ID})); n != 2 {
		w.Errorf("%d operations, want 2", n)
	}
	w.must(m.ID, store.Delta{Abort: o})
	w.same("mappings after one abort", []store.MappingRow{row(a), {Mapping: b, Operation: o2.ID}}, w.mappings(store.MappingQuery{Map: m}))
}

// testPrepareStale prepares operations on rows that are not as they were.
func testPrepareStale(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	other := w.addMap("other", shardway.RangeMap, shardway.KindInt64)
	s1, s2, s3 := w.addShard(m, "s1"), w.addShard(m, "s2"), w.addShard(m, "s3")
	foreign := w.addShard(other, "s1")
	a, b, c := newMapping(s1, span(0, 10)), newMapping(s1, span(10, 20)), newMapping(s1, span(20, 30))
	w.change(m, add(s1, a, b, c))
	a2 := next(a)
	w.change(m, replace(s1, list(a), list(a2)))
	pending := next(b)
	w.prepare(m, replace(s1, list(b), list(pending)), store.Step{Shard: s2, Before: &s2, After: changed(s2)})
	adding := newShard(m, "adding")
	w.prepare(m, store.Step{Shard: adding, After: &adding})
	staleShard := s3
	s3new := changed(s3)
	w.change(m, store.Step{Shard: s3, Before: &s3, After: s3new})
	missing := newShard(m, "missing")
	fresh := newMapping(s1, span(50, 60))

	for what, step := range map[string]store.Step{
		"a mapping that was changed":               {Shard: s1, Remove: list(a)},
		"a mapping that never was":                 {Shard: s1, Remove: list(next(a))},
		"one good and one changed mapping":         {Shard: s1, Remove: list(c, a), Add: list(fresh)},
		"a mapping that another operation removes": {Shard: s1, Remove: list(b)},
		"a mapping that another operation adds":    {Shard: s1, Remove: list(pending)},
		"a shard that was changed":                 {Shard: s3, Before: &staleShard, After: changed(s3)},
		"a shard that never was":                   {Shard: missing, Before: &missing, After: changed(missing)},
		"removing a shard that never was":          {Shard: missing, Before: &missing},
		"a shard that another operation changes":   {Shard: s2, Before: &s2},
		"a shard that another operation adds":      {Shard: adding, Before: &adding, After: changed(adding)},
	} {
		o := newOperation(m, add(s1, newMapping(s1, span(70, 80))), step)
		w.refused(what, m.ID, store.Delta{Prepare: o}, shardway.ErrStale)
	}
	o := newOperation(m, store.Step{Shard: foreign, Before: &foreign, After: changed(foreign)})
	w.refused("a shard of another map", m.ID, store.Delta{Prepare: o}, shardway.ErrStale)

	o = w.prepare(m, replace(s1, list(c), nil))
	o = newOperation(m, add(s1, fresh))
	o.ID = w.operations(store.OperationQuery{Map: m.ID})[0].ID
	w.refused("an operation whose id is taken", m.ID, store.Delta{Prepare: o}, nil)
	w.refused("adding a mapping whose id is taken", m.ID, store.Delta{Prepare: newOperation(m, add(s1, fresh, a2))}, nil)
	w.refused("adding a shard whose id is taken", m.ID, store.Delta{Prepare: newOperation(m, store.Step{Shard: s1, After: &s1})}, nil)
	w.must(m.ID, store.Delta{Prepare: newOperation(m, replace(s1, list(a2), list(fresh)))}) // the good rows carry no mark
}

func testPublish(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	w.same("generation of a new map", int64(1), w.generation(m))
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	w.same("generation after two publishes", int64(3), w.generation(m))
	a, b, c := newMapping(s1, span(0, 10)), newMapping(s1, span(10, 20)), newMapping(s2, spanFrom(20))
	w.change(m, add(s1, a, b), add(s2, c))
	low, high := newMapping(s2, span(0, 5)), newMapping(s1, span(5, 10))
	low.Status = shardway.Offline
	high.Lock = shardway.Lock{Token: "t", Owner: "o", Reason: "r", Expires: instant}
	s1after, s3 := changed(s1), newShard(m, "s3")
	d := newMapping(s3, span(-10, 0))
	o := w.prepare(m,
		store.Step{Shard: s1, Before: &s1, After: s1after, Remove: list(a), Add: list(high)},
		add(s2, low),
		store.Step{Shard: s3, After: &s3, Add: list(d)})
	bystander := w.prepare(m, replace(s1, list(b), nil))

	w.must(m.ID, store.Delta{Publish: o, History: list(newEntry(o, store.Done, span(0, 10)), newEntry(o, store.Done))})
	w.same("mappings", []store.MappingRow{row(d), row(low), row(high), {Mapping: b, Operation: bystander.ID}, row(c)},
		w.mappings(store.MappingQuery{Map: m}))
	w.same("shards", []store.ShardRow{{Shard: *s1after}, {Shard: s2}, {Shard: s3}}, w.shards(m.ID))
	w.same("generation", int64(5), w.generation(m))
	if all := w.operations(store.OperationQuery{}); len(all) != 1 || all[0].ID != bystander.ID {
		w.Errorf("operations = %+v, want the other one", all)
	}
	for _, e := range w.history(store.HistoryQuery{Operation: o.ID}) {
		if e.Generation != 5 {
			w.Errorf("history entry of a publish has generation %d, want 5", e.Generation)
		}
	}
	w.refused("publishing twice", m.ID, store.Delta{Publish: o}, store.ErrLostLease)
	w.refused("aborting what is published", m.ID, store.Delta{Abort: o}, store.ErrLostLease)

	// A shard goes together with its mappings.
	o = w.prepare(m, store.Step{Shard: s3, Before: &s3, Remove: list(d)})
	w.must(m.ID, store.Delta{Publish: o})
	w.same("shards after removing one", []store.ShardRow{{Shard: *s1after}, {Shard: s2}}, w.shards(m.ID))
	// An operation without rows is published like any other.
	o = w.prepare(m, store.Step{Shard: s2})
	w.must(m.ID, store.Delta{Publish: o})
	w.same("generation at the end", int64(7), w.generation(m))
}

func testAbort(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	a, b := newMapping(s1, span(0, 10)), newMapping(s2, spanFrom(10))
	a.Lock = shardway.Lock{Token: "t"}
	w.change(m, add(s1, a), add(s2, b))
	bystander := w.prepare(m, replace(s2, list(b), list(next(b))))
	before := w.dump()
	s3 := newShard(m, "s3")
	o := w.prepare(m,
		store.Step{Shard: s1, Before: &s1, After: changed(s1), Remove: list(a), Add: list(newMapping(s1, span(0, 5)))},
		store.Step{Shard: s2, Before: &s2},
		store.Step{Shard: s3, After: &s3, Add: list(newMapping(s3, span(5, 10)))})
	w.must(m.ID, store.Delta{Abort: o})
	w.same("an aborted operation left something", before, w.dump())
	w.refused("aborting twice", m.ID, store.Delta{Abort: o}, store.ErrLostLease)
	w.refused("publishing what is aborted", m.ID, store.Delta{Publish: o}, store.ErrLostLease)

	o = w.prepare(m, replace(s1, list(a), list(next(a))), store.Step{Shard: s2, Before: &s2, After: changed(s2)}) // the rows are free
	entry := newEntry(o, store.Undone)
	w.must(m.ID, store.Delta{Abort: o, History: list(entry)})
	w.same("history of an abort", list(entry), w.history(store.HistoryQuery{Operation: o.ID}))
	w.must(m.ID, store.Delta{Publish: bystander})
}

func testLease(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	o := w.prepare(m, add(s, newMapping(s, spanFrom(0))))
	other := w.prepare(m, store.Step{Shard: s})
	want := w.operations(store.OperationQuery{})

	renewed := *o
	renewed.LeaseUntil = instant.Add(time.Hour)
	w.must(m.ID, store.Delta{Lease: &renewed})
	want[0].LeaseUntil = renewed.LeaseUntil
	w.same("a lease renewed", want, w.operations(store.OperationQuery{}))

	taken := store.Operation{ID: o.ID, Epoch: 2, Owner: "somebody else", LeaseUntil: instant.Add(2 * time.Hour)}
	w.must(m.ID, store.Delta{Lease: &taken})
	want[0].Epoch, want[0].Owner, want[0].LeaseUntil = taken.Epoch, taken.Owner, taken.LeaseUntil
	w.same("an operation taken over", want, w.operations(store.OperationQuery{}))
	if got := w.operations(store.OperationQuery{ID: other.ID}); got[0].Epoch != 1 {
		w.Errorf("the other operation has epoch %d, want 1", got[0].Epoch)
	}

	w.refused("renewing a lost lease", m.ID, store.Delta{Lease: &renewed}, store.ErrLostLease)
	w.refused("publishing with a lost lease", m.ID, store.Delta{Publish: o}, store.ErrLostLease)
	w.refused("aborting with a lost lease", m.ID, store.Delta{Abort: o}, store.ErrLostLease)
	o.Epoch = 2
	w.must(m.ID, store.Delta{Publish: o})
	w.refused("a lease of an ended operation", m.ID, store.Delta{Lease: &taken}, store.ErrLostLease)
}

func testLock(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	a, b, c := newMapping(s, span(0, 10)), newMapping(s, span(10, 20)), newMapping(s, spanFrom(20))
	w.change(m, add(s, a, b, c))
	generation := w.generation(m)
	o := w.prepare(m, replace(s, list(c), nil))
	locked := func(m shardway.Mapping, l shardway.Lock) shardway.Mapping { m.Lock = l; return m }
	full := shardway.Lock{Token: "a token", Owner: "owner ü", Reason: strings.Repeat("why 'ä' ", 30), Expires: instant}
	forever := shardway.Lock{Token: "A TOKEN", Owner: "owner"}

	w.must(m.ID, store.Delta{Lock: list(locked(a, full), locked(c, forever))})
	want := []store.MappingRow{row(locked(a, full)), row(b), {Mapping: locked(c, forever), Operation: o.ID}}
	got := w.mappings(store.MappingQuery{Map: m})
	w.same("locked", want, got)
	if e := got[0].Lock.Expires; e.Location() != time.UTC || !got[2].Lock.Expires.IsZero() {
		w.Errorf("expiry = %v and %v, want UTC and never", e, got[2].Lock.Expires)
	}
	w.must(m.ID, store.Delta{Lock: list(locked(a, full))}) // once more: nothing to change is no error
	w.same("locked once more", want, w.mappings(store.MappingQuery{Map: m}))

	stale := locked(a, shardway.Lock{Token: "other"})
	stale.Status, stale.Range = shardway.Offline, span(100, 200) // only lock and id count
	w.must(m.ID, store.Delta{Lock: list(stale, locked(c, shardway.Lock{}))})
	w.same("another lock, and none",
		[]store.MappingRow{row(locked(a, stale.Lock)), row(b), {Mapping: c, Operation: o.ID}}, w.mappings(store.MappingQuery{Map: m}))
	w.refused("a lock of a mapping that is gone", m.ID, store.Delta{Lock: list(locked(b, full), locked(next(a), full))}, shardway.ErrStale)
	w.same("generation", generation, w.generation(m))
	w.must(m.ID, store.Delta{Abort: o})
	if answer, err := w.Lookup(w.Context(), m, key(5)); err != nil || answer.Mapping.ID != a.ID {
		w.Errorf("Lookup of a locked mapping = %+v, %v", answer, err)
	}
}

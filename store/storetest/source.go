package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// wantAnswer checks a Lookup. A nil mapping is a key that nobody holds. Locks
// need not be in the answer.
func (w *world) wantAnswer(m shardway.ShardMap, k shardway.Key, mapping *shardway.Mapping, s shardway.Shard) {
	w.Helper()
	got, err := w.Lookup(w.Context(), m, k)
	if err != nil {
		w.Errorf("Lookup(%q) = %v", k, err)
		return
	}
	want := shardway.Answer{Generation: w.generation(m)}
	if mapping != nil {
		want.Found, want.Mapping, want.Shard = true, *mapping, s
		want.Mapping.Lock, got.Mapping.Lock = shardway.Lock{}, shardway.Lock{}
	}
	if !got.Found {
		got.Mapping, got.Shard = shardway.Mapping{}, shardway.Shard{}
	}
	w.same(fmt.Sprintf("Lookup(%q)", k), want, got)
}

// wantRefusedKeys looks up what is no key of the map.
func (w *world) wantRefusedKeys(m shardway.ShardMap) {
	w.Helper()
	_, err := w.Lookup(w.Context(), m, shardway.Key{})
	wantError(w.T, "Lookup without a key", err, shardway.ErrKeyRequired)
	for _, kind := range keyKinds {
		if kind != m.KeyKind {
			_, err := w.Lookup(w.Context(), m, shardway.MinKey(kind))
			wantError(w.T, "Lookup of a key of another kind", err, shardway.ErrWrongType)
		}
	}
}

func testLookupList(w *world) {
	other := w.addMap("other", shardway.ListMap, shardway.KindInt64)
	so := w.addShard(other, "s")
	w.change(other, add(so, newMapping(so, point(key(7)))))
	m := w.addMap("m", shardway.ListMap, shardway.KindInt64)
	w.wantAnswer(m, key(1), nil, shardway.Shard{})
	s1, s2 := newShard(m, "s1"), newShard(m, "s2")
	s1.Location.Servers = append(s1.Location.Servers, shardway.Server{Address: "second", Tags: map[string]string{"zone": "ü"}})
	w.change(m, store.Step{Shard: s1, After: &s1}, store.Step{Shard: s2, After: &s2})
	a, b := newMapping(s1, point(key(1))), newMapping(s2, point(key(3)))
	a.Status = shardway.Offline
	a.Lock = shardway.Lock{Token: "t"}
	w.change(m, add(s1, a), add(s2, b))
	w.wantAnswer(m, key(1), &a, s1)
	w.wantAnswer(m, key(3), &b, s2)
	for _, hole := range list[int64](0, 2, 4, 7, -1) {
		w.wantAnswer(m, key(hole), nil, shardway.Shard{})
	}
	w.wantRefusedKeys(m)
}

func testLookupRange(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	w.wantAnswer(m, key(1), nil, shardway.Shard{})
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	a, b, c := newMapping(s1, span(-10, 0)), newMapping(s2, span(0, 10)), newMapping(s1, spanFrom(20))
	b.Status = shardway.Offline
	w.change(m, add(s1, c, a), add(s2, b))
	for k, want := range map[int64]*shardway.Mapping{-11: nil, -10: &a, -1: &a, 0: &b, 9: &b, 10: nil, 15: nil, 19: nil, 20: &c, 1 << 62: &c} {
		s := s1
		if want == &b {
			s = s2
		}
		w.wantAnswer(m, key(k), want, s)
	}
	w.wantRefusedKeys(m)

	full := w.addMap("full", shardway.RangeMap, shardway.KindInt64) // P6
	fs := w.addShard(full, "s")
	all := newMapping(fs, shardway.FullRange(shardway.KindInt64))
	w.change(full, add(fs, all))
	for _, k := range keysInOrder(shardway.KindInt64) {
		w.wantAnswer(full, k, &all, fs)
	}
}

// testPublishedOnly looks at a map through the eyes of a router while an
// operation of every kind of row is pending.
func testPublishedOnly(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s1, s2 := w.addShard(m, "s1"), w.addShard(m, "s2")
	a, b := newMapping(s1, span(0, 10)), newMapping(s2, span(10, 20))
	w.change(m, add(s1, a), add(s2, b))
	s3, s1after := newShard(m, "s3"), changed(s1)
	a2, c := next(a), newMapping(s3, spanFrom(20))
	o := newOperation(m,
		store.Step{Shard: s1, Before: &s1, After: s1after, Remove: list(a), Add: list(a2)},
		store.Step{Shard: s3, After: &s3, Add: list(c)})
	see := func(when string, want []shardway.Mapping, shards ...shardway.Shard) {
		w.Helper()
		got, state := w.load(m, shardway.Range{})
		w.same(when+": mappings", want, got)
		w.same(when+": shards", shards, state.Shards)
		for _, s := range shards {
			for _, mapping := range want {
				if mapping.ShardID == s.ID {
					w.wantAnswer(m, mapping.Range.Low, &mapping, s)
				}
			}
		}
	}
	see("before", list(a, b), s1, s2)
	w.must(m.ID, store.Delta{Prepare: o})
	see("prepared", list(a, b), s1, s2)
	w.wantAnswer(m, key(20), nil, shardway.Shard{})
	w.must(m.ID, store.Delta{Publish: o})
	see("published", list(a2, b, c), *s1after, s2, s3)
	o = w.prepare(m, store.Step{Shard: s3, Before: &s3, Remove: list(c)})
	see("a removal prepared", list(a2, b, c), *s1after, s2, s3)
	w.must(m.ID, store.Delta{Abort: o})
	see("and aborted", list(a2, b, c), *s1after, s2, s3)
	w.change(m, store.Step{Shard: s3, Before: &s3, Remove: list(c)})
	see("removed", list(a2, b), *s1after, s2)
	w.wantAnswer(m, key(20), nil, shardway.Shard{})
}

// load returns the mappings within a range as values, shards ordered by name.
// It checks that the rows come in key order.
func (w *world) load(m shardway.ShardMap, within shardway.Range) ([]shardway.Mapping, shardway.MapState) {
	w.Helper()
	var all []shardway.Mapping
	var last []byte
	state, err := w.Load(w.Context(), m, within, func(row shardway.MappingRow) error {
		low, err := shardway.DecodeKey(m.KeyKind, row.Low)
		if err != nil {
			return err
		}
		high, err := shardway.DecodeKey(m.KeyKind, row.High)
		if err != nil {
			return err
		}
		if bytes.Compare(last, row.Low) >= 0 {
			w.Errorf("Load gives %x after %x", row.Low, last)
		}
		last = slices.Clone(row.Low)
		all = append(all, shardway.Mapping{ID: row.ID, MapID: m.ID, Range: shardway.Range{Low: low, High: high},
			ShardID: row.ShardID, Status: row.Status})
		return nil
	})
	if err != nil {
		w.Fatalf("Load of %q = %v", m.Name, err)
	}
	slices.SortFunc(state.Shards, func(a, b shardway.Shard) int { return strings.Compare(a.Name, b.Name) })
	return all, state
}

// testLargeMap compares lookups, loads and queries with a list, on maps of a
// few thousand random mappings with holes.
func testLargeMap(w *world) {
	for _, kind := range list(shardway.RangeMap, shardway.ListMap) {
		rnd := rand.New(rand.NewPCG(1, uint64(kind)))
		m := w.addMap("large "+kind.String(), kind, shardway.KindBytes)
		shards := list(w.addShard(m, "s1"), w.addShard(m, "s2"), w.addShard(m, "s3"))
		all := randomMappings(rnd, m, shards, 1500)
		steps := make([]store.Step, len(shards))
		for _, n := range rnd.Perm(len(all)) {
			s := slices.IndexFunc(shards, func(s shardway.Shard) bool { return s.ID == all[n].ShardID })
			steps[s].Shard = shards[s]
			steps[s].Add = append(steps[s].Add, all[n])
		}
		o := w.prepare(m, steps...)
		if got, _ := w.load(m, shardway.Range{}); len(got) != 0 {
			w.Errorf("%s: %d mappings before publishing", m.Name, len(got))
		}
		w.must(m.ID, store.Delta{Publish: o})

		got, state := w.load(m, shardway.Range{})
		w.same(m.Name+": loaded", all, got)
		w.same(m.Name+": state", shardway.MapState{Shards: shards, Generation: 5}, state)
		w.same(m.Name+": read", rows(all...), w.mappings(store.MappingQuery{Map: m}))
		var some []store.MappingRow
		q := store.MappingQuery{Map: m}
		for n, mapping := range all {
			if n%3 != 0 {
				some = append(some, row(mapping))
				q.IDs = append(q.IDs, mapping.ID)
			}
		}
		w.same(m.Name+": read by a thousand ids", some, w.mappings(q))
		compareLookups(w, rnd, m, all, shards)
		compareWindows(w, rnd, m, all)

		// A change of all rows at once, marks included.
		for n := range steps {
			steps[n].Remove, steps[n].Add = steps[n].Add, nil
		}
		w.change(m, steps...)
		w.same(m.Name+": emptied", []store.MappingRow(nil), w.mappings(store.MappingQuery{Map: m}))
	}
}

// randomMappings returns n mappings in key order, about a quarter of the key
// space left to holes.
func randomMappings(rnd *rand.Rand, m shardway.ShardMap, shards []shardway.Shard, n int) []shardway.Mapping {
	seen := map[shardway.Key]bool{}
	var keys []shardway.Key
	for len(keys) < n*4/3 {
		if k := randomKey(rnd); !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, shardway.Key.Compare)
	var all []shardway.Mapping
	for at := range keys {
		if rnd.IntN(4) == 0 {
			continue
		}
		r := point(keys[at])
		if m.Kind == shardway.RangeMap && at+1 < len(keys) {
			r.High = keys[at+1]
		}
		mapping := newMapping(shards[rnd.IntN(len(shards))], r)
		mapping.Status = shardway.MappingStatus(rnd.IntN(2))
		all = append(all, mapping)
	}
	return all
}

// randomKey returns bytes in which the difficult values are frequent.
func randomKey(rnd *rand.Rand) shardway.Key {
	b := make([]byte, 1+rnd.IntN(6))
	for n := range b {
		b[n] = list[byte](0, 0, 1, 0x20, 'A', 'a', 0x7f, 0x80, 0xfe, 0xff, byte(rnd.Uint32()))[rnd.IntN(11)]
	}
	k, err := shardway.BytesKey(b)
	if err != nil {
		panic(err) // six bytes are a key
	}
	return k
}

func compareLookups(w *world, rnd *rand.Rand, m shardway.ShardMap, all []shardway.Mapping, shards []shardway.Shard) {
	for n := range 200 {
		k := randomKey(rnd)
		if n%2 == 0 {
			k = all[rnd.IntN(len(all))].Range.Low
		}
		var want shardway.Answer
		for _, mapping := range all {
			if mapping.Range.Low == k || m.Kind == shardway.RangeMap && mapping.Range.Contains(k) {
				s := slices.IndexFunc(shards, func(s shardway.Shard) bool { return s.ID == mapping.ShardID })
				want.Found, want.Mapping, want.Shard = true, mapping, shards[s]
			}
		}
		got, err := w.Lookup(w.Context(), m, k)
		if err != nil || got.Found != want.Found || got.Found && (got.Mapping != want.Mapping || got.Shard.ID != want.Shard.ID) {
			w.Errorf("%s: Lookup(%q) = %+v, %v, want %+v", m.Name, k, got, err, want)
		}
	}
}

func compareWindows(w *world, rnd *rand.Rand, m shardway.ShardMap, all []shardway.Mapping) {
	for n := range 30 {
		low, high := randomKey(rnd), randomKey(rnd)
		window := shardway.Range{Low: low, High: high}
		if low.Compare(high) >= 0 {
			window = shardway.Range{Low: high, High: low}
		}
		if n%10 == 0 || low == high {
			window = shardway.RangeFrom(low)
		}
		var want []shardway.Mapping
		for _, mapping := range all {
			if m.Kind == shardway.RangeMap && window.Intersects(mapping.Range) || m.Kind == shardway.ListMap && window.Contains(mapping.Range.Low) {
				want = append(want, mapping)
			}
		}
		got, state := w.load(m, window)
		w.same(fmt.Sprintf("%s: loaded within %s", m.Name, window), want, got)
		if len(state.Shards) != 3 || state.Generation != 5 {
			w.Errorf("%s: a part was loaded with %d shards and generation %d, want 3 and 5", m.Name, len(state.Shards), state.Generation)
		}
		w.same(fmt.Sprintf("%s: read within %s", m.Name, window), rows(want...), w.mappings(store.MappingQuery{Map: m, Within: window}))
	}
}

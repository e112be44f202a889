package storetest

import (
	"bytes"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// testKeys keeps keys of every kind, extremes included, as points and as
// bounds. Entries KEY-03, KEY-04, KEY-06, KEY-07 and KEY-08 are keys of
// [keysInOrder].
func testKeys(w *world) {
	for _, kind := range keyKinds {
		keys := keysInOrder(kind)
		testPoints(w, kind, keys)
		testBounds(w, kind, keys)
	}
}

func testPoints(w *world, kind shardway.KeyKind, keys []shardway.Key) {
	m := w.addMap("points "+kind.String(), shardway.ListMap, kind)
	s := w.addShard(m, "s")
	var even, odd []shardway.Mapping // odd keys are holes at first
	for n, k := range keys {
		if n%2 == 0 {
			even = append(even, newMapping(s, point(k)))
		} else {
			odd = append(odd, newMapping(s, point(k)))
		}
	}
	reversed := make([]shardway.Mapping, 0, len(even))
	for n := range even {
		reversed = append(reversed, even[len(even)-1-n])
	}
	w.change(m, add(s, reversed...))
	w.same(m.Name+": mappings", rows(even...), w.mappings(store.MappingQuery{Map: m}))
	for n, k := range keys {
		a, err := w.Lookup(w.Context(), m, k)
		switch {
		case err != nil:
			w.Errorf("%s: Lookup(%q) = %v", m.Name, k, err)
		case n%2 == 1 && a.Found:
			w.Errorf("%s: Lookup(%q) finds %q", m.Name, k, a.Mapping.Range.Low)
		case n%2 == 0 && (!a.Found || a.Mapping != even[n/2]):
			w.Errorf("%s: Lookup(%q) = %+v, want %+v", m.Name, k, a, even[n/2])
		}
	}
	o := w.prepare(m, add(s, odd...))
	stored := w.operations(store.OperationQuery{ID: o.ID})
	w.same(m.Name+": keys in an operation", list(odd), list(stored[0].Added()))
	ranges := make([]shardway.Range, len(keys))
	for n, k := range keys {
		ranges[n] = point(k)
	}
	w.must(m.ID, store.Delta{Publish: o, History: list(newEntry(o, store.Done, ranges...))})
	w.same(m.Name+": keys in the history", ranges, w.history(store.HistoryQuery{Map: m.ID, Limit: 1})[0].Ranges)
	n := 0
	_, err := w.Load(w.Context(), m, shardway.Range{}, func(row shardway.MappingRow) error {
		if n < len(keys) && (!bytes.Equal(row.Low, keys[n].Encoded()) || row.High != nil) {
			w.Errorf("%s: Load gives %x, %x at %d, want %x, nil", m.Name, row.Low, row.High, n, keys[n].Encoded())
		}
		n++
		return nil
	})
	if err != nil || n != len(keys) {
		w.Errorf("%s: Load = %d mappings, %v, want %d", m.Name, n, err, len(keys))
	}
}

// testBounds maps every other range between neighbours, the last one open.
func testBounds(w *world, kind shardway.KeyKind, keys []shardway.Key) {
	m := w.addMap("bounds "+kind.String(), shardway.RangeMap, kind)
	s := w.addShard(m, "s")
	var all []shardway.Mapping
	at := map[int]shardway.Mapping{} // by position of the low key
	last := len(keys) - 1
	for n := last; n >= 0; n -= 2 {
		r := shardway.RangeFrom(keys[n])
		if n < last {
			r.High = keys[n+1]
		}
		at[n] = newMapping(s, r)
		all = append(all, at[n])
	}
	w.change(m, add(s, all...))
	want := make([]store.MappingRow, 0, len(all))
	for n := range all {
		want = append(want, row(all[len(all)-1-n]))
	}
	w.same(m.Name+": mappings", want, w.mappings(store.MappingQuery{Map: m}))
	for n, k := range keys {
		a, err := w.Lookup(w.Context(), m, k)
		mapping, mapped := at[n]
		if err != nil || a.Found != mapped || mapped && a.Mapping != mapping {
			w.Errorf("%s: Lookup(%q) = %+v, %v, want %v %+v", m.Name, k, a, err, mapped, mapping)
		}
		if n < last { // the range from this key to the next: one mapping or none
			got := w.mappings(store.MappingQuery{Map: m, Within: shardway.Range{Low: k, High: keys[n+1]}})
			if mapped != (len(got) == 1) || len(got) > 1 {
				w.Errorf("%s: mappings within [%q, %q) = %+v, want %v", m.Name, k, keys[n+1], got, mapped)
			}
		}
	}
}

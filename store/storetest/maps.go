package storetest

import (
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func testMaps(w *world) {
	w.same("maps of a new store", dump{}, w.dump())
	var all []shardway.ShardMap
	for _, kind := range list(shardway.ListMap, shardway.RangeMap) {
		for _, keys := range keyKinds {
			m := newMap(kind.String()+" "+keys.String(), kind, keys)
			m.Generation = 77 // must not count
			w.must(0, store.Delta{AddMap: &m})
			m.Generation = 1
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b shardway.ShardMap) int { return strings.Compare(a.Name, b.Name) })
	w.same("ShardMaps", dump{Maps: all, Mappings: make([][]store.MappingRow, len(all))}, w.dump())
	for _, m := range all {
		found, err := w.ShardMap(w.Context(), m.Name)
		if err != nil || found != m {
			w.Errorf("ShardMap(%q) = %+v, %v, want %+v", m.Name, found, err, m)
		}
	}

	taken := newMap(all[0].Name, shardway.ListMap, shardway.KindString)
	w.refused("adding a map whose name is taken", 0, store.Delta{AddMap: &taken}, shardway.ErrExists)
	taken = newMap("other name", shardway.ListMap, shardway.KindString)
	taken.ID = all[0].ID
	w.refused("adding a map whose id is taken", 0, store.Delta{AddMap: &taken}, nil)

	_, err := w.ShardMap(w.Context(), "no such map")
	wantError(w.T, "ShardMap", err, shardway.ErrMapNotFound)
}

// testMapNames adds maps whose names some collation takes for one another.
func testMapNames(w *world) {
	names := difficultNames()
	byName := map[string]shardway.ShardMap{}
	for n := range names {
		name := names[(n*7+3)%len(names)] // not in the order of the answer
		if _, ok := byName[name]; !ok {
			byName[name] = w.addMap(name, shardway.ListMap, shardway.KindInt64)
		}
	}
	for _, name := range names {
		if _, ok := byName[name]; !ok {
			byName[name] = w.addMap(name, shardway.ListMap, shardway.KindInt64)
		}
	}
	var got []string
	for _, m := range w.dump().Maps {
		got = append(got, m.Name)
	}
	w.same("names in order", names, got)
	for _, name := range names {
		m, err := w.ShardMap(w.Context(), name)
		if err != nil || m != byName[name] {
			w.Errorf("ShardMap(%q) = %+v, %v, want %+v", name, m, err, byName[name])
		}
	}
	for _, name := range list("", " ", "a ", " a", "a\x00", "B", "AA", "Aa", "a\t", "%%", "日", "nn", `"a"`) {
		if m, err := w.ShardMap(w.Context(), name); err == nil {
			w.Errorf("ShardMap(%q) found %q", name, m.Name)
		} else {
			wantError(w.T, "ShardMap", err, shardway.ErrMapNotFound)
		}
	}
}

func testDropMap(w *world) {
	empty := w.addMap("empty", shardway.ListMap, shardway.KindInt64)
	used := w.addMap("used", shardway.RangeMap, shardway.KindInt64)
	adding := w.addMap("adding", shardway.RangeMap, shardway.KindInt64)
	emptied := w.addMap("emptied", shardway.RangeMap, shardway.KindInt64)
	w.addShard(used, "s")
	s := newShard(adding, "s")
	pending := w.prepare(adding, store.Step{Shard: s, After: &s})
	w.refused("dropping a map with a shard", used.ID, store.Delta{DropMap: used.ID}, shardway.ErrInUse)
	w.refused("dropping a map with a pending shard", adding.ID, store.Delta{DropMap: adding.ID}, shardway.ErrInUse)

	life := list(
		store.Entry{Operation: 7, At: instant, MapID: empty.ID, MapName: empty.Name, Kind: "delete shard map", Outcome: store.Done},
		store.Entry{Operation: 6, At: instant, MapID: empty.ID, MapName: empty.Name, Kind: "create shard map", Outcome: store.Done})
	w.must(empty.ID, store.Delta{History: life[1:]})
	w.must(empty.ID, store.Delta{DropMap: empty.ID, History: life[:1]})
	gone(w, empty)
	wantError(w.T, "dropping a map twice", w.try(empty.ID, store.Delta{DropMap: empty.ID}), shardway.ErrMapNotFound)
	w.same("history of a dropped map", life, w.history(store.HistoryQuery{Map: empty.ID}))

	w.must(adding.ID, store.Delta{Abort: pending})
	w.must(adding.ID, store.Delta{DropMap: adding.ID})
	gone(w, adding)
	last := w.addShard(emptied, "s")
	w.change(emptied, store.Step{Shard: last, Before: &last})
	w.must(emptied.ID, store.Delta{DropMap: emptied.ID})
	gone(w, emptied)

	again := w.addMap("empty", shardway.RangeMap, shardway.KindString)
	gone(w, empty) // another map of that name does not bring it back
	found, err := w.ShardMap(w.Context(), "empty")
	if err != nil || found != again {
		w.Errorf("ShardMap of a new map with an old name = %+v, %v, want %+v", found, err, again)
	}
}

// gone checks that nobody can use a map any more.
func gone(w *world, m shardway.ShardMap) {
	w.Helper()
	if found, err := w.ShardMap(w.Context(), m.Name); err == nil && found.ID == m.ID {
		w.Errorf("ShardMap(%q) finds a dropped map", m.Name)
	}
	_, err := w.Lookup(w.Context(), m, key(1))
	wantError(w.T, "Lookup in a dropped map", err, shardway.ErrMapNotFound)
	_, err = w.Load(w.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { return nil })
	wantError(w.T, "Load of a dropped map", err, shardway.ErrMapNotFound)
	_, err = w.Changes(w.Context(), m, 1)
	wantError(w.T, "Changes of a dropped map", err, shardway.ErrMapNotFound)
	entries := len(w.history(store.HistoryQuery{}))
	wantError(w.T, "History of a dropped map",
		w.try(m.ID, store.Delta{History: list(store.Entry{At: instant, MapID: m.ID})}), shardway.ErrMapNotFound)
	w.same("history entries", entries, len(w.history(store.HistoryQuery{})))
	s := newShard(m, "s")
	wantError(w.T, "Prepare in a dropped map",
		w.try(m.ID, store.Delta{Prepare: newOperation(m, store.Step{Shard: s, After: &s})}), shardway.ErrMapNotFound)
}

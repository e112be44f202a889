package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// testSerial counts in a row of the store, from many sides: an Update that
// reads what another has not yet written loses a count.
func testSerial(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	a := newMapping(s, spanFrom(0))
	w.change(m, add(s, a))
	const workers, each = 5, 8
	for _, r := range atOnce(workers, func(int) (struct{}, error) {
		for range each {
			err := w.Update(w.Context(), m.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
				if now.IsZero() || now.Location() != time.UTC {
					return store.Delta{}, fmt.Errorf("now is %v, want a time in UTC", now)
				}
				found, err := collect(tx.Mappings(w.Context(), store.MappingQuery{Map: m}))
				if err != nil {
					return store.Delta{}, err
				}
				counter := found[0].Mapping
				n, _ := strconv.Atoi(counter.Lock.Reason) // empty is 0
				for range 20 {
					runtime.Gosched() // let the others read, if they can
				}
				counter.Lock = shardway.Lock{Token: "t", Reason: strconv.Itoa(n + 1)}
				return store.Delta{Lock: list(counter)}, nil
			})
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	}) {
		if r.err != nil {
			w.Errorf("Update = %v", r.err)
		}
	}
	if got := w.mappings(store.MappingQuery{Map: m})[0].Lock.Reason; got != strconv.Itoa(workers*each) {
		w.Errorf("counted to %s, want %d", got, workers*each)
	}
}

// testSerialMaps creates maps, prepares operations and drops a map from many
// sides at once.
func testSerialMaps(w *world) {
	const workers = 6
	for _, r := range atOnce(workers, func(int) (struct{}, error) {
		return struct{}{}, w.Update(w.Context(), 0, func(tx store.Reader, _ time.Time) (store.Delta, error) {
			maps, err := tx.ShardMaps(w.Context())
			m := newMap(fmt.Sprintf("m%d", len(maps)), shardway.RangeMap, shardway.KindInt64)
			return store.Delta{AddMap: &m}, err
		})
	}) {
		if r.err != nil {
			w.Errorf("adding a map = %v", r.err)
		}
	}
	maps := w.dump().Maps
	if len(maps) != workers {
		w.Fatalf("%d maps, want %d", len(maps), workers)
	}

	// Updates of different maps do not lose operations, and give each its Seq.
	for _, r := range atOnce(workers, func(n int) (struct{}, error) {
		for range 3 {
			if err := w.try(maps[n].ID, store.Delta{Prepare: newOperation(maps[n], store.Step{Shard: newShard(maps[n], "unused")})}); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	}) {
		if r.err != nil {
			w.Errorf("preparing = %v", r.err)
		}
	}
	ops := w.operations(store.OperationQuery{})
	seen := map[int64]bool{}
	for _, o := range ops {
		seen[o.Seq] = true
	}
	if len(ops) != 3*workers || len(seen) != len(ops) {
		w.Errorf("%d operations with %d different Seq, want %d", len(ops), len(seen), 3*workers)
	}
	testSameName(w)
	testDropWhileUsed(w)
}

func testSameName(w *world) {
	var made int
	for _, r := range atOnce(4, func(int) (struct{}, error) {
		m := newMap("one of four", shardway.ListMap, shardway.KindInt64)
		return struct{}{}, w.try(0, store.Delta{AddMap: &m})
	}) {
		switch {
		case r.err == nil:
			made++
		case !errors.Is(r.err, shardway.ErrExists):
			w.Errorf("adding a map whose name is taken at the same time = %v, want ErrExists", r.err)
		}
	}
	if made != 1 {
		w.Errorf("%d maps were made with one name, want 1", made)
	}
}

// testDropWhileUsed drops a map while a shard is added to it: one of the two wins.
func testDropWhileUsed(w *world) {
	for range 3 {
		m := w.addMap("dropped", shardway.ListMap, shardway.KindInt64)
		s := newShard(m, "s")
		r := atOnce(2, func(n int) (struct{}, error) {
			if n == 0 {
				return struct{}{}, w.try(m.ID, store.Delta{DropMap: m.ID})
			}
			return struct{}{}, w.try(m.ID, store.Delta{Prepare: newOperation(m, store.Step{Shard: s, After: &s})})
		})
		_, err := w.ShardMap(w.Context(), m.Name)
		switch dropped := r[0].err == nil; {
		case dropped && errors.Is(r[1].err, shardway.ErrMapNotFound) && errors.Is(err, shardway.ErrMapNotFound) && len(w.shards(m.ID)) == 0:
		case !dropped && errors.Is(r[0].err, shardway.ErrInUse) && r[1].err == nil && err == nil && len(w.shards(m.ID)) == 1:
			w.must(m.ID, store.Delta{Abort: &w.operations(store.OperationQuery{Map: m.ID})[0]})
			w.must(m.ID, store.Delta{DropMap: m.ID})
		default:
			w.Errorf("dropping = %v, adding = %v, the map = %v", r[0].err, r[1].err, err)
		}
	}
}

// sight is what a reader saw of one generation.
type sight struct {
	generation int64
	mapping    shardway.MappingID
	version    int64 // of the shard
}

// testOneState reads while a writer exchanges, with each generation, the one
// mapping, its shard's version and the history. What a reader sees in one call
// must have been there together.
func testOneState(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	a := newMapping(s, spanFrom(0))
	w.change(m, add(s, a))
	first := w.generation(m)

	truth := map[int64]sight{first: {first, a.ID, s.Version}}
	var ended atomic.Bool
	var mu sync.Mutex // guards seen
	var seen []sight
	see := func(all ...sight) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, all...)
	}
	readers := list(
		func() error { return seeView(w, m, first, see) },
		func() error { return seeSource(w, m, first, see) },
	)
	results := atOnce(len(readers)+1, func(n int) (struct{}, error) {
		if n > 0 {
			for done := false; !done; { // at least once, and once after the last change
				done = ended.Load()
				if err := readers[n-1](); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		}
		defer ended.Store(true)
		for range 25 {
			o := newOperation(m, store.Step{Shard: s, Before: &s, After: changed(s), Remove: list(a), Add: list(next(a))})
			if err := w.try(m.ID, store.Delta{Prepare: o}); err != nil {
				return struct{}{}, err
			}
			if err := w.try(m.ID, store.Delta{Publish: o, History: list(newEntry(o, store.Done, a.Range))}); err != nil {
				return struct{}{}, err
			}
			s, a = *o.Steps[0].After, o.Steps[0].Add[0]
			g := first + int64(len(truth))
			truth[g] = sight{g, a.ID, s.Version}
		}
		return struct{}{}, nil
	})
	for _, r := range results {
		if r.err != nil {
			w.Error(r.err)
		}
	}
	for _, got := range seen {
		if got != truth[got.generation] {
			w.Errorf("seen together: %+v, what was there: %+v", got, truth[got.generation])
		}
	}
	if latest := seen[len(seen)-1].generation; latest != first+25 {
		w.Errorf("the last reader saw generation %d, want %d", latest, first+25)
	}
}

// seeView reads the parts of the state twice over in one View.
func seeView(w *world, m shardway.ShardMap, first int64, see func(...sight)) error {
	var here []sight
	err := w.View(w.Context(), func(tx store.Reader) error {
		here = nil
		for range 2 {
			found, err := collect(tx.Mappings(w.Context(), store.MappingQuery{Map: m}))
			if err != nil {
				return err
			}
			history, err := collect(tx.History(w.Context(), store.HistoryQuery{Map: m.ID}))
			if err != nil {
				return err
			}
			shards, err := tx.Shards(w.Context(), m.ID)
			if err != nil {
				return err
			}
			maps, err := tx.ShardMaps(w.Context())
			if err != nil {
				return err
			}
			ops, err := tx.Operations(w.Context(), store.OperationQuery{Map: m.ID})
			if err != nil {
				return err
			}
			if got := maps[0].Generation; int64(len(history)) != got-first || len(found) != 1+len(ops) {
				return fmt.Errorf("seen together: generation %d, %d history entries after %d, %d mappings, %d operations",
					got, len(history), first, len(found), len(ops))
			}
			here = append(here, sight{maps[0].Generation, found[0].ID, shards[0].Version})
		}
		if here[0] != here[1] {
			return fmt.Errorf("one View saw two states: %+v", here)
		}
		return nil
	})
	if err == nil {
		see(here...)
	}
	return err
}

func seeSource(w *world, m shardway.ShardMap, first int64, see func(...sight)) error {
	answer, err := w.Lookup(w.Context(), m, key(1))
	if err != nil {
		return err
	}
	var loaded []shardway.MappingID
	state, err := w.Load(w.Context(), m, shardway.Range{}, func(row shardway.MappingRow) error {
		loaded = append(loaded, row.ID)
		return nil
	})
	if err != nil {
		return err
	}
	changes, err := w.Changes(w.Context(), m, first)
	if err != nil {
		return err
	}
	if len(loaded) != 1 || len(state.Shards) != 1 || !changes.Complete || int64(len(changes.Ranges)) != changes.Generation-first {
		return fmt.Errorf("loaded %d mappings and %d shards, want 1; changes after %d = %+v", len(loaded), len(state.Shards), first, changes)
	}
	see(sight{answer.Generation, answer.Mapping.ID, answer.Shard.Version}, sight{state.Generation, loaded[0], state.Shards[0].Version})
	return nil
}

package storetest

import (
	order "cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Compare makes one random sequence of changes in two deployed, empty stores,
// and compares all their contents after each: open gives the store under test,
// reference the one it is compared with, which is that of memstore. Good and
// bad changes come in all combinations; the bad ones must be refused by both
// for the same reason.
func Compare(t *testing.T, open, reference func(t *testing.T) store.Global) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("random_changes_%d", seed), func(t *testing.T) {
			t.Parallel()
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 7)), ends: map[error]int{}}
			tested, model := &world{T: t, Global: open(t)}, &world{T: t, Global: reference(t)}
			for n := range 80 {
				g.dump = model.dump()
				m, d, want := g.delta()
				got := g.both(tested, model, m, d)
				what := fmt.Sprintf("change %d: %s", n, describe(d))
				if !errors.Is(got[0], want) || !errors.Is(got[1], want) {
					t.Fatalf("%s = %v, the reference = %v, want %v", what, got[0], got[1], want)
				}
				same(t, what, withoutSeq(model.dump()), withoutSeq(tested.dump()))
				g.sources(tested, model)
				if t.Failed() {
					t.FailNow() // all later differences follow from this one
				}
				g.ends[want]++
			}
			if g.ends[nil] < 30 || len(g.ends) < 4 {
				t.Errorf("the changes ended like this: %v; too few kinds to mean anything", g.ends)
			}
		})
	}
}

// generator makes random changes that fit the contents of a store.
type generator struct {
	*rand.Rand
	dump dump
	ends map[error]int // how the changes ended so far
}

// both applies a Delta to two stores; each gets its own copy, since a store sets Seq.
func (g *generator) both(tested, model *world, m shardway.MapID, d store.Delta) (errs [2]error) {
	for n, w := range list(tested, model) {
		d := d
		if d.Prepare != nil {
			o := *d.Prepare
			d.Prepare = &o
		}
		errs[n] = w.try(m, d)
	}
	return errs
}

// withoutSeq replaces Seq by the place in the order: gaps are free.
func withoutSeq(d dump) dump {
	for n := range d.Operations {
		d.Operations[n].Seq = int64(n)
	}
	return d
}

// describe says which parts a Delta has.
func describe(d store.Delta) string {
	return fmt.Sprintf("add map %t, drop map %t, prepare %t, publish %t, abort %t, lease %t, lock %d, history %d",
		d.AddMap != nil, d.DropMap != 0, d.Prepare != nil, d.Publish != nil, d.Abort != nil, d.Lease != nil, len(d.Lock), len(d.History))
}

// sources compares what routers see of one map.
func (g *generator) sources(tested, model *world) {
	if len(g.dump.Maps) == 0 {
		return
	}
	m := pick(g, g.dump.Maps)
	var seen [2][]any
	for n, w := range list(tested, model) {
		found, err := w.ShardMap(w.Context(), m.Name)
		if errors.Is(err, shardway.ErrMapNotFound) {
			seen[n] = list[any]("gone")
			continue
		}
		mappings, state := w.load(m, shardway.Range{})
		part, _ := w.load(m, span(20, 60))
		changes, err2 := w.Changes(w.Context(), m, found.Generation-2)
		answer, err3 := w.Lookup(w.Context(), m, key(33))
		answer.Mapping.Lock = shardway.Lock{}
		slices.SortFunc(changes.Ranges, func(a, b shardway.Range) int { return a.Low.Compare(b.Low) })
		seen[n] = list[any](found, mappings, state, part, changes, answer, err, err2, err3)
	}
	same(model.T, "what routers see of map "+m.Name, seen[1], seen[0])
}

// delta returns a change of one map and the error that it must end with.
func (g *generator) delta() (shardway.MapID, store.Delta, error) {
	if len(g.dump.Maps) < 2 || g.IntN(15) == 0 {
		return g.mapDelta()
	}
	m := pick(g, g.dump.Maps)
	var d store.Delta
	var want error // of the first bad part, in the order of the fields
	for _, part := range list(g.prepare, g.end, g.lease, g.lock) {
		if g.IntN(5) < 2 {
			want = order.Or(want, part(m, &d))
		}
	}
	if d.Prepare != nil && d.Publish == nil && d.Lock == nil && want == nil && g.IntN(3) == 0 {
		d.Publish = d.Prepare // in one go
	}
	for range g.IntN(3) {
		d.History = append(d.History, g.entry(m, &d))
	}
	return m.ID, d, want
}

func pick[V any](g *generator, all []V) V { return all[g.IntN(len(all))] }

// mapDelta adds or drops a map, or tries to.
func (g *generator) mapDelta() (shardway.MapID, store.Delta, error) {
	if len(g.dump.Maps) > 2 && g.IntN(2) == 0 {
		m := pick(g, g.dump.Maps)
		if slices.ContainsFunc(g.dump.Shards, func(s store.ShardRow) bool { return s.MapID == m.ID }) {
			return m.ID, store.Delta{DropMap: m.ID}, shardway.ErrInUse
		}
		if slices.ContainsFunc(g.dump.Operations, func(o store.Operation) bool { return o.Map.ID == m.ID }) {
			return m.ID, store.Delta{}, nil
		}
		return m.ID, store.Delta{DropMap: m.ID}, nil
	}
	name := pick(g, list("a", "A", "ä", "Ä", "b"))
	m := newMap(name, shardway.MapKind(1+g.IntN(2)), shardway.KindInt64)
	if slices.ContainsFunc(g.dump.Maps, func(m shardway.ShardMap) bool { return m.Name == name }) {
		return 0, store.Delta{AddMap: &m}, shardway.ErrExists
	}
	return 0, store.Delta{AddMap: &m, History: list(store.Entry{At: instant, MapID: m.ID, MapName: name, Outcome: store.Done})}, nil
}

package storetest

import (
	order "cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

const globalID = "0123456789abcdef"

// site is a local store and the test that owns it. Its methods fail the test
// when the store does not do what they ask for.
type site struct {
	*testing.T
	store.Local
	seq int64 // of the latest operation
}

func (l *site) deploy() {
	l.Helper()
	if err := l.Deploy(l.Context(), globalID); err != nil {
		l.Fatalf("Deploy = %v", err)
	}
}

// next returns the request to apply a step as a new operation.
func (l *site) next(m shardway.ShardMap, step store.Step) store.LocalStep {
	l.seq++
	return store.LocalStep{Operation: store.OperationID(store.NewID()), Seq: l.seq, Epoch: 1, Map: m, Step: step, Want: store.StepApplied}
}

// apply applies a step as a new operation.
func (l *site) apply(m shardway.ShardMap, step store.Step) store.LocalStep {
	l.Helper()
	s := l.next(m, step)
	l.want(s, store.StepApplied)
	return s
}

// want takes a step and checks the state that comes back.
func (l *site) want(s store.LocalStep, want store.StepState) {
	l.Helper()
	got, err := l.Step(l.Context(), s)
	if err != nil || got != want {
		l.Fatalf("Step wanting %d in epoch %d = %d, %v, want %d", s.Want, s.Epoch, got, err, want)
	}
}

// refused takes a step that must fail and change no row.
func (l *site) refused(what string, s store.LocalStep, want error) {
	l.Helper()
	before := l.read()
	_, err := l.Step(l.Context(), s)
	wantError(l.T, what, err, want)
	same(l.T, what+" changed the maps", before, l.read())
}

// read returns all maps, ordered by id.
func (l *site) read() []store.LocalMap {
	l.Helper()
	all, err := l.Read(l.Context(), 0)
	if err != nil {
		l.Fatalf("Read = %v", err)
	}
	slices.SortFunc(all, func(a, b store.LocalMap) int { return order.Compare(a.Map.ID, b.Map.ID) })
	return all
}

func (l *site) holds(what string, want ...store.LocalMap) {
	l.Helper()
	slices.SortFunc(want, func(a, b store.LocalMap) int { return order.Compare(a.Map.ID, b.Map.ID) })
	same(l.T, what, want, l.read())
}

// localMap is what a local store should hold: no generation, no locks.
func localMap(m shardway.ShardMap, s shardway.Shard, mappings ...shardway.Mapping) store.LocalMap {
	m.Generation = 0
	for n := range mappings {
		mappings[n].Lock = shardway.Lock{}
	}
	return store.LocalMap{Map: m, Shard: s, Mappings: mappings}
}

func testLocalNoStore(l *site) {
	m := newMap("m", shardway.ListMap, shardway.KindInt64)
	s := newShard(m, "s")
	calls := map[string]func() error{
		"Describe": func() error { _, err := l.Describe(l.Context()); return err },
		"Read":     func() error { _, err := l.Read(l.Context(), 0); return err },
		"Step": func() error {
			_, err := l.Step(l.Context(), l.next(m, store.Step{Shard: s, After: &s}))
			return err
		},
	}
	for name, call := range calls {
		wantError(l.T, name+" before Deploy", call(), shardway.ErrNoStore)
	}
	l.deploy()
	l.holds("a new store")
}

func testLocalDeploy(l *site) {
	for range 2 {
		l.deploy()
		d, err := l.Describe(l.Context())
		if want := (store.Description{ID: globalID, Version: store.Current}); err != nil || d != want {
			l.Errorf("Describe = %+v, %v, want %+v", d, err, want)
		}
	}
	m := newMap("m", shardway.RangeMap, shardway.KindInt64)
	s := newShard(m, "s")
	a := newMapping(s, spanFrom(0))
	applied := l.apply(m, store.Step{Shard: s, After: &s, Add: list(a)})
	for _, foreign := range list("0123456789ABCDEF", "0123456789abcdee", globalID+" ") {
		wantError(l.T, "Deploy for "+foreign, l.Deploy(l.Context(), foreign), shardway.ErrForeignStore)
	}
	l.deploy()
	testUpgradeCurrent(l.T, l.Local)
	d, err := l.Describe(l.Context())
	if err != nil || d.ID != globalID {
		l.Errorf("Describe after a foreign Deploy = %+v, %v, want %s", d, err, globalID)
	}
	l.holds("after Deploy over a store", localMap(m, s, a))
	l.want(applied, store.StepApplied)
}

func testLocalDeployAtOnce(l *site) {
	for _, r := range atOnce(4, func(int) (struct{}, error) { return struct{}{}, l.Deploy(l.Context(), globalID) }) {
		if r.err != nil {
			l.Errorf("Deploy = %v", r.err)
		}
	}
	l.holds("a new store")
}

func testLocalRead(l *site) {
	l.deploy()
	m1 := newMap("a map ä", shardway.RangeMap, shardway.KindInt64)
	m2 := newMap("A MAP Ä", shardway.ListMap, shardway.KindString)
	m1.Generation, m2.Generation = 5, 6
	s1, s2 := newShard(m1, "shard"), newShard(m2, "SHARD")
	s1.Location.Servers = []shardway.Server{{Address: "b"}, {Address: "a", Tags: map[string]string{"zone": "ü'\"\\", "": "x", "y": ""}}}
	s2.Status = shardway.ShardOffline
	a, b, c := newMapping(s1, span(-10, 0)), newMapping(s1, span(0, 10)), newMapping(s1, spanFrom(10))
	a.Status = shardway.Offline
	b.Lock = shardway.Lock{Token: "t", Owner: "o", Reason: "r", Expires: instant}
	keys := keysOf("", "A", "a")
	x, y, z := newMapping(s2, point(keys[0])), newMapping(s2, point(keys[1])), newMapping(s2, point(keys[2]))
	l.apply(m1, store.Step{Shard: s1, After: &s1, Add: list(c, a, b)})
	l.apply(m2, store.Step{Shard: s2, After: &s2, Add: list(z, x, y)})
	want1, want2 := localMap(m1, s1, a, b, c), localMap(m2, s2, x, y, z)
	l.holds("all maps", want1, want2)
	for m, want := range map[shardway.MapID][]store.LocalMap{m1.ID: list(want1), m2.ID: list(want2), m1.ID ^ 1: nil} {
		got, err := l.Read(l.Context(), m)
		if err != nil {
			l.Errorf("Read = %v", err)
		}
		same(l.T, "one map", want, got)
	}
}

func testLocalKeys(l *site) {
	l.deploy()
	for _, kind := range keyKinds {
		keys := keysInOrder(kind)
		for _, mapKind := range list(shardway.ListMap, shardway.RangeMap) {
			m := newMap(fmt.Sprintf("%s %s", mapKind, kind), mapKind, kind)
			s := newShard(m, "s")
			var all, reversed []shardway.Mapping
			for n, k := range keys {
				r := point(k)
				if mapKind == shardway.RangeMap && n+1 < len(keys) {
					r.High = keys[n+1]
				}
				all = append(all, newMapping(s, r))
			}
			for n := range all {
				reversed = append(reversed, all[len(all)-1-n])
			}
			added := l.apply(m, store.Step{Shard: s, After: &s, Add: reversed})
			got, err := l.Read(l.Context(), m.ID)
			if err != nil {
				l.Errorf("Read = %v", err)
			}
			same(l.T, m.Name, list(localMap(m, s, all...)), got)
			added.Want = store.StepUndone
			l.want(added, store.StepUndone)
		}
	}
	l.holds("after undoing everything")
}

func testLocalContext(l *site) {
	l.deploy()
	m := newMap("m", shardway.ListMap, shardway.KindInt64)
	s := newShard(m, "s")
	cancelled, cancel := context.WithCancel(l.Context())
	cancel()
	step := l.next(m, store.Step{Shard: s, After: &s})
	calls := map[string]func() error{
		"Deploy":   func() error { return l.Deploy(cancelled, globalID) },
		"Describe": func() error { _, err := l.Describe(cancelled); return err },
		"Read":     func() error { _, err := l.Read(cancelled, 0); return err },
		"Step":     func() error { _, err := l.Step(cancelled, step); return err },
	}
	for name, call := range calls {
		if err := call(); !isCancelled(err) {
			l.Errorf("%s with a cancelled context = %v, want context.Canceled", name, err)
		}
	}
	l.holds("after cancelled calls")
	step.Want = store.StepSeen
	l.want(step, store.StepSeen)
}

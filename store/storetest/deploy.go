package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func testDeployAgain(w *world) {
	d, err := w.Describe(w.Context())
	if err != nil || d.ID == "" || d.Version != store.Current {
		w.Fatalf("Describe = %+v, %v, want an id and version %v", d, err, store.Current)
	}
	deployer, ok := w.Global.(store.Deployer)
	if !ok {
		w.Skip("the store is no store.Deployer")
	}
	m := w.addMap("m", shardway.ListMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	o := w.prepare(m, add(s, newMapping(s, point(key(1)))))
	w.must(m.ID, store.Delta{History: list(newEntry(o, store.Done))})
	before := w.dump()

	_, err = deployer.Deploy(w.Context(), false)
	wantError(w.T, "Deploy over a store", err, shardway.ErrExists)
	again, err := w.Describe(w.Context())
	if err != nil || again != d {
		w.Errorf("Describe after a refused Deploy = %+v, %v, want %+v", again, err, d)
	}
	w.same("a refused Deploy changed the store", before, w.dump())
	testUpgradeCurrent(w.T, w.Global)
	w.same("upgrading a current store changed it", before, w.dump())

	replaced, err := deployer.Deploy(w.Context(), true)
	if err != nil || replaced.ID == "" || replaced.ID == d.ID || replaced.Version != store.Current {
		w.Fatalf("Deploy with replace = %+v, %v, want another id than %s", replaced, err, d.ID)
	}
	if again, err = w.Describe(w.Context()); err != nil || again != replaced {
		w.Errorf("Describe after replacing = %+v, %v, want %+v", again, err, replaced)
	}
	w.same("a replaced store is not empty", dump{}, w.dump())
	if err := w.try(0, store.Delta{AddMap: &m}); err != nil {
		w.Errorf("adding a map to a replaced store: %v", err)
	}
}

// testUpgradeCurrent upgrades a store that is of the current version, if it is
// of the kind that can be.
func testUpgradeCurrent(t *testing.T, s any) {
	u, ok := s.(store.Upgrader)
	if !ok {
		return
	}
	if from, to, err := u.Upgrade(t.Context()); err != nil || from != store.Current || to != store.Current {
		t.Errorf("Upgrade of a current store = %s, %s, %v, want %s twice", from, to, err, store.Current)
	}
}

// testDeployAtOnce replaces the store from many sides.
func testDeployAtOnce(w *world) {
	deployer, ok := w.Global.(store.Deployer)
	if !ok {
		w.Skip("the store is no store.Deployer")
	}
	w.addMap("m", shardway.ListMap, shardway.KindInt64)
	ids := map[string]bool{}
	for _, r := range atOnce(4, func(int) (store.Description, error) { return deployer.Deploy(w.Context(), true) }) {
		if r.err != nil {
			w.Errorf("Deploy with replace = %v", r.err)
		}
		ids[r.value.ID] = true
	}
	d, err := w.Describe(w.Context())
	if err != nil || !ids[d.ID] {
		w.Errorf("Describe = %+v, %v, want one of %v", d, err, ids)
	}
	w.same("the replaced store is not empty", dump{}, w.dump())
}

// testDeployFirstAtOnce creates the store from many sides, without replacing.
func testDeployFirstAtOnce(t *testing.T, g Deployable) {
	var made []store.Description
	for _, r := range atOnce(4, func(int) (store.Description, error) { return g.Deploy(t.Context(), false) }) {
		switch {
		case r.err == nil:
			made = append(made, r.value)
		case !errors.Is(r.err, shardway.ErrExists):
			t.Errorf("Deploy = %v, want success or ErrExists", r.err)
		}
	}
	d, err := g.Describe(t.Context())
	if err != nil || len(made) != 1 || made[0] != d {
		t.Errorf("Describe = %+v, %v; created were %v, want exactly this one", d, err, made)
	}
}

func testNoStore(t *testing.T, g Deployable) {
	ctx, m := t.Context(), newMap("m", shardway.ListMap, shardway.KindInt64)
	called := false
	calls := map[string]func() error{
		"Describe": func() error { _, err := g.Describe(ctx); return err },
		"ShardMap": func() error { _, err := g.ShardMap(ctx, "m"); return err },
		"Lookup":   func() error { _, err := g.Lookup(ctx, m, key(1)); return err },
		"Load": func() error {
			_, err := g.Load(ctx, m, shardway.Range{}, func(shardway.MappingRow) error { called = true; return nil })
			return err
		},
		"Changes": func() error { _, err := g.Changes(ctx, m, 1); return err },
		"View": func() error {
			return g.View(ctx, func(tx store.Reader) error { _, err := tx.ShardMaps(ctx); return err })
		},
		"Update": func() error {
			return g.Update(ctx, 0, func(tx store.Reader, _ time.Time) (store.Delta, error) {
				_, err := tx.ShardMaps(ctx)
				return store.Delta{AddMap: &m}, err
			})
		},
	}
	for name, call := range calls {
		wantError(t, name+" before Deploy", call(), shardway.ErrNoStore)
	}
	if called {
		t.Error("Load called back without a store")
	}
	if _, err := g.Deploy(ctx, false); err != nil {
		t.Fatalf("Deploy = %v", err)
	}
	w := &world{T: t, Global: g}
	w.same("a new store is not empty", dump{}, w.dump())
}

type result[V any] struct {
	value V
	err   error
}

// atOnce calls f(0) to f(n-1) at the same time.
func atOnce[V any](n int, f func(n int) (V, error)) []result[V] {
	results := make([]result[V], n)
	var started, done sync.WaitGroup
	started.Add(n)
	for n := range results {
		done.Go(func() {
			started.Done()
			started.Wait()
			results[n].value, results[n].err = f(n)
		})
	}
	done.Wait()
	return results
}

func testContext(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	w.change(m, add(s, newMapping(s, span(0, 10))))
	before := w.dump()
	cancelled, cancel := context.WithCancel(w.Context())
	cancel()
	other := newMap("other", shardway.ListMap, shardway.KindInt64)
	calls := map[string]func() error{
		"Describe": func() error { _, err := w.Describe(cancelled); return err },
		"ShardMap": func() error { _, err := w.ShardMap(cancelled, "m"); return err },
		"Lookup":   func() error { _, err := w.Lookup(cancelled, m, key(1)); return err },
		"Load": func() error {
			_, err := w.Load(cancelled, m, shardway.Range{}, func(shardway.MappingRow) error { return nil })
			return err
		},
		"Changes": func() error { _, err := w.Changes(cancelled, m, 1); return err },
		"View": func() error {
			return w.View(cancelled, func(tx store.Reader) error { _, err := tx.ShardMaps(cancelled); return err })
		},
		"Update": func() error {
			return w.Update(cancelled, 0, func(store.Reader, time.Time) (store.Delta, error) {
				return store.Delta{AddMap: &other}, nil
			})
		},
	}
	for name, call := range calls {
		if err := call(); !isCancelled(err) {
			w.Errorf("%s with a cancelled context = %v, want context.Canceled", name, err)
		}
	}
	w.same("a cancelled call changed the store", before, w.dump())

	ctx, cancel := context.WithCancel(w.Context())
	err := w.Update(ctx, 0, func(store.Reader, time.Time) (store.Delta, error) {
		cancel()
		return store.Delta{AddMap: &other}, nil
	})
	wantError(w.T, "Update cancelled in its function", err, nil)
	w.same("an Update cancelled in its function changed the store", before, w.dump())
	w.must(0, store.Delta{AddMap: &other}) // the store still works
}

// errOwn is an error of the functions that the suite hands to a store.
var errOwn = errors.New("an error of the caller")

func testErrorsPass(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s := w.addShard(m, "s")
	w.change(m, add(s, newMapping(s, span(0, 10)), newMapping(s, span(10, 20))))
	before := w.dump()
	other := newMap("other", shardway.ListMap, shardway.KindInt64)

	err := w.View(w.Context(), func(store.Reader) error { return errOwn })
	wantError(w.T, "View", err, errOwn)
	err = w.Update(w.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) {
		return store.Delta{AddMap: &other}, errOwn
	})
	wantError(w.T, "Update", err, errOwn)
	calls := 0
	_, err = w.Load(w.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { calls++; return errOwn })
	wantError(w.T, "Load", err, errOwn)
	if calls != 1 {
		w.Errorf("Load went on after an error: %d calls", calls)
	}
	w.same("a call whose function failed changed the store", before, w.dump())
}

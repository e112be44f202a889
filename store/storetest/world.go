package storetest

import (
	order "cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// world is a global store and the test that owns it. Its methods fail the test
// when the store does not do what they ask for.
type world struct {
	*testing.T
	store.Global
}

// try applies a Delta in an Update of one map.
func (w *world) try(m shardway.MapID, d store.Delta) error {
	return w.Update(w.Context(), m, func(store.Reader, time.Time) (store.Delta, error) { return d, nil })
}

func (w *world) must(m shardway.MapID, d store.Delta) {
	w.Helper()
	if err := w.try(m, d); err != nil {
		w.Fatalf("updating map %d: %v", m, err)
	}
}

func (w *world) addMap(name string, kind shardway.MapKind, keys shardway.KeyKind) shardway.ShardMap {
	w.Helper()
	m := newMap(name, kind, keys)
	w.must(0, store.Delta{AddMap: &m})
	m.Generation = 1
	return m
}

// addShard adds a published shard; the map's generation grows by one.
func (w *world) addShard(m shardway.ShardMap, name string) shardway.Shard {
	w.Helper()
	s := newShard(m, name)
	w.change(m, store.Step{Shard: s, After: &s})
	return s
}

// change prepares and publishes an operation in one Delta.
func (w *world) change(m shardway.ShardMap, steps ...store.Step) *store.Operation {
	w.Helper()
	o := newOperation(m, steps...)
	w.must(m.ID, store.Delta{Prepare: o, Publish: o})
	return o
}

// prepare leaves an operation pending.
func (w *world) prepare(m shardway.ShardMap, steps ...store.Step) *store.Operation {
	w.Helper()
	o := newOperation(m, steps...)
	w.must(m.ID, store.Delta{Prepare: o})
	return o
}

func (w *world) generation(m shardway.ShardMap) int64 {
	w.Helper()
	found, err := w.ShardMap(w.Context(), m.Name)
	if err != nil {
		w.Fatalf("ShardMap(%q) = %v", m.Name, err)
	}
	return found.Generation
}

// view runs a View that must succeed. read may be called again.
func (w *world) view(read func(tx store.Reader) error) {
	w.Helper()
	if err := w.View(w.Context(), read); err != nil {
		w.Fatalf("viewing: %v", err)
	}
}

func (w *world) mappings(q store.MappingQuery) (rows []store.MappingRow) {
	w.Helper()
	w.view(func(tx store.Reader) (err error) {
		rows, err = collect(tx.Mappings(w.Context(), q))
		return err
	})
	return rows
}

func (w *world) shards(m shardway.MapID) (rows []store.ShardRow) {
	w.Helper()
	w.view(func(tx store.Reader) (err error) {
		rows, err = tx.Shards(w.Context(), m)
		return err
	})
	return rows
}

func (w *world) operations(q store.OperationQuery) (all []store.Operation) {
	w.Helper()
	w.view(func(tx store.Reader) (err error) {
		all, err = tx.Operations(w.Context(), q)
		return err
	})
	forgetGenerations(all)
	return all
}

func (w *world) history(q store.HistoryQuery) (all []store.Entry) {
	w.Helper()
	w.view(func(tx store.Reader) (err error) {
		all, err = collect(tx.History(w.Context(), q))
		return err
	})
	return all
}

func collect[V any](rows func(yield func(V, error) bool)) ([]V, error) {
	var all []V
	for v, err := range rows {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// dump is everything a global store holds.
type dump struct {
	Maps       []shardway.ShardMap
	Shards     []store.ShardRow
	Mappings   [][]store.MappingRow // by map
	Operations []store.Operation
	History    []store.Entry // newest first
}

func (w *world) dump() (d dump) {
	w.Helper()
	w.view(func(tx store.Reader) (err error) {
		d, err = readDump(w.Context(), tx)
		return err
	})
	return d
}

func readDump(ctx context.Context, tx store.Reader) (d dump, err error) {
	if d.Maps, err = tx.ShardMaps(ctx); err != nil {
		return d, err
	}
	if d.Shards, err = tx.Shards(ctx, 0); err != nil {
		return d, err
	}
	for _, m := range d.Maps {
		rows, err := collect(tx.Mappings(ctx, store.MappingQuery{Map: m}))
		if err != nil {
			return d, err
		}
		d.Mappings = append(d.Mappings, rows)
	}
	if d.Operations, err = tx.Operations(ctx, store.OperationQuery{}); err != nil {
		return d, err
	}
	forgetGenerations(d.Operations)
	slices.SortStableFunc(d.Shards, func(a, b store.ShardRow) int { // shards of two maps may share a name
		return order.Or(strings.Compare(a.Name, b.Name), order.Compare(a.MapID, b.MapID))
	})
	d.History, err = collect(tx.History(ctx, store.HistoryQuery{}))
	return d, err
}

// forgetGenerations drops what operations say about the generation of their
// map: it is the state of another time, and need not be kept.
func forgetGenerations(all []store.Operation) {
	for i := range all {
		all[i].Map.Generation = 0
	}
}

// refused checks that a Delta fails with an error and changes nothing. A nil
// want accepts any error.
func (w *world) refused(what string, m shardway.MapID, d store.Delta, want error) {
	w.Helper()
	before := w.dump()
	wantError(w.T, what, w.try(m, d), want)
	w.same(what+" changed the store", before, w.dump())
}

func (w *world) same(what string, want, got any) {
	w.Helper()
	same(w.T, what, want, got)
}

// same compares values as stores must keep them: times by instant, no
// difference between nil and empty.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) { // a short cut: cmp is slow on thousands of rows
		return
	}
	if diff := cmp.Diff(want, got, compareValues, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// compareValues compares keys, whose fields are not exported, and what there
// are thousands of, in one go.
var compareValues = cmp.Options{
	cmp.Comparer(func(a, b shardway.Key) bool { return a == b }),
	cmp.Comparer(func(a, b shardway.Range) bool { return a == b }),
	cmp.Comparer(func(a, b shardway.Mapping) bool {
		expire := a.Lock.Expires.Equal(b.Lock.Expires)
		a.Lock.Expires, b.Lock.Expires = time.Time{}, time.Time{}
		return expire && a == b
	}),
}

// wantError checks the identity of an error; nil accepts any but no error.
func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s succeeded, want an error (%v)", what, want)
	case want != nil && !errors.Is(err, want):
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

func isCancelled(err error) bool { return errors.Is(err, context.Canceled) }

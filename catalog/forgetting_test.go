package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// stride makes the sequence numbers that local stores see far apart, so that
// they forget with every step: stores wait until it is worth it.
const stride = 1000

// strided is a local store to which a number n is n times stride.
type strided struct{ store.Local }

func (l strided) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	s.Seq, s.Horizon = s.Seq*stride, s.Horizon*stride
	return l.Local.Step(ctx, s)
}

func (l strided) Describe(ctx context.Context) (store.Description, error) {
	d, err := l.Local.Describe(ctx)
	d.Forgotten /= stride
	return d, err
}

// forget lets local stores (none: all) forget an operation that has ended, as
// later changes would.
func (r *rig) forget(rec catalog.Recovered, addresses ...string) {
	r.t.Helper()
	if rec.Outcome != store.Done && rec.Outcome != store.Undone {
		return
	}
	op := rec.Operation
	var step store.Step
	if len(op.Steps) > 0 { // a comparison of databases has none
		step.Shard = op.Steps[0].Shard
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, raw := range r.locals {
		if len(addresses) > 0 && !slices.Contains(addresses, address) {
			continue
		}
		local := strided{raw}
		later := store.LocalStep{
			Operation: store.OperationID(store.NewID()), Seq: op.Seq + 1, Horizon: op.Seq + 1, Epoch: 1, Map: op.Map,
			Step: step, Want: store.StepUndone,
		}
		if _, err := local.Step(context.Background(), later); errors.Is(err, shardway.ErrNoStore) {
			continue
		} else if err != nil {
			r.t.Errorf("stepping at %s: %v", address, err)
		}
		if d, err := local.Describe(context.Background()); err != nil || d.Forgotten != op.Seq {
			r.t.Errorf("%s has forgotten operations up to %d, want %d: %v", address, d.Forgotten, op.Seq, err)
		}
	}
}

// TestLateRecovery lets a client die at each commit, who recovers its operation
// stall at each of its own, and a third end it, after which all shards forget
// it. What the second does when it wakes changes nothing (I2, I5, I6).
func TestLateRecovery(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		for _, kc := range killCases {
			switch kc.name {
			case "add shard", "delete shard", "change shard's servers", "add ranges on three shards", "move offline range", "split":
			default:
				continue
			}
			t.Run(kc.name, func(t *testing.T) {
				t.Parallel()
				x := expect(t, kc.change)
				for n := int32(1); n < x.commits; n++ {
					for _, kind := range []fault{stallBefore, stallAfter} {
						for m := int32(1); lateRecovery(t, e, kc.change, x, n, kind, m); m++ {
						}
					}
				}
			})
		}
	})
}

// lateRecovery is one case: the client dies after its n-th commit, and the
// second stalls at its m-th. It reports whether there was one.
func lateRecovery(t *testing.T, e engine, change func(world) catalog.Change, x expectation, n int32, kind fault, m int32) (stalled bool) {
	t.Helper()
	t.Run(fmt.Sprintf("dead after %d, %s %d", n, kind, m), func(t *testing.T) {
		r, w := e.world(t)
		dead := &faults{rig: r, at: n, kind: killAfter}
		if _, err := dead.client(catalog.Config{Who: "victim", Lease: time.Minute}).Do(t.Context(), change(w)); err == nil {
			t.Fatal("a dead client reported success")
		}
		second := &faults{rig: r, at: m, kind: kind}
		all, err := second.client(catalog.Config{Who: "second", Wait: time.Minute}).Recover(t.Context(), true)
		if err != nil || len(all) != 1 {
			t.Fatalf("Recover = %d operations, %v", len(all), err)
		}
		if stalled = second.label != ""; stalled && len(second.recovered) == 1 && second.recovered[0].Outcome == store.Pending {
			t.Errorf("the third could not end it: %v", second.recovered[0].Err)
		}
		o, err := r.client(catalog.Config{}).Outcome(t.Context(), all[0].Operation.ID)
		if err != nil || o != all[0].Outcome {
			t.Errorf("the second reports %s (%v), the outcome is %s, %v", all[0].Outcome, all[0].Err, o, err)
		}
		want := x.before
		if o == store.Done {
			want = x.after
		}
		s := r.look(t)
		s.checkSettled(t)
		s.checkPublished(t, "after the second", want)
	})
	return stalled
}

// A shard moves to a copy of its database although both have forgotten more
// operations than the global store, restored from a backup, counts: they are
// not taken for one database, and the old one owns nothing afterwards (I2).
func TestRelocateWhenAhead(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		r, w := e.world(t)
		copyShard(t, r, w, "copy")
		r.forget(catalog.Recovered{Outcome: store.Done, Operation: store.Operation{
			Seq: 5000, Map: w.ranges, Steps: []store.Step{{Shard: w.s1}},
		}})
		c := r.client(catalog.Config{Wait: time.Millisecond})
		do(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy"))})
		old, now := heldAt(t, r, "db-s1", w.ranges.ID), heldAt(t, r, "copy", w.ranges.ID)
		if len(old) != 0 || len(now) != 3 {
			t.Errorf("the old database has %d mappings and the new one %d, want none and 3", len(old), len(now))
		}
		r.look(t).checkSettled(t)
	})
}

// Who meets the operation of a dead client stalls while ending it; another one
// ends it, and no shard has forgotten it yet. The change that met it goes on, and
// is not told that something is pending (I5, I6).
func TestOvertaken(t *testing.T) {
	t.Parallel()
	move := func(w world) catalog.Change { return catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID} }
	x := expect(t, move)
	for n := int32(1); n < x.commits; n++ {
		for _, kind := range []fault{stallBefore, stallAfter} {
			for m := int32(1); overtaken(t, move, n, kind, m); m++ {
			}
		}
	}
}

// overtaken is one case: the client dies after its n-th commit, and who meets
// its operation stalls at its m-th. It reports whether there was one.
func overtaken(t *testing.T, move func(world) catalog.Change, n int32, kind fault, m int32) (stalled bool) {
	t.Helper()
	r, w := memory.world(t)
	dead := &faults{rig: r, at: n, kind: killAfter}
	if _, err := dead.client(catalog.Config{}).Do(t.Context(), move(w)); err == nil {
		t.Fatal("a dead client reported success")
	}
	r.ahead.Store(int64(time.Hour)) // its lease has ended
	second := &faults{rig: r, at: m, kind: kind, remembered: true}
	_, err := second.client(catalog.Config{Wait: time.Minute}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, Status: ptr(shardway.Online)})
	if errors.Is(err, shardway.ErrPending) {
		t.Errorf("dead after %d, %s %d: nothing is pending, and the change that met the operation says: %v", n, kind, m, err)
	}
	r.look(t).checkSettled(t)
	return second.label != ""
}

// The comparison of two databases before a shard moves to a copy, disturbed at
// each of its commits in each way that passes: the shard moves all the same. One
// that somebody else has ended meanwhile, so that shards may have forgotten it,
// proves nothing. No operation is left behind: it would keep all shards from
// forgetting (I2, I5).
func TestComparisonDisturbed(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault{lostAck, lostCommit, failOnce, stallBefore, stallAfter} {
		for n := int32(1); n <= 4; n++ { // prepare, source, target, end
			name := fmt.Sprintf("%s %d", kind, n)
			r, w := memory.world(t)
			copyShard(t, r, w, "copy")
			before := r.look(t)
			f := &faults{rig: r, at: n, kind: kind}
			_, err := f.client(catalog.Config{Wait: time.Minute}).Do(t.Context(), catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy"))})
			s := r.look(t)
			if len(s.operations) > 0 {
				t.Errorf("%s: operations are left: %v", name, s.operations)
			}
			if err == nil {
				s.checkSettled(t)
				if old := heldAt(t, r, "db-s1", w.ranges.ID); len(old) > 0 {
					t.Errorf("%s: the old database has %d mappings", name, len(old))
				}
				continue
			}
			taken := len(f.recovered) > 0
			if row := s.shards[slices.IndexFunc(s.shards, func(row store.ShardRow) bool { return row.ID == w.s1.ID })]; !taken || row.Version != w.s1.Version {
				t.Errorf("%s, taken over: %t: %v; the shard is %+v", name, taken, err, row)
			}
			if !slices.Equal(s.maps, before.maps) { // routers would read all of the map again
				t.Errorf("%s: nothing has changed, and the maps are %v, not %v", name, s.maps, before.maps)
			}
		}
	}
}

package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

// stuck is a world with an operation that nobody can end: [0, 100) was moved
// from s1 to s2 and split there. Then the global store was restored to a moment
// in the middle of the move, and s1 to one before it.
func stuck(r *rig) (w *world, op store.Operation) {
	r.t.Helper()
	w = newWorld(r, shardway.RangeMap)
	m := w.add(0, span(0, 100), span(500, 600))[0]
	w.add(1, span(200, 300))
	off := do(r.t, w.c, catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Offline)}).Mappings[0]
	old, err := w.localMaps("db-s1")
	if err != nil {
		r.t.Fatal(err)
	}
	op = w.abandonedMove(off, 4) // both shards have changed
	moved := op.Added()[0]
	left, right := w.mapping(1, span(0, 50), shardway.Online), w.mapping(1, span(50, 100), shardway.Online)
	w.plantLocal(1, one(moved), []shardway.Mapping{left, right})
	r.lost("db-s1")
	d, err := w.global.Describe(r.t.Context())
	if err == nil {
		err = w.local(0).Deploy(r.t.Context(), d.ID)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	shard := old[0].Shard
	s := store.LocalStep{
		Operation: store.OperationID(store.NewID()), Seq: 1, Epoch: 1, Map: w.m, Want: store.StepApplied,
		Step: store.Step{Shard: shard, After: &shard, Add: old[0].Mappings},
	}
	if _, err := w.local(0).Step(r.t.Context(), s); err != nil {
		r.t.Fatal(err)
	}
	return w, op
}

// abandonedMove lets a client die at one commit of a move from s1 to s2.
func (w *world) abandonedMove(m shardway.Mapping, at int32) store.Operation {
	w.t.Helper()
	v := &victim{rig: w.rig, at: at, kind: killBefore}
	dying := newCatalog(w.t, victimGlobal{w.global, v}, v, catalog.Config{})
	if _, err := dying.Do(w.t.Context(), catalog.UpdateMapping{Mapping: m, ShardID: &w.s[1].ID}); err == nil {
		w.t.Fatal("the client did not die")
	}
	ops, err := w.c.Operations(w.t.Context())
	if err != nil || len(ops) != 1 {
		w.t.Fatalf("operations left behind: %v, %v", ops, err)
	}
	return ops[0]
}

// TestGiveUp ends an operation that stays pending for ever, since one shard
// does not have what it would take back: no local map changes, no key gets an
// owner that it had not, and what differs is then resolved as the operator says.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w, op := stuck(r)
		for range 2 { // also not when it is tried again
			done, err := w.c.Recover(t.Context(), true)
			if err != nil || len(done) != 1 || done[0].Outcome != store.Pending || !errors.Is(done[0].Err, store.ErrMapsDiffer) {
				t.Fatalf("recovering what cannot be taken back: %+v, %v", done, err)
			}
		}
		// The restored global store remembers fewer takeovers than a shard.
		ahead := store.LocalStep{Operation: op.ID, Seq: op.Seq, Epoch: 9, Map: w.m, Step: op.Steps[1], Want: store.StepSeen}
		if _, err := w.local(1).Step(t.Context(), ahead); err != nil {
			t.Fatal(err)
		}
		before, doubles := w.everything(), w.doubles()
		other := r.client(catalog.Config{Who: "other"})
		got, err := other.GiveUp(t.Context(), catalog.GiveUp{Operation: op.ID, Reason: "store of Sunday"})
		if err != nil || got.Outcome != store.Undone || got.Operation.Summary != op.Summary {
			t.Fatalf("giving up: %+v, %v", got, err)
		}
		if diff := cmp.Diff(before, w.everything()); diff != "" {
			t.Errorf("something has changed (-before +after):\n%s", diff)
		}
		w.checkDoubles("given up", doubles)
		w.checkMarks("given up")
		if again, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: op.ID}); err != nil || again.Outcome != store.Undone {
			t.Errorf("giving it up again: %+v, %v", again, err)
		}
		history, err := w.c.History(t.Context(), w.m.ID, 1)
		if err != nil || history[0].Operation != op.ID || history[0].Outcome != store.Undone ||
			history[0].Reason != "given up, local maps stay as they are; store of Sunday" {
			t.Errorf("history: %+v, %v", history, err)
		}
		// s2 is right: it was asked last. s1 loses what it should not have.
		rep := w.wantDifferences("given up, s2", 1, "[0, 50) both global s1 global offline local online", "[50, 100) both global s1 global offline local online")
		var owners *recovery.OwnersError
		if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal}); !errors.As(err, &owners) || owners.Other != "s1" {
			t.Errorf("a key that two shards claim: %v", err)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal})
		w.checkClean("resolved")
		w.wantPublished("resolved", "[0, 100) s1 offline", "[200, 300) s2 online", "[500, 600) s1 online")
	})
}

// TestGiveUpStalled stalls a client before every commit of a move; meanwhile
// its operation is given up by force. When it goes on it writes nothing, and
// says so; where every shard had been changed, the move was published and the
// client is told of success.
func TestGiveUpStalled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		outcomes := map[store.Outcome]int{}
		for n := int32(2); n <= 4; n++ { // source, target, publish
			rr := memory(t)
			if r.more != nil {
				rr = r.another()
			}
			w := newWorld(rr, shardway.RangeMap)
			m := w.add(0, span(0, 100))[0]
			off := do(t, w.c, catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Offline)}).Mappings[0]
			name := fmt.Sprintf("stalled before commit %d", n)
			var given catalog.Recovered
			var local []string
			v := &victim{rig: rr, at: n, kind: stall}
			v.during = func() error {
				ops, err := w.c.Operations(t.Context())
				if err != nil || len(ops) != 1 {
					return fmt.Errorf("operations: %v, %w", ops, err)
				}
				if _, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: ops[0].ID}); !errors.Is(err, shardway.ErrPending) {
					t.Errorf("%s: giving up what an owner works on: %v", name, err)
				}
				given, err = w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: ops[0].ID, Force: true})
				local = append(w.owned("db-s1"), w.owned("db-s2")...)
				return err
			}
			_, err := newCatalog(t, victimGlobal{rr.global, v}, v, catalog.Config{}).Do(t.Context(), catalog.UpdateMapping{Mapping: off, ShardID: &w.s[1].ID})
			outcomes[given.Outcome]++
			if (err == nil) != (given.Outcome == store.Done) { // I5
				t.Errorf("%s: %s, and the client is told %v", name, given.Outcome, err)
			}
			if diff := cmp.Diff(local, append(w.owned("db-s1"), w.owned("db-s2")...)); diff != "" { // I6
				t.Errorf("%s: the client wrote after it had lost its operation:\n%s", name, diff)
			}
			w.checkDoubles(name, nil)
			w.checkMarks(name)
			if ops, err := w.c.Operations(t.Context()); err != nil || len(ops) > 0 {
				t.Errorf("%s: operations are left: %v, %v", name, ops, err)
			}
			if err := rebuilt(w.r.RebuildLocal(t.Context(), w.m, recovery.Rebuild{})); err != nil {
				t.Errorf("%s: rebuilding: %v", name, err)
			}
			w.checkClean(name)
		}
		if outcomes[store.Done] != 1 || outcomes[store.Undone] != 2 {
			t.Errorf("outcomes %v, want one done and two undone", outcomes)
		}
	})
}

// TestGiveUpLost is about a database that was lost and came back empty: the
// operation cannot be recovered, and what an operation holds cannot be rebuilt.
func TestGiveUpLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		m := w.add(0, span(0, 100))[0]
		off := do(t, w.c, catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Offline)}).Mappings[0]
		op := w.abandonedMove(off, 3) // s1 has changed
		r.lost("db-s1")
		if done, err := w.c.Recover(t.Context(), true); err != nil || !errors.Is(done[0].Err, shardway.ErrNoStore) {
			t.Fatalf("recovering with a lost store: %+v, %v", done, err)
		}
		r.shut("db-s2", true)
		if got, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: op.ID}); !errors.Is(err, shardway.ErrUnavailable) || got.Outcome != store.Pending {
			t.Errorf("giving up without a fence: %+v, %v", got, err)
		}
		r.shut("db-s2", false)
		if got, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: op.ID}); err != nil || got.Outcome != store.Undone {
			t.Fatalf("giving up: %+v, %v", got, err)
		}
		late := store.LocalStep{Operation: op.ID, Seq: op.Seq, Epoch: op.Epoch, Map: w.m, Step: op.Steps[1], Want: store.StepApplied}
		if _, err := w.local(1).Step(t.Context(), late); !errors.Is(err, store.ErrLostLease) {
			t.Errorf("a late step: %v", err)
		}
		if err := rebuilt(w.r.RebuildLocal(t.Context(), w.m, recovery.Rebuild{})); err != nil {
			t.Errorf("rebuilding: %v", err)
		}
		w.wantOwned("rebuilt", "db-s1", "[0, 100) offline")
		w.checkClean("rebuilt")
	})
}

// TestGiveUpKilled lets giving up go wrong at each of its commits, in each of
// the ways of fault. Done again by somebody else it ends as undisturbed.
func TestGiveUpKilled(t *testing.T) {
	t.Parallel()
	w, op := stuck(memory(t))
	v := &victim{rig: w.rig}
	giveUp := func(v *victim, id store.OperationID) error {
		c := newCatalog(t, victimGlobal{v.rig.global, v}, v, catalog.Config{Who: "victim", Lease: time.Minute})
		_, err := c.GiveUp(t.Context(), catalog.GiveUp{Operation: id, Force: true})
		return err
	}
	if err := giveUp(v, op.ID); err != nil {
		t.Fatal(err)
	}
	want, commits := w.everything(), v.seen.Load()
	if commits < 4 { // claim, two fences, end
		t.Errorf("only %d commits", commits)
	}
	for kind := range numFaults {
		for n := int32(1); n <= commits; n++ {
			name := fmt.Sprintf("%s at commit %d", kind, n)
			w, op := stuck(memory(t))
			v := &victim{rig: w.rig, at: n, kind: kind, during: func() error {
				_, err := w.c.GiveUp(context.Background(), catalog.GiveUp{Operation: op.ID, Force: true})
				return err
			}}
			err := giveUp(v, op.ID)
			if (kind == lostAck || kind == failOnce || kind == stall) && err != nil || v.dead.Load() && err == nil {
				t.Errorf("%s: %v", name, err)
			}
			w.checkMarks(name)
			got, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: op.ID, Force: true})
			if err != nil || got.Outcome != store.Undone {
				t.Errorf("%s: done again: %+v, %v", name, got, err)
			}
			if diff := cmp.Diff(want, w.everything()); diff != "" {
				t.Errorf("%s: (-undisturbed +got):\n%s", name, diff)
			}
			w.checkMarks(name)
		}
	}
}

// Bad input: an operation that nobody knows, and none.
func TestGiveUpUnknown(t *testing.T) {
	t.Parallel()
	w, _ := stuck(memory(t))
	before := w.everything()
	for _, id := range []store.OperationID{0, 4711} {
		if _, err := w.c.GiveUp(t.Context(), catalog.GiveUp{Operation: id, Force: true}); !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), "operation") {
			t.Errorf("giving up %s: %v", id, err)
		}
	}
	if ops, err := w.c.Operations(t.Context()); err != nil || len(ops) != 1 || !slices.Equal(before, w.everything()) {
		t.Errorf("something has changed: %v, %v", ops, err)
	}
}

package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// restorable calls test with a world on each SQL engine; backup returns what
// brings the global store, and it alone, back to the moment of the call.
func restorable(t *testing.T, test func(t *testing.T, r *rig, w world, backup func() (restore func()))) {
	t.Helper()
	for _, f := range fleets {
		t.Run(string(f.engine), func(t *testing.T) {
			t.Parallel()
			f.require(t)
			s := newSite(t, f)
			t.Cleanup(func() { s.keep.end(t) })
			r := s.rig(t)
			w := populate(r)
			test(t, r, w, func() func() {
				saved := s.saveTables(t, s.global, dialect.Global)
				return func() { s.exec(t, s.global, saved) }
			})
		})
	}
}

// A global store that was restored from a backup counts its operations from
// there on again. Local stores have forgotten the operations that it has lost:
// changes work at once all the same, and nothing of what was lost comes back.
func TestRestoredStoreGoesOn(t *testing.T) {
	t.Parallel()
	restorable(t, func(t *testing.T, r *rig, w world, backup func() func()) {
		restore := backup()
		add := catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{
			{Range: rangeOf(500, 510), ShardID: w.s1.ID, Offline: true},
			{Range: rangeOf(510, 520), ShardID: w.s2.ID, Offline: true},
			{Range: rangeOf(520, 530), ShardID: w.s3.ID, Offline: true},
		}}
		dead := &faults{rig: r, at: 3, kind: killBefore}
		if _, err := dead.client(catalog.Config{Lease: time.Minute}).Do(t.Context(), add); err == nil {
			t.Fatal("a dead client reported success")
		}
		lost := r.look(t).operations[0]
		c := r.client(catalog.Config{Who: "second"})
		if all, err := c.Recover(t.Context(), true); err != nil || all[0].Outcome != store.Undone {
			t.Fatalf("Recover = %+v, %v", all, err)
		}
		for range 3 {
			for _, m := range do(t, c, add).Mappings {
				do(t, c, catalog.DeleteMapping{Mapping: m})
			}
		}
		before := r.look(t)
		before.checkSettled(t)
		restore()

		var log bytes.Buffer
		c = r.client(catalog.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Wait: time.Millisecond})
		do(t, c, catalog.SplitMapping{Mapping: w.a, At: k(50)})
		if !strings.Contains(log.String(), "have been raised") {
			t.Errorf("nobody was told that numbers were skipped: %q", log.String())
		}
		do(t, c, catalog.UpdateMapping{Mapping: w.two, Status: ptr(shardway.Online)}) // on another map
		do(t, c, catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s3.ID})
		do(t, c, catalog.MergeMappings{Left: w.d, Right: w.e})
		log.Reset()
		do(t, c, catalog.UpdateMapping{Mapping: w.one, Status: ptr(shardway.Offline)})
		if log.Len() > 0 {
			t.Errorf("numbers were skipped although no shard is ahead any more: %s", log.String())
		}
		after := r.look(t)
		after.checkSettled(t)
		for i, step := range lost.Steps { // its executor wakes, late
			local, err := r.Open(t.Context(), step.Shard.Location)
			if err != nil {
				t.Fatal(err)
			}
			late := store.LocalStep{Operation: lost.ID, Seq: lost.Seq, Horizon: lost.Seq, Epoch: 9, Map: lost.Map, Step: step, Want: store.StepApplied}
			if _, err := local.Step(t.Context(), late); !errors.Is(err, store.ErrLostLease) {
				t.Errorf("step %d of a lost operation = %v, want ErrLostLease", i, err)
			}
		}
		again := r.look(t)
		again.checkSettled(t)
		if diff := cmp.Diff(after.published, again.published); diff != "" {
			t.Errorf("a lost operation came back (-before +after):\n%s", diff)
		}
	})
}

// An operation that was pending at the moment of the backup has ended since.
// Who finds it again, after some of its shards have forgotten it, never changes
// what they hold: what is left of the truth is there.
func TestRestoredOperation(t *testing.T) {
	t.Parallel()
	restorable(t, func(t *testing.T, r *rig, w world, backup func() func()) {
		dead := &faults{rig: r, at: 3, kind: killAfter} // both shards have applied it
		if _, err := dead.client(catalog.Config{Lease: time.Minute}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID}); err == nil {
			t.Fatal("a dead client reported success")
		}
		restore := backup()
		recovered := func(want store.Outcome) catalog.Recovered {
			t.Helper()
			all, err := r.client(catalog.Config{Who: "second"}).Recover(t.Context(), true)
			if err != nil || len(all) != 1 || all[0].Outcome != want {
				t.Fatalf("Recover = %+v, %v, want %s", all, err, want)
			}
			return all[0]
		}
		local := func() []string {
			var rows []string
			for _, o := range r.look(t).owned {
				rows = append(rows, fmt.Sprint(o.address, " ", o.ID, " ", o.Range, " ", o.Status))
			}
			slices.Sort(rows)
			return rows
		}
		first := recovered(store.Done)
		held := local()
		restore()
		recovered(store.Done) // nobody has forgotten it
		r.look(t).checkSettled(t)

		restore()
		r.forget(first, "db-s1")
		if pending := recovered(store.Pending); !errors.Is(pending.Err, store.ErrMapsDiffer) {
			t.Errorf("what one shard has forgotten and the other applied: %v, want ErrMapsDiffer", pending.Err)
		}
		r.look(t).checkAlways(t)
		if diff := cmp.Diff(held, local()); diff != "" {
			t.Errorf("local maps have changed (-before +after):\n%s", diff)
		}
		g, err := r.client(catalog.Config{}).GiveUp(t.Context(), catalog.GiveUp{Operation: first.Operation.ID, Force: true})
		if err != nil || g.Outcome != store.Undone {
			t.Errorf("GiveUp = %s, %v, want undone", g.Outcome, err)
		}
		restore()
		r.forget(first, "db-s2")
		recovered(store.Undone) // nobody knows any more
		if diff := cmp.Diff(held, local()); diff != "" {
			t.Errorf("local maps have changed (-before +after):\n%s", diff)
		}
	})
}

// The same, and the shard forgets the operation while it is being recovered: a
// client that was at work before the restore has woken.
func TestRestoredOperationForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	r, w := memory.world(t)
	dead := &faults{rig: r, at: 3, kind: killAfter} // both shards have applied it
	if _, err := dead.client(catalog.Config{Lease: time.Minute}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID}); err == nil {
		t.Fatal("a dead client reported success")
	}
	before := r.look(t)
	forgotten := catalog.Recovered{Outcome: store.Done, Operation: before.operations[0]}
	second := &faults{rig: r, at: 2, kind: undisturbed, meanwhile: func() { r.forget(forgotten, "db-s1") }} // after the claim
	all, err := second.client(catalog.Config{}).Recover(t.Context(), true)
	if err != nil || second.label != "local s1" || len(all) != 1 || all[0].Outcome != store.Pending || !errors.Is(all[0].Err, store.ErrMapsDiffer) {
		t.Errorf("Recover, at %q = %+v, %v, want pending for ErrMapsDiffer", second.label, all, err)
	}
	byPlace := func(a, b owned) int { return strings.Compare(a.address+a.ID.String(), b.address+b.ID.String()) }
	after := r.look(t)
	slices.SortFunc(before.owned, byPlace)
	slices.SortFunc(after.owned, byPlace)
	if !slices.Equal(before.owned, after.owned) {
		t.Errorf("local maps were %v, are %v", before.owned, after.owned)
	}
}

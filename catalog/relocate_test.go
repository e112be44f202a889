package catalog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// copyShard makes the database at an address a copy of that of the shard s1, as
// a restored backup is.
func copyShard(t *testing.T, rg *rig, w world, address string) store.Local {
	t.Helper()
	d, err := rg.global.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source, err := rg.Open(t.Context(), at("db-s1"))
	if err != nil {
		t.Fatal(err)
	}
	held, err := source.Read(t.Context(), w.ranges.ID)
	if err != nil {
		t.Fatal(err)
	}
	target, err := rg.Open(t.Context(), at(address))
	if err == nil {
		err = target.Deploy(t.Context(), d.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = target.Step(t.Context(), store.LocalStep{
		Operation: store.OperationID(store.NewID()), Seq: 1, Epoch: 1, Map: w.ranges,
		Step: store.Step{Shard: w.s1, After: &w.s1, Add: held[0].Mappings}, Want: store.StepApplied,
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func heldAt(t *testing.T, rg *rig, address string, m shardway.MapID) map[shardway.MappingID]bool {
	t.Helper()
	local, err := rg.Open(t.Context(), at(address))
	if err != nil {
		t.Fatal(err)
	}
	held, err := local.Read(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[shardway.MappingID]bool{}
	for _, h := range held {
		for _, row := range h.Mappings {
			ids[row.ID] = true
		}
	}
	return ids
}

// TestRelocate moves a shard to a copy of its database, stopping the client at
// every commit. At the end one of the two databases owns the shard's mappings,
// the other none that the global store knows: a program with an old route
// cannot go on at the old one.
func TestRelocate(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		done := false
		for n := int32(1); !done; n++ {
			t.Run(fmt.Sprint(n), func(t *testing.T) { done = relocate(t, e, n) })
			if t.Failed() {
				return
			}
		}
	})
}

func relocate(t *testing.T, e engine, n int32) (undisturbed bool) {
	rg, w := e.world(t)
	copyShard(t, rg, w, "copy")
	f := &faults{rig: rg, at: n, kind: killBefore}
	_, err := f.client(catalog.Config{Who: "mover"}).Do(t.Context(), catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy"))})
	undisturbed = err == nil
	if !undisturbed && !errors.Is(err, errKilled) {
		t.Fatalf("Do = %v", err)
	}
	c := rg.client(catalog.Config{Who: "second"})
	recovered, err := c.Recover(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	current, err := c.Shard(t.Context(), w.ranges, "s1")
	if err != nil {
		t.Fatal(err)
	}
	owner, other := "db-s1", "copy"
	moved := undisturbed
	for _, rec := range recovered {
		if rec.Outcome != store.Done && rec.Outcome != store.Undone {
			t.Errorf("recovery of %q ended %s: %v", rec.Operation.Kind, rec.Outcome, rec.Err)
		}
		moved = moved || rec.Operation.Kind == "update shard" && rec.Outcome == store.Done
	}
	if moved {
		owner, other = other, owner
	}
	if got := current.Location.Servers[0].Address; got != owner {
		t.Fatalf("the shard is at %s, want %s", got, owner)
	}
	mine, theirs := heldAt(t, rg, owner, w.ranges.ID), heldAt(t, rg, other, w.ranges.ID)
	for _, m := range list(t, c, store.MappingQuery{Map: w.ranges, ShardID: w.s1.ID}) {
		if !mine[m.ID] {
			t.Errorf("%s does not own mapping %s", owner, m.Range)
		}
		if owner == "copy" && theirs[m.ID] {
			t.Errorf("%s owns mapping %s too", other, m.Range)
		}
		delete(mine, m.ID)
	}
	if len(mine) > 0 {
		t.Errorf("%s owns mappings that the map does not have: %v", owner, mine)
	}
	if owner == "copy" && len(theirs) > 0 {
		t.Errorf("the old database still owns %d mappings", len(theirs))
	}
	return undisturbed
}

// TestRelocateToAnotherState refuses a copy that is older than the shard: it
// would own mappings that have moved away since (I2).
func TestRelocateToAnotherState(t *testing.T) {
	t.Parallel()
	rg, w := memory.world(t)
	copyShard(t, rg, w, "copy")
	c := rg.client(catalog.Config{})
	do(t, c, catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID, Status: ptr(shardway.Online)})
	before := rg.look(t)
	for _, gone := range []bool{false, true} {
		ch := catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy")), OldGone: gone}
		refused(t, c, ch, store.ErrMapsDiffer, `"s1"`, "copy")
		if _, err := c.Preview(t.Context(), ch); !errors.Is(err, store.ErrMapsDiffer) {
			t.Errorf("Preview = %v", err)
		}
	}
	rg.look(t).checkPublished(t, "after the wrong copy", before.published)
	rg.alias["renamed"] = "db-s1" // the same database by another name needs no copy
	do(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("renamed"))})
	if n := len(heldAt(t, rg, "db-s1", w.ranges.ID)); n != 2 {
		t.Errorf("%d mappings are left in the renamed database, want 2", n)
	}
}

// TestRelocateWaits keeps a shard where it is while an operation works on it:
// a step of it could still go to the old location.
func TestRelocateWaits(t *testing.T) {
	t.Parallel()
	rg, w := memory.world(t)
	copyShard(t, rg, w, "copy")
	c := rg.client(catalog.Config{Who: "mover", Wait: 1})
	f := &faults{rig: rg, at: 2, kind: undisturbed, meanwhile: func() { // prepared, not yet applied
		refused(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy"))}, shardway.ErrPending, `"s1"`)
		refused(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("copy")), OldGone: true}, shardway.ErrPending, `"s1"`)
	}}
	do(t, f.client(catalog.Config{}), catalog.SplitMapping{Mapping: w.a, At: k(50)})
}

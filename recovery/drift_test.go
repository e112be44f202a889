package recovery_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

// TestDrift is ADM-11: (a) the global store restored from yesterday, (b) a
// shard restored from yesterday, (c) a changed address, (d) a lost local map.
// Each difference is listed once, resolving makes the sides equal, and nothing
// else changes.
func TestDrift(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		ms := w.add(0, span(0, 100), span(100, 200))
		w.add(1, span(200, 300))

		// (b) the shard knows [0, 200) as one mapping, as it was yesterday
		w.plantLocal(0, ms, one(w.mapping(0, span(0, 200), shardway.Online)))
		rep := w.wantDifferences("b", 0, "[0, 100) both", "[100, 200) both")
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal})
		w.checkClean("b")
		w.wantPublished("b", "[0, 100) s1 online", "[100, 200) s1 online", "[200, 300) s2 online")

		// (a) the same, seen from the other side
		w.plantGlobal(ms, one(w.mapping(1, span(0, 150), shardway.Online)))
		w.wantDifferences("a, s2", 1, "[0, 150) global only")
		rep = w.wantDifferences("a, s1", 0, "[0, 100) both global s2", "[100, 150) both global s2", "[150, 200) local only")
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
		w.checkClean("a")

		// (c) the address in the local map is another one
		moved := w.s[0]
		moved.Location, moved.Version, moved.Name = at("yesterday"), 5, "old"
		s := store.LocalStep{Operation: 77, Seq: 1 << 40, Epoch: 1, Map: w.m, Want: store.StepApplied, Step: store.Step{Shard: w.s[0], Before: &w.s[0], After: &moved}}
		if _, err := w.local(0).Step(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		rep = w.detect(0)[0]
		var names []string
		for _, f := range rep.Fields {
			names = append(names, f.Name)
		}
		if diff := cmp.Diff([]string{"name", "location", "version"}, names); diff != "" || rep.State != recovery.Differs {
			t.Errorf("c: %s, fields %s", rep.State, diff)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
		w.checkClean("c")

		// (d) the local map is gone, and then the whole database
		w.plantLocal(0, ms, nil)
		s.Operation, s.Step = 78, store.Step{Shard: w.s[0], Before: &w.s[0]}
		if _, err := w.local(0).Step(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for _, state := range []recovery.State{recovery.NoMap, recovery.NoStore} {
			rep = w.wantDifferences(string(state), 0, "[0, 100) global only", "[100, 200) global only")
			if rep.State != state {
				t.Errorf("state %q, want %q", rep.State, state)
			}
			if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal}); !errors.Is(err, shardway.ErrNoStore) {
				t.Errorf("%s: keeping a local map that is not there: %v", state, err)
			}
			if e := w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal}); !e.Row || e.Deployed != (state == recovery.NoStore) {
				t.Errorf("%s: %+v", state, e)
			}
			w.checkClean(string(state))
			w.wantOwned(string(state), "db-s1", "[0, 100) online", "[100, 200) online")
			w.lost("db-s1")
		}
	})
}

// TestForeign meets databases of another global store and of another shard:
// they are refused by name, and taken over only when that is asked for.
func TestForeign(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		w.add(0, span(0, 100))
		w.add(1, span(100, 200))
		adopt(t, w.local(0), w, "another")
		rep := w.detect(0)[0]
		if rep.State != recovery.Foreign || rep.StoreID != "another" || len(rep.Differences) > 0 {
			t.Errorf("%+v", rep)
		}
		if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal}); !errors.Is(err, shardway.ErrForeignStore) {
			t.Errorf("a foreign store: %v", err)
		}
		if e, err := w.r.Preview(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal, Takeover: true}); err != nil || e.Adopted != "another" {
			t.Errorf("preview: %+v, %v", e, err)
		}
		if rep = w.detect(0)[0]; rep.State != recovery.Foreign {
			t.Errorf("after a preview: %s", rep.State)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal, Takeover: true})
		w.checkClean("taken over")

		// s1 answers with the database of s2.
		w.mu.Lock()
		w.locals["db-s1"] = w.locals["db-s2"]
		w.mu.Unlock()
		rep = w.detect(0)[0]
		for _, takeover := range []bool{false, true} {
			_, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal, Takeover: takeover})
			if rep.State != recovery.OtherShard || !errors.Is(err, shardway.ErrExists) || !strings.Contains(err.Error(), `"s2"`) {
				t.Errorf("the database of another shard: %s, %v", rep.State, err)
			}
		}
		w.wantOwned("refused", "db-s2", "[100, 200) online")
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[1], Force: true, Gone: true}); err != nil {
			t.Fatal(err)
		}
		rep = w.detect(0)[0]
		if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal}); !errors.Is(err, store.ErrMapsDiffer) {
			t.Errorf("the database of a shard that is gone: %v", err)
		}
		if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal, Takeover: true}); !errors.Is(err, store.ErrMapsDiffer) {
			t.Errorf("keeping the map of another shard: %v", err)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal, Takeover: true})
		w.wantOwned("taken over", "db-s1", "[0, 100) online")
		w.checkClean("taken over")
	})
}

// TestLostGlobalStore brings everything back from the shards' databases alone:
// a new, empty global store, maps under their ids, shards, mappings.
func TestLostGlobalStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		for i := range 3 {
			w.add(i, span(int64(i)*10, int64(i)*10+10))
		}
		want := w.published()
		deployer, ok := w.global.(store.Deployer)
		if !ok {
			t.Fatal("the global store cannot be replaced")
		}
		old, err := w.global.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := deployer.Deploy(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		a := recovery.Attach{Map: "customers", Location: at("db-s1")}
		if _, err := w.r.Attach(t.Context(), a); !errors.Is(err, shardway.ErrForeignStore) || !strings.Contains(err.Error(), old.ID) {
			t.Errorf("attaching a foreign database: %v", err)
		}
		a.Adopt = old.ID
		if _, err := w.r.Attach(t.Context(), a); !errors.Is(err, shardway.ErrMapNotFound) {
			t.Errorf("attaching to a map that is lost: %v", err)
		}
		a.RestoreMap = true
		for _, dry := range []bool{true, false} {
			for _, address := range []string{"db-s1", "db-s2", "db-s3"} {
				a.Location, a.DryRun = at(address), dry
				if _, err := w.r.Attach(t.Context(), a); err != nil {
					t.Fatalf("dry run %t: %v", dry, err)
				}
			}
		}
		if m, err := w.c.ShardMap(t.Context(), "customers"); err != nil || m.ID != w.m.ID {
			t.Errorf("the map is %+v, %v", m, err)
		}
		w.wantPublished("attached")
		w.rebuildGlobal("rebuilt")
		w.wantPublished("rebuilt", want...)
		w.checkClean("rebuilt")
	})
}

// TestReportJSON saves reports and reads them again: the same value, the same
// bytes, and every damage is an error that changes nothing.
func TestReportJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(memory(t), shardway.RangeMap)
	plantMix(w)
	rep := w.detect(0)[0]
	text, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var read recovery.Report
	if err := json.Unmarshal(text, &read); err != nil || !read.Same(rep) {
		t.Fatalf("read %+v, %v", read, err)
	}
	again, err := json.MarshalIndent(read, "", "  ")
	if diff := cmp.Diff(string(text), string(again)); diff != "" || err != nil {
		t.Errorf("written again: %v\n%s", err, diff)
	}
	for name, change := range map[string][2]string{
		"a newer version": {`"version": 1`, `"version": 2`},
		"another field":   {`"state"`, `"mood"`},
		"a bad id":        {rep.Differences[0].Global.Mapping.String(), "xyz"},
		"a bad status":    {`"status": "online"`, `"status": "asleep"`},
		"a bad key":       {`"low_bytes": "8000000000000000"`, `"low_bytes": "80"`},
		"a bad kind":      {`"kind": "range"`, `"kind": "ring"`},
		"a bad key kind":  {`"key": "int64"`, `"key": "int65"`},
		"out of order":    {`"low_bytes": "8000000000000000"`, `"low_bytes": "8000000000000fff"`},
		"cut":             {"}", ""},
	} {
		damaged := strings.Replace(string(text), change[0], change[1], 1)
		if damaged == string(text) {
			t.Fatalf("%s: nothing to damage", name)
		}
		kept := rep
		if err := json.Unmarshal([]byte(damaged), &kept); err == nil || !kept.Same(rep) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadInput gives resolutions what they cannot use: a typed error that names
// it, and nothing has changed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(memory(t), shardway.RangeMap)
	plantMix(w)
	rep := w.detect(0)[0]
	before := w.everything()
	stale := rep
	stale.Differences = slices.Clone(rep.Differences)[1:]
	for name, c := range map[string]struct {
		res  recovery.Resolution
		want error
		text string
	}{
		"no report":         {recovery.Resolution{Keep: recovery.KeepLocal}, shardway.ErrInvalid, "report"},
		"unknown side":      {recovery.Resolution{Report: rep, Keep: 9}, shardway.ErrInvalid, "side to keep"},
		"stale":             {recovery.Resolution{Report: stale, Keep: recovery.KeepLocal}, shardway.ErrStale, "compared"},
		"range elsewhere":   {recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: span(900, 901), Keep: recovery.KeepLocal}}}, shardway.ErrInvalid, "[900, 901)"},
		"overlap":           {recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: span(0, 10)}, {Range: span(5, 20)}}}, shardway.ErrInvalid, "[5, 20)"},
		"empty range":       {recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: span(10, 10)}}}, shardway.ErrInvalid, "range"},
		"another key kind":  {recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: shardway.RangeFrom(shardway.Int32Key(1))}}}, shardway.ErrInvalid, "int64"},
		"unknown choice":    {recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: span(0, 10), Keep: 7}}}, shardway.ErrInvalid, "[0, 10)"},
		"shard that is not": {recovery.Resolution{Report: elsewhere(rep), Keep: recovery.KeepLocal}, shardway.ErrShardNotFound, ""},
	} {
		if _, err := w.r.Resolve(t.Context(), c.res); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
	if diff := cmp.Diff(before, w.everything()); diff != "" {
		t.Errorf("something has changed:\n%s", diff)
	}
	if _, err := w.r.Detect(t.Context(), w.m, 5); !errors.Is(err, shardway.ErrShardNotFound) {
		t.Errorf("an unknown shard: %v", err)
	}
	if _, err := w.r.Detect(t.Context(), shardway.ShardMap{ID: 5, Name: "none"}); !errors.Is(err, shardway.ErrMapNotFound) {
		t.Errorf("an unknown map: %v", err)
	}
	if _, err := recovery.New(nil, nil, nil, recovery.Config{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("no stores: %v", err)
	}
}

func elsewhere(rep recovery.Report) recovery.Report {
	rep.Shard.ID = 5
	return rep
}

// TestTwoOwners refuses to give a shard a key that another one has by its own
// local map, also one that cannot be asked.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(memory(t), shardway.RangeMap)
	w.add(1, span(200, 300))
	w.plantLocal(0, nil, one(w.mapping(0, span(250, 260), shardway.Online)))
	rep := w.wantDifferences("planted", 0, "[250, 260) both global s2")
	_, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
	var owners *recovery.OwnersError
	if !errors.As(err, &owners) || owners.Shard != "s1" || owners.Other != "s2" || owners.Range != span(200, 300) || !errors.Is(err, store.ErrMapsDiffer) {
		t.Errorf("two owners: %v", err)
	}
	w.shut("db-s3", true)
	w.plantLocal(0, nil, one(w.mapping(0, span(700, 800), shardway.Online)))
	rep = w.detect(0)[0]
	res := recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: span(700, 800), Keep: recovery.KeepLocal}}}
	if _, err := w.r.Resolve(t.Context(), res); !errors.As(err, &owners) || !slices.Equal(owners.Lost, []string{"s3"}) || !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("one cannot be asked: %v", err)
	}
	w.wantPublished("refused", "[200, 300) s2 online")
	res.IgnoreUnreachable = true
	w.resolve(res)
	w.wantPublished("told to ignore it", "[200, 300) s2 online", "[700, 800) s1 online")

	// VAL-04: a rebuild of many of which one is dead does the others and names it.
	w.lost("db-s2")
	all, err := w.r.RebuildLocal(t.Context(), w.m, recovery.Rebuild{IgnoreUnreachable: true})
	if err != nil || all[0].Err != nil || all[1].Err != nil || !errors.Is(all[2].Err, shardway.ErrUnavailable) {
		t.Errorf("rebuilt %v, %v", all, err)
	}
	w.wantOwned("rebuilt", "db-s2", "[200, 300) online")
}

// TestPendingIsNoDifference leaves an operation in the middle: its rows are
// pending, those of others are compared; a rebuild says that it is not whole; a
// locked mapping needs force.
func TestPendingIsNoDifference(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		ms := w.add(0, span(0, 100), span(100, 200))
		v := &victim{rig: r, at: 3, kind: killBefore} // prepared, and s1 has split
		dying := newCatalog(t, victimGlobal{r.global, v}, v, catalog.Config{})
		if _, err := dying.Do(t.Context(), catalog.SplitMapping{Mapping: ms[0], At: k(50)}); err == nil {
			t.Fatal("the client did not die")
		}
		w.plantLocal(0, one(ms[1]), nil)
		rep := w.wantDifferences("pending", 0, "[100, 200) global only")
		if len(rep.Pending) != 2 || rep.Pending[0].Range != span(0, 50) || rep.Pending[1].Range != span(50, 100) || rep.Pending[0].Operation == 0 {
			t.Errorf("pending pieces: %+v", rep.Pending)
		}
		done, err := w.r.RebuildLocal(t.Context(), w.m, recovery.Rebuild{DryRun: true})
		if err != nil || !errors.Is(done[0].Err, shardway.ErrPending) || done[1].Err != nil || done[2].Err != nil {
			t.Errorf("rebuilding what an operation holds: %v, %+v", err, done)
		}
		if _, err := w.c.Recover(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		do(t, w.c, catalog.LockMapping{Mapping: ms[1], Lock: shardway.Lock{Token: "t", Owner: "ann"}})
		rep = w.wantDifferences("recovered", 0, "[100, 200) global only")
		if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal}); !errors.Is(err, shardway.ErrMappingLocked) {
			t.Errorf("a locked mapping: %v", err)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal, Force: true})
		w.wantPublished("by force", "[0, 50) s1 online", "[50, 100) s1 online")
		w.checkClean("by force")
	})
}

// TestDetachBlocked detaches a shard whose dead database an operation of a dead
// client waits for: the operation is taken back without it, and the other shard
// is free (fault 10 of the model).
func TestDetachBlocked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		m := w.add(0, span(0, 100))[0]
		off := do(t, w.c, catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Offline)}).Mappings[0]
		v := &victim{rig: r, at: 4, kind: killBefore} // both shards have changed
		dying := newCatalog(t, victimGlobal{r.global, v}, v, catalog.Config{Lease: 100e6})
		if _, err := dying.Do(t.Context(), catalog.UpdateMapping{Mapping: off, ShardID: &w.s[1].ID}); err == nil {
			t.Fatal("the client did not die")
		}
		w.shut("db-s1", true)
		for { // until the dead client's lease is over
			done, err := w.c.EndWithout(t.Context(), w.s[0])
			if err != nil {
				t.Fatal(err)
			}
			if len(done) == 1 && done[0].Outcome == store.Undone {
				break
			}
		}
		w.wantOwned("taken back", "db-s2")
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0], Gone: true}); err != nil {
			t.Fatal(err)
		}
		w.wantPublished("detached")
		w.add(1, span(0, 100))
		w.checkClean("the other shard")
	})
}

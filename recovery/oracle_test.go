package recovery_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

// keys of the random worlds run from 0 to lastKey.
const lastKey = 40

// ownership is the oracle's view: for each key the row that holds it, in the
// global map and in each local map. It knows keys, not ranges.
type ownership struct {
	Global [lastKey]string
	Local  [3][lastKey]string
}

func (w *world) ownership(ids bool) (o ownership) {
	w.t.Helper()
	text := func(m shardway.Mapping) string {
		name := "?"
		for _, s := range w.s {
			if s.ID == m.ShardID {
				name = s.Name
			}
		}
		if ids {
			return fmt.Sprint(name, " ", m.Status, " ", m.ID)
		}
		return fmt.Sprint(name, " ", m.Status)
	}
	holds := func(m shardway.Mapping, key int64) bool {
		if w.m.Kind == shardway.ListMap {
			return m.Range.Low == k(key)
		}
		return m.Range.Contains(k(key))
	}
	for m, err := range w.c.Mappings(w.t.Context(), store.MappingQuery{Map: w.m}) {
		if err != nil {
			w.t.Fatal(err)
		}
		for key := range o.Global {
			if holds(m, int64(key)) {
				if o.Global[key] != "" {
					w.t.Errorf("key %d has two mappings in the global map", key)
				}
				o.Global[key] = text(m)
			}
		}
	}
	for i := range w.s {
		maps, err := w.local(i).Read(w.t.Context(), w.m.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range maps[0].Mappings {
			for key := range o.Local[i] {
				if holds(m, int64(key)) {
					if o.Local[i][key] != "" {
						w.t.Errorf("key %d has two mappings in the local map of %s", key, w.s[i].Name)
					}
					o.Local[i][key] = text(m)
				}
			}
		}
	}
	return o
}

// disturb changes a local map at random: rows go, rows come under new ids,
// under ids that the global map uses for something else, and from other shards.
func (w *world) disturb(rnd *rand.Rand, shard int, all []shardway.Mapping) {
	w.t.Helper()
	maps, err := w.local(shard).Read(w.t.Context(), w.m.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	var remove, add []shardway.Mapping
	stay := slices.DeleteFunc(maps[0].Mappings, func(m shardway.Mapping) bool {
		if rnd.IntN(2) == 0 {
			remove = append(remove, m)
			return true
		}
		return false
	})
	for range rnd.IntN(6) {
		low := rnd.Int64N(lastKey - 1)
		r := span(low, low+1+rnd.Int64N(lastKey-low))
		if w.m.Kind == shardway.ListMap {
			r = point(low)
		}
		m := w.mapping(shard, r, shardway.MappingStatus(rnd.IntN(2)))
		switch donor := all[rnd.IntN(len(all))]; rnd.IntN(4) {
		case 0: // as it was once, or as it is on another shard
			m.ID, m.Range = donor.ID, donor.Range
		case 1: // one id with two meanings
			m.ID = donor.ID
		}
		taken := slices.ContainsFunc(slices.Concat(stay, add), func(other shardway.Mapping) bool {
			return other.ID == m.ID || other.Range.Low == m.Range.Low || w.m.Kind == shardway.RangeMap && other.Range.Intersects(m.Range)
		})
		if !taken {
			add = append(add, m)
		}
	}
	w.plantLocal(shard, remove, add)
}

// TestRandomDifferences resolves random differences in random parts, and
// compares what has come of every single key with an oracle that knows keys
// alone: what is chosen goes to the chosen side, everything else stays, a key
// that would get a second owner is refused and nothing has changed. At the end
// everything is rebuilt from one side: no difference, no key with two owners.
func TestRandomDifferences(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		runs := 3
		if t.Name() == "TestRandomDifferences/memory" {
			runs = 400
		}
		for seed := range runs {
			kind := []shardway.MapKind{shardway.RangeMap, shardway.ListMap}[seed%2]
			rr := r
			if runs > 3 {
				rr = memory(t)
			} else if seed > 0 {
				break // one world for each database is enough there
			}
			randomRun(t, newWorld(rr, kind), uint64(seed))
		}
	})
}

func randomRun(t *testing.T, w *world, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	var all []shardway.Mapping
	for low := int64(0); low < lastKey; low += 5 {
		r := span(low, low+1+rnd.Int64N(5))
		if w.m.Kind == shardway.ListMap {
			r = point(low)
		}
		all = append(all, w.add(rnd.IntN(3), r)...)
	}
	for i := range w.s {
		w.disturb(rnd, i, all)
	}
	for round := range 4 {
		what := fmt.Sprintf("seed %d, round %d", seed, round)
		shard := rnd.IntN(3)
		rep := w.detect(shard)[0]
		w.checkPieces(what, shard, rep)
		res := recovery.Resolution{Report: rep, Keep: recovery.Keep(rnd.IntN(3))}
		for _, d := range rep.Differences {
			if rnd.IntN(2) == 0 {
				res.Choices = append(res.Choices, recovery.Choice{Range: d.Range, Keep: recovery.Keep(rnd.IntN(3))})
			}
		}
		before := w.ownership(false)
		want, double := expected(w, before, shard, res)
		_, err := w.r.Resolve(t.Context(), res)
		var owners *recovery.OwnersError
		if double != (err != nil) || err != nil && (!errors.As(err, &owners) || owners.Shard != rep.Shard.Name) {
			t.Fatalf("%s: two owners is %v, the error %v", what, double, err)
		}
		if double {
			want = before
		}
		if diff := cmp.Diff(want, w.ownership(false)); diff != "" {
			t.Fatalf("%s: resolving %v with %v %v (-want +got):\n%s", what, differences(rep), res.Keep, res.Choices, diff)
		}
	}
	side := "global"
	rebuild := w.r.RebuildLocal
	if seed%3 == 0 {
		side, rebuild = "local", w.r.RebuildGlobal
	}
	before := w.ownership(false)
	done, err := rebuild(t.Context(), w.m, recovery.Rebuild{})
	if err != nil {
		t.Fatal(err)
	}
	w.checkRebuilt(fmt.Sprintf("seed %d, %s side", seed, side), side, before, done)
}

// checkPieces compares the pieces of a report with the keys: each key stands in
// a piece if and only if the two sides have different rows for it.
func (w *world) checkPieces(what string, shard int, rep recovery.Report) {
	w.t.Helper()
	o := w.ownership(true)
	for key := range o.Global {
		want := ""
		switch g, l := o.Global[key], o.Local[shard][key]; {
		case g == l, l == "" && (len(g) < 2 || g[:2] != rep.Shard.Name):
		case l == "":
			want = "global only"
		case g == "":
			want = "local only"
		default:
			want = "both"
		}
		got := ""
		for _, d := range rep.Differences {
			if w.m.Kind == shardway.ListMap && d.Range.Low == k(int64(key)) || w.m.Kind == shardway.RangeMap && d.Range.Contains(k(int64(key))) {
				if got != "" {
					w.t.Fatalf("%s: key %d stands in two pieces", what, key)
				}
				got = d.Place()
			}
		}
		if got != want {
			w.t.Fatalf("%s: key %d of %s is %q, want %q: %v", what, key, rep.Shard.Name, got, want, differences(rep))
		}
	}
}

// expected is what a resolution should make of every key, and whether it would
// give one of them a second owner.
func expected(w *world, o ownership, shard int, res recovery.Resolution) (want ownership, double bool) {
	want = o
	name := w.s[shard].Name
	for key := range o.Global {
		keep, listed := res.Keep, false
		for _, d := range res.Report.Differences {
			point := w.m.Kind == shardway.ListMap
			if point && d.Range.Low == k(int64(key)) || !point && d.Range.Contains(k(int64(key))) {
				listed = true
				for _, ch := range res.Choices {
					if ch.Range == d.Range {
						keep = ch.Keep
					}
				}
			}
		}
		if !listed || keep == recovery.Ignore {
			continue
		}
		truth := o.Global[key]
		if keep == recovery.KeepLocal {
			truth = o.Local[shard][key]
			want.Global[key] = truth
		}
		if len(truth) > 1 && truth[:2] != name { // of another shard
			truth = ""
		}
		want.Local[shard][key] = truth
		for other := range o.Local {
			double = double || truth != "" && other != shard && o.Local[other][key] != ""
		}
	}
	return want, double
}

// checkRebuilt demands what a rebuild promises: the side that was taken for
// true is as it was, the other one says the same, and only keys that two local
// maps claim, and that are named, are left.
func (w *world) checkRebuilt(what, side string, before ownership, done []recovery.Rebuilt) {
	w.t.Helper()
	after := w.ownership(false)
	for key := range after.Global {
		var owners, claimed []string
		for i := range w.s {
			if after.Local[i][key] != "" {
				owners = append(owners, after.Local[i][key])
			}
			if before.Local[i][key] != "" {
				claimed = append(claimed, before.Local[i][key])
			}
		}
		global := []string{after.Global[key]}
		if after.Global[key] == "" {
			global = nil
		}
		switch {
		case side == "global" && (after.Global[key] != before.Global[key] || !slices.Equal(owners, global)):
			w.t.Errorf("%s: key %d: global %q, was %q, local %q", what, key, after.Global[key], before.Global[key], owners)
		case side == "local" && len(claimed) < 2 && (!slices.Equal(owners, claimed) || !slices.Equal(owners, global)):
			w.t.Errorf("%s: key %d: global %q, local %q, was %q", what, key, after.Global[key], owners, claimed)
		case side == "local" && len(claimed) > 1:
			w.checkNamed(what, key, done)
		}
	}
	for _, b := range done {
		if b.Err != nil && (side == "global" || len(b.Conflicts) == 0) {
			w.t.Errorf("%s: shard %q: %v", what, b.Shard.Name, b.Err)
		}
	}
	if side == "global" {
		w.checkClean(what)
	}
}

func (w *world) checkNamed(what string, key int, done []recovery.Rebuilt) {
	w.t.Helper()
	named := 0
	for _, b := range done {
		for _, c := range b.Conflicts {
			if w.m.Kind == shardway.ListMap && c.Range.Low == k(int64(key)) || w.m.Kind == shardway.RangeMap && c.Range.Contains(k(int64(key))) {
				named++
			}
		}
		if (b.Err != nil) != (len(b.Conflicts) > 0) {
			w.t.Errorf("%s: shard %q has conflicts %v and the error %v", what, b.Shard.Name, b.Conflicts, b.Err)
		}
	}
	if named == 0 {
		w.t.Errorf("%s: key %d has two owners, and nobody names it", what, key)
	}
}

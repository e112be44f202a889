package recovery_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

func (w *world) wantDifferences(what string, shard int, want ...string) recovery.Report {
	w.t.Helper()
	rep := w.detect(shard)[0]
	if diff := cmp.Diff(want, differences(rep)); diff != "" {
		w.t.Errorf("%s: differences of %q (-want +got):\n%s", what, rep.Shard.Name, diff)
	}
	return rep
}

func (w *world) wantOwned(what, address string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.owned(address)); diff != "" {
		w.t.Errorf("%s: local map at %s (-want +got):\n%s", what, address, diff)
	}
}

func (w *world) wantPublished(what string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.published()); diff != "" {
		w.t.Errorf("%s: global map (-want +got):\n%s", what, diff)
	}
}

// TestDetachAttach is V1: detach, then attach, restores the shard and, after a
// resolution, its mappings with their statuses. Between the two, no route from
// before is valid: the local map has other ids.
func TestDetachAttach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		old := w.add(0, span(0, 10), span(10, 20))
		do(t, w.c, catalog.UpdateMapping{Mapping: old[1], Status: ptr(shardway.Offline)})
		w.add(1, span(20, 30))
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0]}); !errors.Is(err, shardway.ErrMappingOnline) {
			t.Errorf("detaching a shard with online mappings: %v", err)
		}
		w.wantPublished("after a refusal", "[0, 10) s1 online", "[10, 20) s1 offline", "[20, 30) s2 online")
		res, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0], Force: true, Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Mappings) != 2 || res.Mappings[0].ID != old[0].ID {
			t.Errorf("detached mappings: %v", res.Mappings)
		}
		w.wantPublished("detached", "[20, 30) s2 online")
		w.wantOwned("detached", "db-s1", "[0, 10) online", "[10, 20) offline")
		maps, err := w.localMaps("db-s1")
		if err != nil || maps[0].Mappings[0].ID == old[0].ID || maps[0].Shard.Version == w.s[0].Version {
			t.Errorf("the local map keeps routes valid: %v, %v", maps, err)
		}
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0], Force: true}); !errors.Is(err, shardway.ErrShardNotFound) {
			t.Errorf("detaching twice: %v", err)
		}

		attached, err := w.r.Attach(t.Context(), recovery.Attach{Map: "customers", Location: at("DB-S1")})
		if err != nil {
			t.Fatal(err)
		}
		if s := attached.Shards[0]; s.ID != w.s[0].ID || s.Name != "s1" || s.Location.Servers[0].Address != "db-s1" {
			t.Errorf("attached %+v", s)
		}
		if _, err := w.r.Attach(t.Context(), recovery.Attach{Map: "customers", Location: at("db-s1")}); !errors.Is(err, shardway.ErrExists) {
			t.Errorf("attaching twice: %v", err)
		}
		rep := w.wantDifferences("attached", 0, "[0, 10) local only", "[10, 20) local only")
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
		w.wantPublished("resolved", "[0, 10) s1 online", "[10, 20) s1 offline", "[20, 30) s2 online")
		w.checkClean("resolved")
	})
}

func ptr[T any](v T) *T { return &v }

// What stands elsewhere of the checklist: C1, whole lives of maps under several
// logins, is TestGrants of cmd/shardway. C2, counters after known operations,
// is with those who count: TestLookupModes of the root package and the pools of
// sqlshard. C3 with killed servers and processes is package internal/chaos; C3
// and C4 in one process are TestLoad here.

// TestCompare is V2 to V9: what the pieces are.
func TestCompare(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		ms := w.add(0, span(0, 100), span(100, 200), span(300, 400))
		other := w.add(1, span(200, 300))[0]
		w.checkClean("V2")

		again := ms[0]
		again.ID = shardway.MappingID(store.NewID())
		w.plantLocal(0, one(ms[0]), one(again))
		w.wantDifferences("V3, the same range under another id", 0, "[0, 100) both")
		w.plantLocal(0, one(again), one(ms[0]))

		narrow := ms[1]
		narrow.Range = span(125, 175)
		w.plantLocal(0, one(ms[1]), one(narrow))
		w.wantDifferences("V5, the global range is wider", 0, "[100, 125) global only", "[175, 200) global only")
		w.plantLocal(0, one(narrow), one(ms[1]))

		w.plantLocal(0, one(ms[2]), nil)
		w.wantDifferences("V7, a range is missing", 0, "[300, 400) global only")
		wide := ms[2]
		wide.Range = span(290, 500)
		w.plantLocal(0, nil, one(wide))
		w.wantDifferences("V4 and V9, the local range is wider and reaches into that of another shard", 0,
			"[290, 300) both global s2", "[400, 500) local only")
		extra := w.mapping(0, span(600, 700), shardway.Online)
		w.plantLocal(0, one(wide), []shardway.Mapping{ms[2], extra})
		w.wantDifferences("V6, an additional range", 0, "[600, 700) local only")
		w.plantLocal(0, one(extra), nil)

		off := ms[2]
		off.Status = shardway.Offline
		w.plantLocal(0, one(ms[2]), one(off))
		w.wantDifferences("another status", 0, "[300, 400) both global online local offline")
		w.plantLocal(0, one(off), one(ms[2]))

		// Moved away, and the source restored to the day before.
		w.plantLocal(0, nil, one(shardway.Mapping{ID: other.ID, MapID: other.MapID, Range: other.Range, ShardID: w.s[0].ID, Status: shardway.Online}))
		w.wantDifferences("another shard", 0, "[200, 300) both global s2")
		w.wantDifferences("another shard, on the right one", 1)
	})
}

// TestComparePoints is V8, and V16 with resolutions: point maps.
func TestComparePoints(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.ListMap)
		ms := w.add(0, point(1), point(2), point(3))
		w.add(1, point(10))
		w.checkClean("V2")
		stale := w.mapping(0, point(10), shardway.Online)
		extra := w.mapping(0, point(7), shardway.Offline)
		off := ms[1]
		off.Status = shardway.Offline
		w.plantLocal(0, ms[1:], []shardway.Mapping{off, stale, extra})
		want := []string{"2 both global online local offline", "3 global only", "7 local only", "10 both global s2"}
		rep := w.wantDifferences("V8", 0, want...)

		// V16: a point goes to the side that is chosen for it, and no other.
		_, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
		var owners *recovery.OwnersError
		if !errors.As(err, &owners) || owners.Shard != "s1" || owners.Other != "s2" || !owners.Point || owners.Range.Low != k(10) {
			t.Errorf("a point with two owners: %v", err)
		}
		w.wantDifferences("after a refusal", 0, want...)
		w.resolve(recovery.Resolution{Report: rep, Choices: []recovery.Choice{{Range: point(7), Keep: recovery.KeepLocal}, {Range: point(10), Keep: recovery.KeepGlobal}}})
		w.wantPublished("V16", "1 s1 online", "2 s1 online", "3 s1 online", "7 s1 offline", "10 s2 online")
		rep = w.wantDifferences("V16", 0, want[:2]...)
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal})
		w.wantOwned("V16", "db-s1", "1 online", "2 online", "3 online", "7 offline")
		w.checkClean("V16")
	})
}

// TestKeep is V10 and V11: global → local and local → global; afterwards there
// is no difference, and the side that was kept is as it was, id by id.
func TestKeep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		for name, keep := range map[string]recovery.Keep{"v10": recovery.KeepGlobal, "v11": recovery.KeepLocal} {
			kind := catalog.CreateShardMap{Name: name, Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
			w := &world{rig: r, c: r.client(catalog.Config{}), r: r.recovery()}
			w.m = do(t, w.c, kind).Map
			w.s = do(t, w.c, catalog.AddShard{Map: w.m, Name: "s1", Location: at("db-" + name)}).Shards
			ms := w.add(0, span(0, 100), span(100, 200), span(200, 300))
			local := []shardway.Mapping{w.mapping(0, span(50, 150), shardway.Online), w.mapping(0, span(400, 500), shardway.Offline)}
			w.plantLocal(0, ms[:2], local)
			rep := w.wantDifferences(name, 0, "[0, 50) global only", "[50, 100) both", "[100, 150) both", "[150, 200) global only", "[400, 500) local only")
			preview, err := w.r.Preview(t.Context(), recovery.Resolution{Report: rep, Keep: keep})
			if err != nil || preview.Nothing() {
				t.Errorf("%s: preview %+v, %v", name, preview, err)
			}
			w.wantDifferences(name+" previewed", 0, differences(rep)...)
			e := w.resolve(recovery.Resolution{Report: rep, Keep: keep})
			if keep == recovery.KeepGlobal {
				w.wantOwned(name, "db-"+name, "[0, 100) online", "[100, 200) online", "[200, 300) online")
				if len(e.GlobalRemoved)+len(e.GlobalAdded) > 0 {
					t.Errorf("%s: the global map has changed: %+v", name, e)
				}
			} else {
				w.wantPublished(name, "[50, 150) s1 online", "[200, 300) s1 online", "[400, 500) s1 offline")
				if len(e.LocalRemoved)+len(e.LocalAdded) > 0 {
					t.Errorf("%s: the local map has changed: %+v", name, e)
				}
			}
			w.checkClean(name)
			if _, err := w.r.Resolve(t.Context(), recovery.Resolution{Report: rep, Keep: keep}); !errors.Is(err, shardway.ErrStale) {
				t.Errorf("%s: resolving again what is resolved: %v", name, err)
			}
		}
	})
}

// TestChosenRanges is V14 and V15: parts of the differences, other ones stay,
// and what is equal is kept whatever is chosen.
func TestChosenRanges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		ms := w.add(0, span(0, 100), span(100, 200))
		w.plantLocal(0, one(ms[0]), one(w.mapping(0, span(0, 80), shardway.Offline)))
		rep := w.wantDifferences("planted", 0, "[0, 80) both global online local offline", "[80, 100) global only")
		if e := w.resolve(recovery.Resolution{Report: rep}); !e.Nothing() {
			t.Errorf("nothing chosen: %+v", e)
		}
		w.wantDifferences("nothing chosen", 0, differences(rep)...)
		w.resolve(recovery.Resolution{Report: rep, Choices: []recovery.Choice{
			{Range: span(0, 40), Keep: recovery.KeepLocal}, {Range: span(40, 60), Keep: recovery.KeepGlobal},
		}})
		w.wantPublished("parts", "[0, 40) s1 offline", "[40, 60) s1 online", "[60, 100) s1 online", "[100, 200) s1 online")
		w.wantOwned("parts", "db-s1", "[0, 40) offline", "[40, 60) online", "[60, 80) offline", "[100, 200) online")
		rep = w.wantDifferences("parts", 0, "[60, 80) both global online local offline", "[80, 100) global only")
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepGlobal})
		w.checkClean("the rest")
		w.wantPublished("the rest", "[0, 40) s1 offline", "[40, 60) s1 online", "[60, 100) s1 online", "[100, 200) s1 online")
	})
}

// TestRebuildGlobal is V12 and V13: the global map from the local ones, also
// when it holds garbage that intersects them, for range and list maps.
func TestRebuildGlobal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		var all []shardway.Mapping
		for i := range 3 {
			all = append(all, w.add(i, span(int64(i)*100, int64(i)*100+50), span(int64(i)*100+50, int64(i)*100+100))...)
		}
		want := w.published()
		w.plantGlobal(all, nil)
		w.wantPublished("emptied")
		w.rebuildGlobal("V12")
		w.wantPublished("V12", want...)
		w.checkClean("V12")

		w.plantGlobal(all[:5], []shardway.Mapping{
			w.mapping(2, span(0, 170), shardway.Online), w.mapping(1, span(170, 240), shardway.Offline), w.mapping(0, span(1000, 2000), shardway.Online),
		})
		w.rebuildGlobal("V13")
		w.wantPublished("V13", want...)
		w.checkClean("V13")
	})
}

func (w *world) rebuildGlobal(what string) {
	w.t.Helper()
	all, err := w.r.RebuildGlobal(w.t.Context(), w.m, recovery.Rebuild{})
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	for _, one := range all {
		if one.Err != nil {
			w.t.Errorf("%s: shard %q: %v", what, one.Shard.Name, one.Err)
		}
	}
}

// TestRebuildGlobalPoints is V15 for rebuilds: list maps.
func TestRebuildGlobalPoints(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.ListMap)
		var all []shardway.Mapping
		for i := range 12 {
			all = append(all, w.add(i%3, point(int64(i)))...)
		}
		want := w.published()
		w.plantGlobal(all, []shardway.Mapping{w.mapping(1, point(0), shardway.Online), w.mapping(0, point(99), shardway.Online)})
		w.rebuildGlobal("V15")
		w.wantPublished("V15", want...)
		w.checkClean("V15")
	})
}

// TestGeoFailover is V17: the database is renamed in another region, the old
// location is detached, the new one attached from its local map, which has the
// new location from then on, and the differences are resolved. A local map of
// an older version is in TestGeoFailoverOldStore.
func TestGeoFailover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		w.add(0, span(0, 100), span(100, 200))
		w.add(1, span(200, 300))
		want := w.published()
		r.renamed("db-s1", "west-s1")
		if rep := w.detect(); rep[0].State != recovery.Unreachable || !rep[1].Clean() || !rep[2].Clean() {
			t.Errorf("one unreachable shard: %v %v %v", rep[0].State, rep[1].State, rep[2].State)
		}
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0], Force: true}); !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("detaching what cannot be reached: %v", err)
		}
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: w.s[0], Force: true, Gone: true}); err != nil {
			t.Fatal(err)
		}
		w.wantPublished("detached", "[200, 300) s2 online")
		if _, err := w.r.Attach(t.Context(), recovery.Attach{Map: "customers", Location: at("west-s1")}); err != nil {
			t.Fatal(err)
		}
		rep := w.wantDifferences("attached", 0, "[0, 100) local only", "[100, 200) local only")
		if rep.Local.Location.Servers[0].Address != "west-s1" || len(rep.Fields) > 0 {
			t.Errorf("the local map has not got the new location: %+v, %v", rep.Local, rep.Fields)
		}
		w.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
		w.wantPublished("resolved", want...)
		w.checkClean("resolved")
	})
}

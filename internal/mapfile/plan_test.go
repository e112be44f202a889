package mapfile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
)

// world is a file that changes as a catalog would change it, and refuses what a
// catalog would refuse.
type world struct{ mapfile.File }

func (w *world) do(a mapfile.Action) error {
	i := slices.IndexFunc(w.Maps, func(m mapfile.Map) bool { return m.Name == a.Map })
	if a.Kind == mapfile.CreateMap {
		w.Maps = append(w.Maps, mapfile.Map{Name: a.Map, Kind: a.MapKind, KeyKind: a.KeyKind})
		return refuse(i >= 0, "map exists")
	}
	if i < 0 {
		return errors.New("no such map")
	}
	m := &w.Maps[i]
	if len(a.Mappings) == 0 {
		return doShard(m, a)
	}
	return doMapping(m, a)
}

func refuse(is bool, why string) error {
	if is {
		return errors.New(why)
	}
	return nil
}

func doShard(m *mapfile.Map, a mapfile.Action) error {
	name := a.Shard.Name
	if a.Kind == mapfile.RenameShard {
		name = a.From
	}
	i := slices.IndexFunc(m.Shards, func(s mapfile.Shard) bool { return s.Name == name })
	used := slices.ContainsFunc(m.Mappings, func(mp mapfile.Mapping) bool { return mp.Shard == name })
	if (i >= 0) == (a.Kind == mapfile.AddShard) {
		return errors.New("shard exists or does not")
	}
	if a.Kind == mapfile.DeleteShard {
		m.Shards = slices.Delete(m.Shards, i, i+1)
		return refuse(used, "in use")
	}
	for j, s := range m.Shards {
		if j != i && (s.Name == a.Shard.Name || s.Location.Overlaps(a.Shard.Location)) {
			return errors.New("taken by " + s.Name)
		}
	}
	if i < 0 {
		m.Shards = append(m.Shards, a.Shard)
		return nil
	}
	m.Shards[i] = a.Shard
	for j := range m.Mappings {
		if m.Mappings[j].Shard == name {
			m.Mappings[j].Shard = a.Shard.Name
		}
	}
	return nil
}

func doMapping(m *mapfile.Map, a mapfile.Action) error {
	takes := func(name string) error {
		s, ok := m.Shard(name)
		return refuse(!ok || s.Status == shardway.ShardOffline, "shard takes nothing: "+name)
	}
	if a.Kind == mapfile.Add {
		for _, n := range a.Mappings {
			for _, is := range m.Mappings {
				if m.Kind == shardway.ListMap && is.Range.Low == n.Range.Low || m.Kind == shardway.RangeMap && is.Range.Intersects(n.Range) {
					return errors.New("overlap")
				}
			}
			if err := takes(n.Shard); err != nil {
				return err
			}
			m.Mappings = append(m.Mappings, n)
		}
		return nil
	}
	i := slices.IndexFunc(m.Mappings, func(is mapfile.Mapping) bool { return cmp.Equal(is, a.Mappings[0], compareKeys) })
	if i < 0 {
		return fmt.Errorf("no such mapping: %+v", a.Mappings[0])
	}
	is := &m.Mappings[i]
	switch a.Kind {
	case mapfile.Delete:
		err := refuse(is.Status == shardway.Online, "online")
		m.Mappings = slices.Delete(m.Mappings, i, i+1)
		return err
	case mapfile.Status:
		is.Status = a.Status
	case mapfile.Move:
		if is.Status == shardway.Online && a.Status == shardway.Online || is.Shard != a.From {
			return errors.New("online")
		}
		is.Shard, is.Status = a.To, a.Status
		return takes(a.To)
	case mapfile.Split:
		if a.At == is.Range.Low || !is.Range.Contains(a.At) {
			return errors.New("not inside")
		}
		upper := *is
		is.Range.High, upper.Range.Low = a.At, a.At
		m.Mappings = append(m.Mappings, upper)
	case mapfile.Merge:
		j := slices.IndexFunc(m.Mappings, func(is mapfile.Mapping) bool { return cmp.Equal(is, a.Mappings[1], compareKeys) })
		if j < 0 || m.Mappings[j].Range.Low != is.Range.High || m.Mappings[j].Shard != is.Shard || m.Mappings[j].Status != is.Status {
			return errors.New("no neighbours")
		}
		is.Range.High = m.Mappings[j].Range.High
		m.Mappings = slices.Delete(m.Mappings, j, j+1)
	default:
		return errors.New("unknown action " + string(a.Kind))
	}
	return nil
}

// clone is a copy by way of the text.
func clone(t *testing.T, f mapfile.File) mapfile.File {
	t.Helper()
	return read(t, written(t, f))
}

// randomMap makes maps that share names, databases and keys often.
func randomMap(r *rand.Rand, kind shardway.MapKind) mapfile.Map {
	m := mapfile.Map{Name: "m", Kind: kind, KeyKind: shardway.KindInt64}
	places := r.Perm(5)
	for i, n := range r.Perm(5)[:1+r.IntN(4)] {
		place := n // usually the same name stands for the same database
		if r.IntN(4) == 0 {
			place = places[i] + 10
		}
		s := shard(fmt.Sprint("s", n), "sqlite", "", shardway.Server{Address: fmt.Sprint("/", place)})
		if r.IntN(6) == 0 {
			s.Location.Servers[0].Tags = map[string]string{"zone": "a"}
		}
		s.Status = shardway.ShardStatus(r.IntN(2))
		if !slices.ContainsFunc(m.Shards, func(o mapfile.Shard) bool { return o.Location.Overlaps(s.Location) }) {
			m.Shards = append(m.Shards, s)
		}
	}
	at := int64(r.IntN(3))
	for range r.IntN(7) {
		low := shardway.Int64Key(at)
		at += 1 + int64(r.IntN(3))
		mp := mapfile.Mapping{Range: shardway.RangeFrom(low), Shard: m.Shards[r.IntN(len(m.Shards))].Name, Status: shardway.MappingStatus(r.IntN(2))}
		open := r.IntN(8) == 0
		if kind == shardway.RangeMap && !open {
			mp.Range.High = shardway.Int64Key(at)
		}
		at += int64(r.IntN(2)) * int64(r.IntN(3))
		m.Mappings = append(m.Mappings, mp)
		if open && kind == shardway.RangeMap {
			break
		}
	}
	return m
}

// Between any two maps there is a plan that a catalog accepts; it ends where it
// should, begun anew after any of its changes too; a second plan is empty.
func TestPlanLeadsThere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 7))
		kind := shardway.MapKind(1 + r.IntN(2))
		from, to := mapfile.File{}, mapfile.File{Maps: []mapfile.Map{randomMap(r, kind)}}
		if r.IntN(5) > 0 {
			from.Maps = []mapfile.Map{randomMap(r, kind)}
		}
		if swapped(from, to) {
			continue // names or databases change places, which takes a third name
		}
		w := world{clone(t, from)}
		stop := r.IntN(12) // changes after which it is interrupted
		for round := 0; ; round++ {
			actions, err := mapfile.Plan(clone(t, w.File), to)
			if err != nil {
				t.Fatalf("seed %d: Plan = %v", seed, err)
			}
			if len(actions) == 0 {
				break
			}
			if round == 0 && stop < len(actions) {
				actions = actions[:stop+1]
			}
			if round > 2 {
				t.Fatalf("seed %d: a plan that never ends: %v", seed, actions)
			}
			for _, a := range actions {
				if err := w.do(a); err != nil {
					t.Fatalf("seed %d: %s: %v\nfrom\n%sto\n%sat\n%s", seed, a, err, written(t, from), written(t, to), written(t, w.File))
				}
			}
		}
		if d := mapfile.Diff(w.File, to); len(d) > 0 {
			t.Fatalf("seed %d: the plan ends elsewhere: %+v", seed, d)
		}
	}
}

// swapped reports whether a name or a database that is still in use is wanted
// for another shard.
func swapped(from, to mapfile.File) bool {
	if len(from.Maps) == 0 {
		return false
	}
	for _, is := range from.Maps[0].Shards {
		for _, want := range to.Maps[0].Shards {
			if is.Location.Overlaps(want.Location) && is.Name != want.Name {
				_, stays := to.Maps[0].Shard(is.Name)
				_, there := from.Maps[0].Shard(want.Name)
				if stays || there {
					return true
				}
			}
		}
	}
	return false
}

// TestPlanText shows plans and differences as people see them.
func TestPlanText(t *testing.T) {
	t.Parallel()
	body, err := mapfile.Read(strings.NewReader(before), "before.json")
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := mapfile.Read(strings.NewReader(after), "after.json")
	if err != nil {
		t.Fatal(err)
	}
	actions, err := mapfile.Plan(body, wanted)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range actions {
		got = append(got, fmt.Sprintf("%s moves=%v deletes=%v", a, a.Moves(), a.Deletes()))
	}
	want := []string{
		`rename shard "s3" to "s4" moves=false deletes=false`,
		`change location of shard "s2" to sqlite at /2,zone=a /2b moves=false deletes=false`,
		`split [0, 100) at 50 moves=false deletes=false`,
		`set [200, +inf) of shard "s1" offline moves=false deletes=false`,
		`delete [200, +inf) of shard "s1": its keys have no shard afterwards moves=false deletes=true`,
		`move [50, 100) from shard "s1" to "s2", offline: rows are not moved moves=true deletes=false`,
		`set [50, 100) of shard "s2" online moves=false deletes=false`,
		`add [100, 120) to shard "s2", online moves=false deletes=false`,
		`merge [50, 100) and [100, 120) moves=false deletes=false`,
		`delete shard "s5": online, sqlite at /5 moves=false deletes=true`,
		`create list map "new" of uuid keys moves=false deletes=false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the plan differs (-want +got):\n%s", diff)
	}
	var lines []string
	for _, d := range mapfile.Diff(body, wanted) {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s → %s", d.Map, d.Object, d.Name, d.Old, d.New))
	}
	wantLines := []string{
		`m shard s2: online, sqlite at /2 → online, sqlite at /2,zone=a /2b`,
		`m shard s3: online, sqlite at /3 → `,
		`m shard s4:  → online, sqlite at /3`,
		`m shard s5: online, sqlite at /5 → `,
		`m mapping [0, 50):  → shard "s1", online`,
		`m mapping [0, 100): shard "s1", online → `,
		`m mapping [50, 120):  → shard "s2", online`,
		`m mapping [200, +inf): shard "s1", online, locked by "x" (why) → `,
		`new shard map :  → list map of uuid keys`,
		`other shard map : range map of int64 keys → `,
	}
	if diff := cmp.Diff(wantLines, lines); diff != "" {
		t.Errorf("the differences differ (-want +got):\n%s", diff)
	}
	if d := mapfile.Diff(wanted, wanted); len(d) > 0 {
		t.Errorf("a file differs from itself: %+v", d)
	}
	if d := mapfile.Diff(body.WithoutLocks(), wanted); strings.Contains(fmt.Sprint(d), "locked") {
		t.Errorf("locks are there still: %+v", d)
	}
}

// Nothing leads from one kind of keys to another.
func TestPlanOtherKind(t *testing.T) {
	t.Parallel()
	is := mapfile.File{Maps: []mapfile.Map{{Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}}}
	want := mapfile.File{Maps: []mapfile.Map{{Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindString}}}
	if _, err := mapfile.Plan(is, want); !errors.Is(err, shardway.ErrWrongType) {
		t.Errorf("Plan = %v, want ErrWrongType", err)
	}
}

const before = `{"format": "shardway map", "version": 1, "maps": [
 {"name": "m", "kind": "range", "key": "int64", "shards": [
  {"name": "s1", "engine": "sqlite", "servers": [{"address": "/1"}]},
  {"name": "s2", "engine": "sqlite", "servers": [{"address": "/2"}]},
  {"name": "s3", "engine": "sqlite", "servers": [{"address": "/3"}]},
  {"name": "s5", "engine": "sqlite", "servers": [{"address": "/5"}]}
 ], "mappings": [
  {"low": "0", "high": "100", "shard": "s1"},
  {"low": "200", "shard": "s1", "lock": {"owner": "x", "reason": "why"}}
 ]},
 {"name": "other", "kind": "range", "key": "int64", "shards": [], "mappings": []}
]}`

const after = `{"format": "shardway map", "version": 1, "maps": [
 {"name": "m", "kind": "range", "key": "int64", "shards": [
  {"name": "s1", "engine": "sqlite", "servers": [{"address": "/1"}]},
  {"name": "s2", "engine": "sqlite", "servers": [{"address": "/2", "tags": {"zone": "a"}}, {"address": "/2b"}]},
  {"name": "s4", "engine": "sqlite", "servers": [{"address": "/3"}]}
 ], "mappings": [
  {"low": "0", "high": "50", "shard": "s1"},
  {"low": "50", "high": "120", "shard": "s2"}
 ]},
 {"name": "new", "kind": "list", "key": "uuid", "shards": [], "mappings": []}
]}`

package shardway

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// oracle is the obvious way to keep the mappings of a map: a sorted slice.
type oracle struct {
	kind     MapKind
	mappings []Mapping
}

// holds reports whether a mapping holds the key.
func (o *oracle) holds(m Mapping, k Key) bool {
	if o.kind == ListMap {
		return m.Range.Low == k
	}
	return m.Range.Contains(k)
}

func (o *oracle) drop(gone func(Mapping) bool) {
	o.mappings = slices.DeleteFunc(o.mappings, gone)
}

func (o *oracle) with(m Mapping) {
	o.without(m.Range)
	o.mappings = append(o.mappings, m)
	slices.SortFunc(o.mappings, func(a, b Mapping) int { return a.Range.Low.Compare(b.Range.Low) })
}

func (o *oracle) without(r Range) {
	o.drop(func(m Mapping) bool {
		if o.kind == ListMap {
			return m.Range.Low == r.Low || !r.Open() && r.Contains(m.Range.Low)
		}
		return m.Range.Intersects(r)
	})
}

func (o *oracle) lookup(k Key) (MappingID, bool) {
	for _, m := range o.mappings {
		if o.holds(m, k) {
			return m.ID, true
		}
	}
	return 0, false
}

// contents reads a snapshot back as mappings, and checks that its index is in
// canonical form.
func contents(t *testing.T, s *snapshot) []Mapping {
	t.Helper()
	var all []Mapping
	open := false // the last mapping has no high end yet
	first := true
	entry := func(k Key, id MappingID, status MappingStatus, slot uint32) {
		switch {
		case s.kind == ListMap && id == 0:
			t.Fatalf("a list map has an empty entry at %s", k)
		case id == 0 && (first || !open):
			t.Fatalf("needless boundary at %s", k)
		}
		if open {
			all[len(all)-1].Range.High = k
		}
		first, open = false, id != 0 && s.kind == RangeMap
		if id != 0 {
			all = append(all, Mapping{ID: id, Range: Range{Low: k}, ShardID: s.shards.shards[slot].ID, Status: status})
		}
	}
	for k, v := range s.ints.All(0) {
		entry(Key{kind: s.keyKind, hi: k}, MappingID(v.ID), MappingStatus(v.Ref&1), v.Ref>>1)
	}
	for enc, v := range s.bytes.All(nil) {
		k, err := DecodeKey(s.keyKind, bytes.Clone(enc))
		if err != nil {
			t.Fatal(err)
		}
		entry(k, MappingID(v.ID), MappingStatus(v.Ref&1), v.Ref>>1)
	}
	return all
}

// smallKeys are a few dozen neighbouring keys of a kind, both ends of the kind
// included: few enough for random ranges to collide all the time.
func smallKeys(t *testing.T, kind KeyKind) []Key {
	t.Helper()
	var keys []Key
	switch {
	case kind == KindInt32:
		for i := range uint64(20) {
			keys = append(keys, Key{kind: kind, hi: i}, Key{kind: kind, hi: 1<<32 - 1 - i}, Key{kind: kind, hi: 1<<31 - 10 + i})
		}
	case kind.Fixed():
		for i := range uint64(20) {
			keys = append(keys, Key{kind: kind, hi: i}, Key{kind: kind, hi: ^i}, Key{kind: kind, hi: sign64 - 10 + i})
		}
	case kind == KindUUID:
		for i := range uint64(20) {
			keys = append(keys, Key{kind: kind, lo: i}, Key{kind: kind, hi: ^uint64(0), lo: ^i}, Key{kind: kind, hi: 5 + i/10, lo: ^uint64(0) - i%10})
		}
	default:
		for _, s := range []string{"", "\x00", "\x00\x00", "\x00\x01", "\x01", "a", "a\x00", "a\x00\x00", "aa", "ab", "b", "\xff", "\xff\x00", "\xff\xff"} {
			keys = append(keys, Key{kind: kind, s: s}, Key{kind: kind, s: "same prefix of a few bytes/" + s})
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return slices.Compact(keys)
}

// Any sequence of changes leaves no overlap and a snapshot that equals the oracle.
func TestSnapshotEqualsOracle(t *testing.T) {
	t.Parallel()
	for _, kind := range []MapKind{ListMap, RangeMap} {
		for keyKind := KindInt32; keyKind <= KindDuration; keyKind++ {
			t.Run(fmt.Sprint(kind, " map of ", keyKind), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(2) {
					runAgainstOracle(t, kind, keyKind, seed)
				}
			})
		}
	}
}

func runAgainstOracle(t *testing.T, kind MapKind, keyKind KeyKind, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(keyKind)))
	keys := smallKeys(t, keyKind)
	pick := func() Range {
		r := Range{Low: keys[rnd.IntN(len(keys))]}
		if kind == ListMap {
			return r
		}
		for r.High = keys[rnd.IntN(len(keys))]; r.Validate() != nil; r.High = keys[rnd.IntN(len(keys))] {
			if rnd.IntN(8) == 0 {
				r.High = Key{}
				return r
			}
		}
		return r
	}
	s, o := &snapshot{kind: kind, keyKind: keyKind}, &oracle{kind: kind}
	var kept *snapshot
	var keptContents []Mapping
	for step := range 400 {
		var what string
		switch op := rnd.IntN(10); {
		case op < 6:
			shard := Shard{ID: ShardID(1 + rnd.IntN(5)), Version: 1}
			m := Mapping{ID: MappingID(step + 1), Range: pick(), ShardID: shard.ID, Status: MappingStatus(rnd.IntN(2))}
			var slot uint32
			next := *s
			next.shards, slot = s.shards.with(shard, 1)
			free := !slices.ContainsFunc(o.mappings, func(old Mapping) bool {
				return o.holds(old, m.Range.Low) || kind == RangeMap && old.Range.Intersects(m.Range)
			})
			if got := s.free(m.Range); got != free {
				t.Fatalf("seed %d, step %d: free(%s) = %v, want %v", seed, step, m.Range, got, free)
			}
			s = next.with(m, slot)
			o.with(m)
			what = "with " + m.Range.String()
		case op < 8:
			r := pick()
			if kind == ListMap && rnd.IntN(2) == 0 {
				for r.High = keys[rnd.IntN(len(keys))]; r.Validate() != nil; r.High = keys[rnd.IntN(len(keys))] {
					r.Low = keys[rnd.IntN(len(keys))]
				}
			}
			s = s.without(r)
			o.without(r)
			what = "without " + r.String()
		default:
			k := keys[rnd.IntN(len(keys))]
			s = s.withoutKey(k)
			o.drop(func(m Mapping) bool { return o.holds(m, k) })
			what = "without key " + k.quoted()
		}
		if got := contents(t, s); !slices.Equal(o.mappings, got) {
			t.Fatalf("seed %d, step %d, %s: mappings\n%v\nwant\n%v", seed, step, what, got, o.mappings)
		}
		if got := s.mappings(); got != len(o.mappings) {
			t.Fatalf("seed %d, step %d, %s: %d mappings counted, want %d", seed, step, what, got, len(o.mappings))
		}
		for _, k := range keys {
			want, ok := o.lookup(k)
			route, found := s.lookup(k)
			if route.MappingID != want || found != ok {
				t.Fatalf("seed %d, step %d, %s: lookup of %s = %v, %v; want %v, %v", seed, step, what, k.quoted(), route.MappingID, found, want, ok)
			}
		}
		if step == 200 {
			kept, keptContents = s, contents(t, s)
		}
	}
	if !slices.Equal(keptContents, contents(t, kept)) {
		t.Error("a snapshot changed after it was made")
	}
}

func TestShardTable(t *testing.T) {
	t.Parallel()
	var table shardTable
	var slots []uint32
	for _, id := range []ShardID{5, 1, 9, 3, 1, 5} {
		var slot uint32
		table, slot = table.with(Shard{ID: id, Version: 1, Name: "first"}, 10)
		slots = append(slots, slot)
	}
	if want := []uint32{0, 1, 2, 3, 1, 0}; !slices.Equal(slots, want) {
		t.Fatalf("slots %v, want %v", slots, want)
	}
	before := table
	older, slot := table.with(Shard{ID: 9, Version: 2, Name: "older"}, 9)
	if got := older.shards[slot].Name; got != "first" {
		t.Errorf("an older answer replaced a shard by %q", got)
	}
	newer, slot := table.with(Shard{ID: 9, Version: 2, Name: "newer"}, 11)
	if got := newer.shards[slot].Name; got != "newer" || slot != 2 {
		t.Errorf("a newer answer left shard %q in slot %d", got, slot)
	}
	if got := before.shards[2].Name; got != "first" {
		t.Errorf("the table before the change has %q now", got)
	}
	refreshed := table.refresh([]Shard{{ID: 3, Version: 7, Name: "moved"}, {ID: 4, Version: 1}}, 12)
	if got := refreshed.shards[3].Name; got != "moved" || len(refreshed.shards) != 4 {
		t.Errorf("refreshed to %q and %d shards; want moved and no shard that nobody refers to", got, len(refreshed.shards))
	}
}

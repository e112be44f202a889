package store_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Leaving mappings are those online ones of whose keys one has no online
// mapping afterwards: compared with asking for every key.
func TestLeaving(t *testing.T) {
	t.Parallel()
	const keys, seed = 12, 20260
	rng := rand.New(rand.NewPCG(seed, seed))
	met := map[bool]int{}
	for range 20_000 {
		kind := shardway.MapKind(1 + rng.IntN(2))
		s := store.LocalStep{Map: shardway.ShardMap{Kind: kind}, Want: store.StepApplied}
		s.Step.Remove, s.Step.Add = mappings(rng, kind, keys), mappings(rng, kind, keys)
		var want []shardway.Mapping
		for _, m := range s.Step.Remove {
			if m.Status == shardway.Online && uncovered(kind, m, s.Step.Add, keys) {
				want = append(want, m)
			}
		}
		got := s.Leaving()
		if diff := cmp.Diff(ranges(kind, want), ranges(kind, got)); diff != "" {
			t.Fatalf("%v map, seed %d: removing %v, adding %v (-want +got):\n%s", kind, seed, ranges(kind, s.Step.Remove), ranges(kind, s.Step.Add), diff)
		}
		for range s.Step.Remove {
			met[len(got) > 0]++
		}
		s.Want = store.StepUndone
		if left := s.Leaving(); left != nil {
			t.Fatalf("undoing: %v leave", left)
		}
	}
	if met[true] == 0 || met[false] == 0 {
		t.Errorf("one answer alone: %v", met)
	}
}

// mappings makes up mappings that do not overlap, in any order.
func mappings(rng *rand.Rand, kind shardway.MapKind, keys int64) (all []shardway.Mapping) {
	for low := rng.Int64N(3); low < keys; {
		high := low + 1 + rng.Int64N(4)
		m := shardway.Mapping{Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)}, Status: shardway.Online}
		switch {
		case kind == shardway.ListMap:
			m.Range.High = shardway.Key{}
		case high >= keys && rng.IntN(2) == 0:
			m.Range.High = shardway.Key{}
		}
		if rng.IntN(5) == 0 {
			m.Status = shardway.Offline
		}
		all = append(all, m)
		if low = high; rng.IntN(4) == 0 {
			low++
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// uncovered asks for every key, and for some beyond all ends.
func uncovered(kind shardway.MapKind, m shardway.Mapping, others []shardway.Mapping, keys int64) bool {
	has := func(m shardway.Mapping, key shardway.Key) bool {
		if kind == shardway.ListMap {
			return m.Range.Low == key
		}
		return m.Range.Contains(key)
	}
	for v := range keys + 8 {
		key, owned := shardway.Int64Key(v), false
		for _, o := range others {
			owned = owned || o.Status == shardway.Online && has(o, key)
		}
		if has(m, key) && !owned {
			return true
		}
	}
	return false
}

func ranges(kind shardway.MapKind, all []shardway.Mapping) (text []string) {
	for _, m := range all {
		text = append(text, m.Format(kind)+" "+m.Status.String())
	}
	return text
}

// A limit below zero and an unknown mode are refused by name.
func TestDrainCheck(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]store.Drain{
		"drain limit": {Limit: -1}, "drain mode": {Mode: 4},
	} {
		var e *shardway.ArgumentError
		if err := d.Check(); !errors.As(err, &e) || e.Argument != name {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for d, want := range map[store.Drain]time.Duration{
		{}: store.DefaultDrain, {Limit: time.Second}: time.Second, {Mode: store.DrainAtOnce, Limit: time.Second}: 0,
		{Mode: store.DrainNobody}: store.DefaultDrain,
	} {
		if err := d.Check(); err != nil || d.Wait() != want {
			t.Errorf("%+v: %v, waits %v, want %v", d, err, d.Wait(), want)
		}
	}
}

// The error names the mappings, and says what is missing.
func TestBusyError(t *testing.T) {
	t.Parallel()
	m := mappings(rand.New(rand.NewPCG(1, 1)), shardway.RangeMap, 40)[:5]
	err := error(&store.BusyError{
		Map: shardway.ShardMap{Name: "m", Kind: shardway.RangeMap}, Mappings: m, Users: []string{"session 5"},
		Reason: "why not", Grants: []string{"a right"},
	})
	for _, part := range []string{m[0].Range.String(), m[2].Range.String(), " and 2 more of shard map \"m\"", "in use by session 5", "why not", "takes the rights a right"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if !errors.Is(err, store.ErrMappingBusy) {
		t.Errorf("%v is not ErrMappingBusy", err)
	}
}

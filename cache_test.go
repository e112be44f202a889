package shardway

import (
	"errors"
	"testing"
)

// answer is an answer about [low, high) on the shard with the given id, or
// that low is not mapped when id is 0.
func answer(generation, low, high int64, id MappingID) Answer {
	return Answer{
		Found:      id != 0,
		Mapping:    Mapping{ID: id, Range: Range{Low: Int64Key(low), High: Int64Key(high)}, ShardID: 1, Status: Online},
		Shard:      Shard{ID: 1, Version: 1},
		Generation: generation,
	}
}

func whole(generation int64, answers ...Answer) *snapshot {
	s := newCache(ShardMap{Kind: RangeMap, KeyKind: KindInt64}).snapshot.Load()
	for _, a := range answers {
		s = s.learned(a)
	}
	return s.at(generation, true)
}

// Answers that come in while a whole map is read are kept when they are newer
// than it, and what was evicted meanwhile does not come back.
func TestReloadKeepsNewerAnswers(t *testing.T) {
	t.Parallel()
	c := newCache(ShardMap{Kind: RangeMap, KeyKind: KindInt64})
	c.learn(Int64Key(0), answer(4, 0, 10, 40))
	ok, err := c.reload(func() (*snapshot, error) {
		c.learn(Int64Key(20), answer(6, 20, 30, 62)) // moved after the map was read
		c.learn(Int64Key(30), answer(6, 0, 0, 0))    // not mapped any more
		c.learn(Int64Key(10), answer(4, 10, 20, 41)) // a late answer
		if !c.evict(Int64Key(0), 40) {               // its shard says so
			t.Error("nothing evicted")
		}
		return whole(5, answer(5, 0, 10, 40), answer(5, 10, 20, 51), answer(5, 20, 30, 52), answer(5, 30, 40, 53), answer(5, 40, 50, 54)), nil
	})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	s := c.snapshot.Load()
	for k, id := range map[int64]MappingID{0: 0, 10: 51, 20: 62, 30: 0, 40: 54} {
		if route, _ := s.lookup(Int64Key(k)); route.MappingID != id {
			t.Errorf("key %d has mapping %d, want %d", k, route.MappingID, id)
		}
	}
	if s.generation != 6 {
		t.Errorf("generation %d", s.generation)
	}
	before := c.snapshot.Load()
	c.evict(Int64Key(40), 54)
	if _, ok := before.lookup(Int64Key(40)); !ok || len(c.journal) != 0 {
		t.Error("changes are still kept after the map was read")
	}
}

// A map that is older than what is known, or none at all, changes nothing.
func TestReloadRefusesOlderMap(t *testing.T) {
	t.Parallel()
	c := newCache(ShardMap{Kind: RangeMap, KeyKind: KindInt64})
	c.learn(Int64Key(0), answer(6, 0, 10, 60))
	broken := errors.New("broken")
	for _, read := range []struct {
		s   *snapshot
		err error
	}{{whole(5, answer(5, 0, 10, 50)), nil}, {nil, broken}} {
		ok, err := c.reload(func() (*snapshot, error) { return read.s, read.err })
		if ok || !errors.Is(err, read.err) {
			t.Errorf("got %v, %v", ok, err)
		}
		if route, _ := c.snapshot.Load().lookup(Int64Key(0)); route.MappingID != 60 {
			t.Errorf("mapping %d", route.MappingID)
		}
	}
}

// What is read of a changed range replaces all that was there, unless
// something newer is known by then: the range is left empty, never older.
func TestReplaceRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		generation int64
		want       MappingID
	}{{"newer", 7, 70}, {"same", 6, 70}, {"older", 5, 0}} {
		cache := newCache(ShardMap{Kind: RangeMap, KeyKind: KindInt64})
		cache.learn(Int64Key(0), answer(6, 0, 10, 60))
		cache.learn(Int64Key(50), answer(6, 50, 60, 61))
		row := Mapping{ID: 70, Range: Range{Low: Int64Key(5), High: Int64Key(20)}, ShardID: 2}
		cache.replace(Range{Low: Int64Key(0), High: Int64Key(20)}, []Mapping{row}, MapState{Generation: c.generation, Shards: []Shard{{ID: 2, Version: 1}}})
		s := cache.snapshot.Load()
		for k, id := range map[int64]MappingID{0: 0, 5: c.want, 19: c.want, 50: 61} {
			if route, _ := s.lookup(Int64Key(k)); route.MappingID != id {
				t.Errorf("%s: key %d has mapping %d, want %d", c.name, k, route.MappingID, id)
			}
		}
		cache.learn(Int64Key(0), answer(5, 0, 5, 50))
		if _, ok := cache.snapshot.Load().lookup(Int64Key(0)); ok {
			t.Errorf("%s: an answer from before the change is cached", c.name)
		}
	}
}

func TestBackoffForgets(t *testing.T) {
	t.Parallel()
	var b backoff
	for id := range MappingID(1024) {
		b.extend(id+1, pause{})
	}
	for id, p := range b.pauses { // as if long ago
		p.until = p.until.Add(-11 * maxPause)
		b.pauses[id] = p
	}
	b.extend(5000, pause{})
	if n := b.failing.Load(); n != 1 || len(b.pauses) != 1 {
		t.Errorf("%d mappings fail, %d are kept", n, len(b.pauses))
	}
}

// Who asked before the shard was reached again does not begin a pause.
func TestBackoffComesTooLate(t *testing.T) {
	t.Parallel()
	var b backoff
	b.extend(1, pause{})
	seen, _ := b.current(1)
	b.reset(1)
	b.extend(1, seen)
	if _, over := b.current(1); !over {
		t.Error("a pause began after success")
	}
	if seen.length != minPause {
		t.Errorf("the first pause was %v", seen.length)
	}
}

package shardway

import (
	"sync"
	"sync/atomic"
)

// cache is what a router knows of one shard map. It is a hint: it may be
// incomplete and out of date, but an older answer never replaces a newer one.
//
// Answers carry the generation of the map they were given in; the newest wins.
// An older one is kept only where nothing is cached, and not even there if it
// is older than the last answer that said something was gone.
type cache struct {
	snapshot atomic.Pointer[snapshot] // never nil; readers take no lock
	evicted  atomic.Uint64

	mu      sync.Mutex // serialises writers; guards the fields below
	loading bool       // a whole map is being read
	journal []change   // made meanwhile, to be made on the new snapshot again
}

// change makes one snapshot out of another. It is pure.
type change func(*snapshot) *snapshot

func newCache(m ShardMap) *cache {
	c := &cache{}
	c.snapshot.Store(&snapshot{kind: m.Kind, keyKind: m.KeyKind})
	return c
}

// write makes a change and returns the snapshots before and after it.
func (c *cache) write(ch change) (before, after *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading {
		c.journal = append(c.journal, ch)
	}
	before = c.snapshot.Load()
	after = ch(before)
	c.snapshot.Store(after)
	return before, after
}

// reload replaces everything by a whole map. Answers that come in while it is
// read are kept. A map older than what was known before is refused.
func (c *cache) reload(load func() (*snapshot, error)) (ok bool, err error) {
	c.mu.Lock()
	c.loading = true
	known := c.snapshot.Load().generation
	c.mu.Unlock()

	s, err := load()

	c.mu.Lock()
	defer c.mu.Unlock()
	journal := c.journal
	c.loading, c.journal = false, nil
	if err != nil || s.generation < known {
		return false, err
	}
	for _, ch := range journal {
		s = ch(s)
	}
	c.snapshot.Store(s)
	return true, nil
}

// clear forgets everything.
func (c *cache) clear() {
	c.write(func(s *snapshot) *snapshot { return &snapshot{kind: s.kind, keyKind: s.keyKind} })
}

// learn takes in a store's answer for a key.
func (c *cache) learn(key Key, a Answer) {
	if a.Found {
		c.write(func(s *snapshot) *snapshot { return s.learned(a) })
		return
	}
	before, after := c.write(func(s *snapshot) *snapshot { return s.missing(key, a.Generation) })
	if before.gone(after, key) {
		c.evicted.Add(1)
	}
}

// evict forgets the mapping with the given id if it is what holds the key. It
// reports whether it was.
func (c *cache) evict(key Key, id MappingID) bool {
	before, after := c.write(func(s *snapshot) *snapshot {
		if v, ok := s.find(key); ok && v.ID == int64(id) {
			return s.withoutKey(key)
		}
		return s
	})
	if !before.gone(after, key) {
		return false
	}
	c.evicted.Add(1)
	return true
}

// replace takes in what the store says about a range: all its mappings, and
// the shards of the map.
func (c *cache) replace(within Range, mappings []Mapping, state MapState) {
	c.write(func(s *snapshot) *snapshot { return s.replaced(within, mappings, state) })
}

// forget drops ranges that have changed until the given generation.
func (c *cache) forget(ranges []Range, generation int64) {
	c.write(func(s *snapshot) *snapshot {
		for _, r := range ranges {
			s = s.without(r)
		}
		return s.at(generation, true)
	})
}

// gone reports whether a key that s has is missing in after.
func (s *snapshot) gone(after *snapshot, key Key) bool {
	_, had := s.find(key)
	_, has := after.find(key)
	return had && !has
}

// at returns a snapshot with a newer generation; cleared says that something
// was found to be gone in it.
func (s *snapshot) at(generation int64, cleared bool) *snapshot {
	next := *s
	next.generation = max(s.generation, generation)
	if cleared {
		next.cleared = max(s.cleared, generation)
	}
	return &next
}

// learned returns a snapshot with the answer, unless it knows better.
func (s *snapshot) learned(a Answer) *snapshot {
	known, ok := s.find(a.Mapping.Range.Low)
	same := ok && known.ID == int64(a.Mapping.ID)
	if a.Generation < s.generation && !same && (a.Generation < s.cleared || !s.free(a.Mapping.Range)) {
		return s
	}
	next := s.at(a.Generation, false)
	var slot uint32
	next.shards, slot = s.shards.with(a.Shard, a.Generation)
	if same && known == value(a.Mapping.ID, slot, a.Mapping.Status) {
		return next
	}
	return next.with(a.Mapping, slot)
}

// missing returns a snapshot in which nothing holds the key, unless it knows better.
func (s *snapshot) missing(key Key, generation int64) *snapshot {
	if generation < s.generation {
		return s
	}
	return s.withoutKey(key).at(generation, true)
}

// replaced returns a snapshot in which a range holds the given mappings. When
// they are older than the snapshot, the range is left empty.
func (s *snapshot) replaced(within Range, mappings []Mapping, state MapState) *snapshot {
	next := s.without(within).at(state.Generation, true)
	next.shards = s.shards.refresh(state.Shards, state.Generation)
	if state.Generation < s.generation {
		next.cleared = s.generation
		return next
	}
	byID := make(map[ShardID]Shard, len(state.Shards))
	for _, shard := range state.Shards {
		byID[shard.ID] = shard
	}
	for _, m := range mappings {
		shard, ok := byID[m.ShardID]
		if !ok {
			continue // a damaged store: a lookup of the key will say so
		}
		var slot uint32
		next.shards, slot = next.shards.with(shard, state.Generation)
		next = next.with(m, slot)
	}
	return next
}

// refresh takes in what the store says about the shards of the map. Routes have
// its generation then, so that who has two of them can tell the newer one.
func (c *cache) refresh(state MapState) {
	c.write(func(s *snapshot) *snapshot {
		next := s.at(state.Generation, false)
		next.shards = s.shards.refresh(state.Shards, state.Generation)
		return next
	})
}

package shardway

import (
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Stats are counters of a [Router] since it was opened.
type Stats struct {
	Maps []MapStats // the open maps, ordered by name
}

// MapStats are counters of one shard map.
type MapStats struct {
	Name         string
	Mappings     int    // mappings in the cache
	Generation   int64  // newest generation of the map that the router knows of
	Hits         uint64 // lookups answered by the cache
	Misses       uint64 // lookups that the cache could not answer
	StoreLookups uint64 // keys that the store was asked for
	Evictions    uint64 // mappings dropped because a shard or the store said they were gone
	Failing      int    // mappings whose shard could not be reached the last time
	FeedError    error  // why following the map's changes fails at present; nil when it works
}

// Stats returns the present counters. It looks at every cached mapping, which
// takes about 10 ms for a million of them.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	maps := make([]*Map, 0, len(r.maps))
	for _, m := range r.maps {
		maps = append(maps, m)
	}
	r.mu.Unlock()
	slices.SortFunc(maps, func(a, b *Map) int { return strings.Compare(a.described.Name, b.described.Name) })
	var s Stats
	for _, m := range maps {
		s.Maps = append(s.Maps, m.Stats())
	}
	return s
}

// Stats returns the counters of the map.
func (m *Map) Stats() MapStats {
	s := m.cache.snapshot.Load()
	stats := MapStats{
		Name:         m.described.Name,
		Mappings:     s.mappings(),
		Generation:   s.generation,
		Hits:         m.hits.sum(),
		Misses:       m.misses.Load(),
		StoreLookups: m.lookups.Load(),
		Evictions:    m.cache.evicted.Load(),
		Failing:      int(m.pauses.failing.Load()),
	}
	if err := m.feedError.Load(); err != nil {
		stats.FeedError = *err
	}
	return stats
}

// stripes is a counter that many goroutines raise at once: they are spread over
// several cache lines, so that they do not wait for each other.
type stripes [16]struct {
	n atomic.Uint64
	_ [56]byte
}

func (s *stripes) add() {
	// Goroutines have stacks of their own, so the place of a variable on it
	// tells them apart. It is a number only, and costs nothing to get.
	var here byte
	place := uint64(uintptr(unsafe.Pointer(&here)) >> 11)
	s[place*0x9e3779b97f4a7c15>>60].n.Add(1)
}

func (s *stripes) sum() (n uint64) {
	for i := range s {
		n += s[i].n.Load()
	}
	return n
}

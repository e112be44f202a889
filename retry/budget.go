package retry

import "sync"

// Budget bounds the load that repeating adds to a shard that is in trouble:
// one attempt more for every ten units that succeeded, and [Budget.Burst] at
// once. In a full outage nothing succeeds, so that beyond the burst each unit
// is tried once. First attempts are never refused.
//
// The zero value is ready for use. A Budget is shared by all units of a
// program and safe for concurrent use; it must not be copied.
type Budget struct {
	// Burst is how many repeated attempts a shard may have before units succeed
	// again. Zero means 10. It must not change once the Budget is used.
	Burst int

	mu    sync.Mutex  // guards the field below
	spent map[any]int // shard → tenths of an attempt that are used up; full shards are not there
}

const (
	defaultBurst = 10
	tenths       = 10 // an attempt costs so many successes
)

// take asks for one more attempt on a shard.
func (b *Budget) take(shard any) bool {
	if b == nil {
		return true
	}
	limit := b.Burst
	if limit <= 0 {
		limit = defaultBurst
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spent[shard]+tenths > limit*tenths {
		return false
	}
	if b.spent == nil {
		b.spent = map[any]int{}
	}
	b.spent[shard] += tenths
	return true
}

// succeed tells that a unit succeeded on a shard.
func (b *Budget) succeed(shard any) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch n := b.spent[shard]; {
	case n > 1:
		b.spent[shard] = n - 1
	case n == 1:
		delete(b.spent, shard)
	}
}

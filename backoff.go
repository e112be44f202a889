package shardway

import (
	"sync"
	"sync/atomic"
	"time"
)

// Pauses between two questions to the store about a mapping whose shard cannot
// be reached.
const (
	minPause = 5 * time.Second
	maxPause = 30 * time.Second
)

// backoff keeps the store from being asked on every failed connection while a
// shard is down. It knows only the mappings that fail: 5 s must pass after the
// first question, then 10, 20 and 30 s, until a connection succeeds. The zero
// value is ready for use.
type backoff struct {
	failing atomic.Int64 // len(pauses), for those who hold no lock

	mu     sync.Mutex // guards the field below
	pauses map[MappingID]pause
}

// pause is how long not to ask. The zero value is no pause.
type pause struct {
	length time.Duration
	until  time.Time
}

// current returns the pause of a mapping and whether it is over.
func (b *backoff) current(id MappingID) (p pause, over bool) {
	if b.failing.Load() == 0 {
		return pause{}, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p = b.pauses[id]
	return p, !time.Now().Before(p.until)
}

// extend begins the pause that follows seen. Whoever saw another pause than
// the present one comes too late and changes nothing.
func (b *backoff) extend(id MappingID, seen pause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pauses[id] != seen {
		return
	}
	now := time.Now()
	if b.pauses == nil {
		b.pauses = map[MappingID]pause{}
	}
	b.sweep(now)
	length := min(max(2*seen.length, minPause), maxPause)
	b.pauses[id] = pause{length: length, until: now.Add(length)}
	b.failing.Store(int64(len(b.pauses)))
}

// reset ends the pauses of a mapping.
func (b *backoff) reset(id MappingID) {
	if b.failing.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pauses, id)
	b.failing.Store(int64(len(b.pauses)))
}

// sweep drops mappings that nobody has asked about for long, so that those
// that are gone do not pile up.
func (b *backoff) sweep(now time.Time) {
	if len(b.pauses) < 1024 || len(b.pauses)&(len(b.pauses)-1) != 0 {
		return // only when the number doubles
	}
	for id, p := range b.pauses {
		if now.Sub(p.until) > 10*maxPause {
			delete(b.pauses, id)
		}
	}
}

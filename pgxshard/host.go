package pgxshard

import (
	"context"
	"slices"
	"sync"
)

// host is a server address. Its pools, one for each database, share a bound on
// their sessions. The zero limit is none.
//
// Invariant: live + inUse - held, the sessions that are open or being opened,
// is at most limit before a new one is opened.
type host struct {
	limit   int
	permits chan struct{} // one for each session in use; nil without a limit

	mu    sync.Mutex // guards the fields below
	pools []*pool
	live  int // sessions that are open
	inUse int // permits given out
	held  int // permits that have their session
}

func newHost(limit int) *host {
	h := &host{limit: limit}
	if limit > 0 {
		h.permits = make(chan struct{}, limit)
	}
	return h
}

// enter is called by who has a permit and is about to take a session of p. It
// makes room for one that may have to be opened, or claims one that is idle.
func (h *host) enter(ctx context.Context, p *pool) (claimed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inUse++
	for h.limit > 0 && h.live+h.inUse-h.held > h.limit {
		if int(p.px.Stat().IdleConns()) > p.claims {
			p.claims++
			return true
		}
		if !h.evict(ctx, p) {
			return false // it is on its way out
		}
	}
	return false
}

// evict closes an idle session of another pool than p. h.mu is held.
func (h *host) evict(ctx context.Context, p *pool) bool {
	for _, other := range slices.Clone(h.pools) { // they may change while h is unlocked
		if other == p || other.px.Stat().IdleConns() == 0 {
			continue
		}
		h.mu.Unlock() // closing tells h
		idle := other.px.AcquireAllIdle(ctx)
		for i, c := range idle {
			if i == 0 {
				_ = c.Conn().Close(ctx)
			}
			c.Release()
		}
		h.mu.Lock()
		if len(idle) > 0 {
			return true
		}
	}
	return false
}

// entered tells what became of enter: there is a session, or none.
func (h *host) entered(p *pool, claimed, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if claimed {
		p.claims--
	}
	if ok {
		h.held++
	} else {
		h.inUse--
	}
}

// left tells that a session in use was given back or closed.
func (h *host) left() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held--
	h.inUse--
}

func (h *host) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live += n
}

func (h *host) add(p *pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = append(h.pools, p)
}

func (h *host) remove(p *pool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = slices.DeleteFunc(h.pools, func(q *pool) bool { return q == p })
}

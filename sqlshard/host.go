package sqlshard

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// host keeps the books of all pools of one server address and says who may
// have a session when their number is bounded.
//
// Invariant: every session that is open or being opened is counted as a permit,
// as idle or as closing in the books of its pool, and the sum of these over
// the pools, reserved, is at most limit.
type host struct {
	limit int // of sessions over all pools; 0 is none

	mu       sync.Mutex // guards the fields below, and the books of the pools
	reserved int
	pools    []*pool
	waiters  list.List // of *waiter, first come first served
}

// books are what a host knows of one pool. They are guarded by host.mu.
type books struct {
	permits int        // given out: each is, or may become, a session in use
	idle    []*session // the one used last at the end
	closing int        // sessions about to be closed
	waiting int
	retired bool // the pool is closed
}

// waiter is somebody who waits for a permit.
type waiter struct {
	pool  *pool
	ready chan grant // buffered, gets one value
}

// grant is a permit for one session.
type grant struct {
	session *session // an idle one to use; nil when one has to be opened
	victim  *session // of another pool, to be closed before; nil when there is room
	refused bool     // there is no permit: the pool was closed
}

// tryGrant gives a permit of p if there is one now.
func (h *host) tryGrant(p *pool) (g grant, ok bool) {
	if p.books.retired {
		return grant{refused: true}, true
	}
	if limit := p.cfg.MaxOpenPerShard; limit > 0 && p.books.permits >= limit {
		return g, false
	}
	if g.session = p.books.pop(); g.session != nil {
		p.books.permits++
		return g, true
	}
	if h.limit > 0 && h.reserved >= h.limit {
		spare := h.spare()
		if spare == nil {
			return g, false
		}
		g.victim = spare.books.oldest()
	} else {
		h.reserved++
	}
	p.books.permits++
	return g, true
}

// spare returns the pool with the most idle sessions, or nil.
func (h *host) spare() *pool {
	var best *pool
	for _, p := range h.pools {
		if n := len(p.books.idle); n > 0 && (best == nil || n > len(best.books.idle)) {
			best = p
		}
	}
	return best
}

// pop takes the idle session that was used last, or nil.
func (b *books) pop() *session {
	n := len(b.idle)
	if n == 0 {
		return nil
	}
	s := b.idle[n-1]
	b.idle[n-1] = nil
	b.idle = b.idle[:n-1]
	return s
}

// oldest takes the session that has been idle longest. There must be one.
func (b *books) oldest() *session {
	s := b.idle[0]
	n := copy(b.idle, b.idle[1:])
	b.idle[n] = nil
	b.idle = b.idle[:n]
	return s
}

// acquire waits for a permit of p. The caller gives it back by release.
func (h *host) acquire(ctx context.Context, p *pool) (grant, error) {
	h.mu.Lock()
	if p.books.waiting == 0 {
		if g, ok := h.tryGrant(p); ok {
			h.mu.Unlock()
			return g, nil
		}
	}
	w := &waiter{pool: p, ready: make(chan grant, 1)}
	e := h.waiters.PushBack(w)
	p.books.waiting++
	h.mu.Unlock()

	defer p.startWait().end()
	if p.cfg.MaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.cfg.MaxWait, errWaitedTooLong)
		defer cancel()
	}
	select {
	case g := <-w.ready:
		return g, nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case g := <-w.ready: // granted at the same moment
		return g, nil
	default:
	}
	h.waiters.Remove(e)
	p.books.waiting--
	return grant{}, context.Cause(ctx)
}

// errWaitedTooLong is a wait that lasted for MaxWait.
var errWaitedTooLong = errors.New("waited as long as MaxWait allows")

// another takes one more idle session of p, under the permit that the caller has.
func (h *host) another(p *pool) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := p.books.pop()
	if s != nil {
		h.reserved--
	}
	return s
}

// release gives a permit of p back, and with it a session for the next user;
// nil when it was closed.
func (h *host) release(p *pool, s *session) {
	h.mu.Lock()
	p.books.permits--
	if s == nil {
		h.reserved--
	} else {
		s.idleSince = p.ticks
		p.books.idle = append(p.books.idle, s)
	}
	h.dispatch()
	var surplus *session
	if n := len(p.books.idle); s != nil && (n > p.cfg.MaxIdlePerShard || p.books.retired) {
		surplus = p.books.oldest()
		p.books.closing++
	} else if n > 0 {
		p.keepTime()
	}
	h.mu.Unlock()
	if surplus != nil {
		h.shut(p, surplus)
	}
}

// dispatch grants what one event has made possible to the first in the queue
// who can use it.
func (h *host) dispatch() {
	for e := h.waiters.Front(); e != nil; e = e.Next() {
		if g, ok := h.tryGrant(e.Value.(*waiter).pool); ok {
			h.answer(e, g)
			return
		}
	}
}

func (h *host) answer(e *list.Element, g grant) {
	w := h.waiters.Remove(e).(*waiter)
	w.pool.books.waiting--
	w.ready <- g
}

// shut closes sessions that are counted as closing.
func (h *host) shut(p *pool, sessions ...*session) {
	for _, s := range sessions {
		s.shut()
		h.mu.Lock()
		p.books.closing--
		h.reserved--
		h.dispatch()
		h.mu.Unlock()
	}
}

// closeIdle closes the idle sessions of p that old selects.
func (h *host) closeIdle(p *pool, old func(*session) bool) {
	h.mu.Lock()
	var gone []*session
	for len(p.books.idle) > 0 && old(p.books.idle[0]) {
		gone = append(gone, p.books.oldest())
	}
	p.books.closing += len(gone)
	h.mu.Unlock()
	h.shut(p, gone...)
}

// retire refuses p to all who wait for it and will, and closes its idle sessions.
func (h *host) retire(p *pool) {
	h.mu.Lock()
	p.books.retired = true
	for e := h.waiters.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*waiter).pool == p {
			h.answer(e, grant{refused: true})
		}
		e = next
	}
	for i, q := range h.pools {
		if q == p {
			h.pools = append(h.pools[:i:i], h.pools[i+1:]...)
			break
		}
	}
	if p.clock != nil {
		p.clock.Stop()
	}
	h.mu.Unlock()
	h.closeIdle(p, func(*session) bool { return true })
}

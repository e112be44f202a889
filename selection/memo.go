package selection

import (
	"sync/atomic"
	"time"

	"github.com/shardway/shardway/topology"
)

// A description never changes, so one rule always finds the same latency window
// in it. The first selection leaves the window with the description, and the
// others only draw from it. Predicates are asked each time, for they may look at
// the clock; zones and weights need more than the window.

// window is the latency window of one rule in one description.
type window struct {
	rule      *rule
	threshold time.Duration // as in Request
	servers   []int32       // not empty
}

// nextSlot spreads rules over the slots of a description.
var nextSlot atomic.Uint32

// memorable returns the rule by which the query's window is known, or nil.
func (q *query) memorable() *rule {
	r := q.rule
	switch {
	case len(q.deprioritized) > 0 || q.operation > Write:
		return nil
	case q.operation == Write && r.err == nil:
		return primaryRule
	case r.plain:
		return r
	}
	return nil
}

// recall returns the servers of the latency window of an earlier selection, or
// nil. Rules that meet in a slot stand in the next free ones.
func (q *query) recall(r *rule) []int32 {
	if r == nil || q.ix.Memo == nil {
		return nil
	}
	for i := range uint32(topology.MemoSlots) {
		w, _ := q.ix.Memo[(r.slot+i)%topology.MemoSlots].Load().(*window)
		switch {
		case w == nil:
			return nil
		case w.rule == r && w.threshold == q.threshold:
			return w.servers
		}
	}
	return nil
}

// remember leaves a latency window with the description, if there is a slot
// left: criteria built for each call cost some allocations for each description
// and not one for each call.
func (q *query) remember(r *rule, bitmap []uint64, n int) {
	if r == nil {
		return
	}
	for i := range uint32(topology.MemoSlots) {
		slot := &q.ix.Memo[(r.slot+i)%topology.MemoSlots]
		if slot.Load() != nil {
			continue
		}
		w := &window{rule: r, threshold: q.threshold, servers: make([]int32, n)}
		for k := range w.servers {
			w.servers[k] = int32(nth(bitmap, k))
		}
		slot.CompareAndSwap(nil, w)
		return
	}
}

// pickListed is pickOfTwo among listed servers.
func (q *query) pickListed(servers []int32) int {
	if len(servers) == 1 {
		return int(servers[0])
	}
	first, second := q.drawPair(len(servers))
	a, b := int(servers[first]), int(servers[second])
	if q.ix.Loads[b].InFlight() < q.ix.Loads[a].InFlight() {
		return b
	}
	return a
}

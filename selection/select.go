package selection

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway/topology"
)

// DefaultLocalThreshold is the width of the latency window, and FastestOnly
// asks for a window of no width: the fastest suitable server alone.
const (
	DefaultLocalThreshold = 15 * time.Millisecond
	FastestOnly           = time.Duration(-1)
)

// MongoDB's bounds of max staleness (server selection, "maxStalenessSeconds").
const (
	smallestMongoStaleness = 90 * time.Second
	idleWritePeriod        = 10 * time.Second
)

// Operation says what the server is needed for. The zero value is Read, which
// with the zero Criteria goes to the primary.
type Operation uint8

// The operations.
const (
	// Read uses the criteria.
	Read Operation = iota
	// Write uses the writable servers, whatever the criteria say.
	Write
)

// String returns "read" or "write".
func (o Operation) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}

// Request is what to select for. The zero value reads from the primary.
type Request struct {
	// Criteria say which servers a read may use.
	Criteria Criteria
	// Operation is Read or Write.
	Operation Operation
	// Deprioritized are the addresses, in canonical text, of servers that failed
	// this unit of work before. They are used only if no other server suits,
	// however slow the others are.
	Deprioritized []string
	// LocalThreshold is the width of the latency window: servers whose average
	// round trip is at most that of the fastest suitable one plus this. 0 means
	// DefaultLocalThreshold.
	LocalThreshold time.Duration
	// Random is the source of chance, for tests; nil means the runtime's. It
	// must be as safe for concurrent use as its selections are concurrent.
	Random rand.Source
}

// Choice is a selected server with one operation counted on it. Release it when
// the operation has ended. A Choice must not be copied after first use; the
// zero value is no choice and may be released.
type Choice struct {
	set      topology.Set
	index    int
	released atomic.Bool
}

// Server describes the chosen server as it was when it was chosen; the zero
// Server for the zero Choice.
func (c *Choice) Server() topology.Server {
	if c.set.Len() == 0 {
		return topology.Server{}
	}
	return c.set.Server(c.index)
}

// Position is the chosen server's position in Set; 0 for the zero Choice.
func (c *Choice) Position() int { return c.index }

// Set is the description the server was chosen from.
func (c *Choice) Set() topology.Set { return c.set }

// Release counts the operation as ended. Further calls do nothing. It may be
// called concurrently.
func (c *Choice) Release() {
	if c.set.Len() != 0 && !c.released.Swap(true) {
		c.set.Load(c.index).End()
	}
}

// Select chooses a server for a request and counts an operation on it. Invalid
// criteria are an *InvalidError, a panic of a predicate is a *PredicateError,
// and an *Error says why no server suits. It never waits; a Selector does.
func Select(set topology.Set, request Request) (Choice, error) {
	q := newQuery(set, &request)
	winner, err := q.attempt()
	if err != nil {
		return Choice{}, err
	}
	if winner < 0 {
		return Choice{}, q.failure(nil, 0)
	}
	return q.begin(winner), nil
}

// query is one selection. It lives on the stack, so it holds no pointer to its
// Request.
type query struct {
	set           topology.Set
	ix            *topology.Index
	rule          *rule
	deprioritized []string
	random        rand.Source
	threshold     time.Duration // as in Request; width is what it means
	operation     Operation
}

func newQuery(set topology.Set, request *Request) query {
	return query{
		set:           set,
		ix:            set.Index(),
		rule:          request.Criteria.get(),
		deprioritized: request.Deprioritized,
		random:        request.Random,
		threshold:     request.LocalThreshold,
		operation:     request.Operation,
	}
}

// on returns the same query of another description.
func (q query) on(set topology.Set) query {
	q.set, q.ix = set, set.Index()
	return q
}

// attempt searches once; the winner is -1 if no server suits.
func (q *query) attempt() (int, error) {
	if servers := q.recall(q.memorable()); servers != nil {
		return q.pickListed(servers), nil
	}
	if err := q.check(); err != nil {
		return -1, err
	}
	words := len(q.ix.Available)
	if words <= smallWords {
		var scratch [2 * smallWords]uint64
		return q.search(scratch[:words], scratch[smallWords:][:words], nil)
	}
	return q.attemptLarge(words)
}

// Stack space of a search: one word of servers, or sixteen. Larger sets cost
// an allocation.
const (
	smallWords = 1
	largeWords = 16
)

func (q *query) attemptLarge(words int) (int, error) {
	if words <= largeWords {
		var scratch [2 * largeWords]uint64
		return q.search(scratch[:words], scratch[largeWords:][:words], nil)
	}
	scratch := make([]uint64, 2*words)
	return q.search(scratch[:words], scratch[words:], nil)
}

// failure explains why no server suits.
func (q *query) failure(cause error, waited time.Duration) error {
	_, explanation, err := q.explain()
	if err != nil {
		return err
	}
	return &Error{Explanation: explanation, Cause: cause, Waited: waited}
}

// width is the width of the latency window.
func (q *query) width() time.Duration {
	switch q.threshold {
	case 0:
		return DefaultLocalThreshold
	case FastestOnly:
		return 0
	}
	return q.threshold
}

// check refuses an invalid request.
func (q *query) check() error {
	switch {
	case q.rule.err != nil:
		return q.rule.err
	case q.operation > Write:
		return &InvalidError{Field: "Operation", Reason: fmt.Sprintf("%v is neither read nor write", q.operation)}
	case q.threshold < FastestOnly:
		return &InvalidError{Field: "LocalThreshold", Reason: fmt.Sprintf("%v is negative", q.threshold)}
	case q.rule.staleness && q.operation == Read && q.ix.Kind.MongoReplicaSet():
		return q.checkMongoStaleness()
	}
	return nil
}

// checkMongoStaleness refuses bounds that MongoDB's estimate cannot keep.
func (q *query) checkMongoStaleness() error {
	least := max(smallestMongoStaleness, q.set.Heartbeat()+idleWritePeriod)
	if q.rule.maxStaleness < least {
		return &InvalidError{Field: "MaxStaleness", Reason: fmt.Sprintf("%v is below the minimum of %v for a MongoDB replica set with a heartbeat of %v",
			q.rule.maxStaleness, least, q.set.Heartbeat())}
	}
	return nil
}

// final says why no change of the servers can help, or "".
func (q *query) final() string {
	needsPrimary := q.operation == Write || (q.rule.predicate == nil && q.rule.mode == ModePrimary)
	switch {
	case q.set.Len() == 0:
		return "the set has no servers"
	case q.set.Closed():
		return topology.ErrClosed.Error()
	case q.set.ReadOnly() && needsPrimary:
		return "no primary configured"
	}
	return ""
}

// search leaves the latency window in candidates and returns the chosen
// server, or -1. spare is zeroed space of the same size.
func (q *query) search(candidates, spare []uint64, t *trace) (int, error) {
	if q.set.Len() == 0 {
		return -1, nil
	}
	var excluded []uint64
	if len(q.deprioritized) > 0 {
		excluded = q.exclude(spare)
	}
	found, err := q.suitable(candidates, excluded, t)
	if err == nil && !found && excluded != nil {
		clear(excluded)
		t.restart(q.set.Len())
		if t != nil {
			t.fallback = true
		}
		found, err = q.suitable(candidates, excluded, t)
	}
	if err != nil || !found {
		return -1, err
	}
	if q.rule.prefer != nil && q.operation == Read {
		if err := q.prefer(candidates, spare, t); err != nil {
			return -1, err
		}
	}
	n := q.window(candidates, t)
	if t == nil {
		q.remember(q.memorable(), candidates, n)
	}
	return q.pick(candidates, spare, n), nil
}

// exclude returns the bitmap of the request's deprioritized servers in
// spare, or nil if there are none.
func (q *query) exclude(spare []uint64) []uint64 {
	var excluded []uint64
	for _, address := range q.deprioritized {
		if i := q.set.Position(address); i >= 0 {
			excluded = spare
			excluded[i/64] |= 1 << (i % 64)
		}
	}
	return excluded
}

// begin counts the operation.
func (q *query) begin(winner int) Choice {
	load := q.ix.Loads[winner]
	load.Begin()
	if q.rule.zoned && q.operation == Read {
		load.Pick()
	}
	return Choice{set: q.set, index: winner}
}

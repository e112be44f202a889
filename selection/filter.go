package selection

import (
	"math"
	"math/bits"

	"github.com/shardway/shardway/topology"
)

// suitable leaves in candidates the servers that may serve the request, and
// reports whether there are any. excluded may be nil.
func (q *query) suitable(candidates, excluded []uint64, t *trace) (bool, error) {
	switch q.ix.Kind {
	case topology.KindUnknown:
		clear(candidates)
		t.dropped(StepRole, candidates)
		return false, nil
	case topology.KindLoadBalanced:
		return q.start(candidates, q.ix.Readable, excluded, t), nil
	case topology.KindSingle, topology.KindSharded:
		from := q.ix.Readable
		if q.ix.Kind == topology.KindSingle {
			from = q.ix.Available
		}
		found := q.start(candidates, from, excluded, t)
		if found && q.operation == Read && q.rule.predicate != nil {
			return q.accepted(candidates, t)
		}
		return found, nil
	}
	if q.operation == Write {
		return q.start(candidates, q.ix.Primary, excluded, t), nil
	}
	if q.rule.predicate != nil {
		found := q.start(candidates, q.ix.Readable, excluded, t)
		if found && q.ix.AnyDetached {
			found = q.attached(candidates, t)
		}
		if !found {
			return false, nil
		}
		return q.accepted(candidates, t)
	}
	return q.preferred(candidates, excluded, t), nil
}

// preferred applies a read preference to a replica set.
func (q *query) preferred(candidates, excluded []uint64, t *trace) bool {
	switch q.rule.mode {
	case ModePrimary:
		return q.start(candidates, q.ix.Primary, excluded, t)
	case ModePrimaryPreferred:
		return q.start(candidates, q.ix.Primary, excluded, t) ||
			q.resume(candidates, q.ix.Secondary, excluded, t) && q.fresh(candidates, t) && q.tagged(candidates, t)
	case ModeSecondary:
		return q.start(candidates, q.ix.Secondary, excluded, t) && q.fresh(candidates, t) && q.tagged(candidates, t)
	case ModeSecondaryPreferred:
		return q.start(candidates, q.ix.Secondary, excluded, t) && q.fresh(candidates, t) && q.tagged(candidates, t) ||
			q.resume(candidates, q.ix.Primary, excluded, t)
	default: // ModeNearest
		return q.start(candidates, q.ix.Readable, excluded, t) && q.fresh(candidates, t) && q.tagged(candidates, t)
	}
}

// start takes the servers of a bitmap but the excluded.
func (q *query) start(candidates, from, excluded []uint64, t *trace) bool {
	if t != nil && excluded != nil {
		for w := range candidates {
			candidates[w] = ^excluded[w]
		}
		t.dropped(StepDeprioritized, candidates)
	}
	found := take(candidates, from, excluded)
	t.dropped(StepRole, candidates)
	return found
}

// resume takes other servers after a first branch found none.
func (q *query) resume(candidates, from, excluded []uint64, t *trace) bool {
	found := take(candidates, from, excluded)
	if t != nil {
		for w := range candidates {
			for b := candidates[w]; b != 0; b &= b - 1 {
				t.steps[w*64+bits.TrailingZeros64(b)] = 0
			}
		}
		t.adopt(candidates)
	}
	return found
}

func take(candidates, from, excluded []uint64) bool {
	var any uint64
	if excluded == nil {
		for w := range candidates {
			candidates[w] = from[w]
			any |= from[w]
		}
		return any != 0
	}
	for w := range candidates {
		candidates[w] = from[w] &^ excluded[w]
		any |= candidates[w]
	}
	return any != 0
}

// attached drops secondaries that follow nobody, unless they are allowed.
func (q *query) attached(candidates []uint64, t *trace) bool {
	var any uint64
	for w := range candidates {
		if !q.rule.allowDetached {
			candidates[w] &^= q.ix.Detached[w]
		}
		any |= candidates[w]
	}
	t.dropped(StepDetached, candidates)
	return any != 0
}

// fresh drops detached secondaries and those too far behind. Staleness comes
// before tags: a stale server must not decide for its tag set.
func (q *query) fresh(candidates []uint64, t *trace) bool {
	if q.ix.AnyDetached && !q.attached(candidates, t) {
		return false
	}
	if q.rule.maxStaleness == 0 {
		return true
	}
	limit := int64(q.rule.maxStaleness)
	if limit == topology.NoValue {
		limit-- // unknown staleness is above every limit
	}
	var any uint64
	for w, word := range candidates {
		staleness := q.ix.Staleness[w*64:]
		for b := word; b != 0; b &= b - 1 {
			if i := bits.TrailingZeros64(b); staleness[i] > limit {
				word &^= 1 << i
			}
		}
		candidates[w] = word
		any |= word
	}
	t.dropped(StepStaleness, candidates)
	return any != 0
}

// tagged keeps the servers of the first tag set that fits any.
func (q *query) tagged(candidates []uint64, t *trace) bool {
	if len(q.rule.tagSets) == 0 {
		return true
	}
	for _, set := range q.rule.tagSets {
		if q.fits(candidates, set) {
			t.dropped(StepTags, candidates)
			return true
		}
	}
	clear(candidates)
	t.dropped(StepTags, candidates)
	return false
}

// tagLimit is how many tags of a set are looked up at once.
const tagLimit = 8

// fits narrows candidates to the servers with all tags of a set, or leaves them
// alone and returns false if there are none.
func (q *query) fits(candidates []uint64, set []topology.TagHandle) bool {
	if len(set) == 1 {
		return narrow(candidates, q.ix.Tagged(set[0]))
	}
	if len(set) > tagLimit {
		return q.fitsMany(candidates, set)
	}
	var tags [tagLimit][]uint64
	for k := range set {
		if tags[k] = q.ix.Tagged(set[k]); tags[k] == nil {
			return false
		}
	}
	var any uint64
	for w := range candidates {
		any |= meet(candidates[w], tags[:len(set)], w)
	}
	if any == 0 {
		return false
	}
	for w := range candidates {
		candidates[w] = meet(candidates[w], tags[:len(set)], w)
	}
	return true
}

// narrow keeps the servers of a bitmap, unless there are none.
func narrow(candidates, bitmap []uint64) bool {
	var any uint64
	for w := range bitmap {
		any |= candidates[w] & bitmap[w]
	}
	if any == 0 {
		return false
	}
	for w := range bitmap {
		candidates[w] &= bitmap[w]
	}
	return true
}

func meet(word uint64, tags [][]uint64, w int) uint64 {
	for _, bitmap := range tags {
		word &= bitmap[w]
	}
	return word
}

// fitsMany is fits for a set of many tags, without space on the stack.
func (q *query) fitsMany(candidates []uint64, set []topology.TagHandle) bool {
	match := func(w int) uint64 {
		word := candidates[w]
		for _, tag := range set {
			bitmap := q.ix.Tagged(tag)
			if bitmap == nil {
				return 0
			}
			word &= bitmap[w]
		}
		return word
	}
	var any uint64
	for w := range candidates {
		any |= match(w)
	}
	if any == 0 {
		return false
	}
	for w := range candidates {
		candidates[w] = match(w)
	}
	return true
}

// accepted keeps the servers that the predicate accepts.
func (q *query) accepted(candidates []uint64, t *trace) (bool, error) {
	found, err := q.ask(candidates, q.rule.predicate, q.rule.name)
	if err == nil {
		t.dropped(StepPredicate, candidates)
	}
	return found, err
}

// prefer narrows candidates to the preferred ones, if there are any.
func (q *query) prefer(candidates, spare []uint64, t *trace) error {
	copy(spare, candidates)
	found, err := q.ask(spare, q.rule.prefer, q.rule.preferName)
	if found && err == nil {
		copy(candidates, spare)
		t.dropped(StepPrefer, candidates)
	}
	return err
}

// ask removes from bitmap the servers that a predicate refuses.
func (q *query) ask(bitmap []uint64, predicate func(ServerInfo) bool, name string) (found bool, err error) {
	asked := -1
	defer func() {
		if asked < 0 {
			return
		}
		if value := recover(); value != nil {
			found, err = false, &PredicateError{Predicate: name, Server: q.set.Server(asked).Address, Value: value}
		}
	}()
	for w, word := range bitmap {
		for b := word; b != 0; b &= b - 1 {
			asked = w*64 + bits.TrailingZeros64(b)
			if !predicate(ServerInfo{Server: q.set.Server(asked), Kind: q.ix.Kind}) {
				word &^= b & -b
			}
		}
		bitmap[w] = word
		found = found || word != 0
	}
	return found, nil
}

// window keeps the servers at most the threshold slower than the fastest, and
// returns how many they are. A server without a measured round trip is kept only
// if none has one.
func (q *query) window(candidates []uint64, t *trace) int {
	fastest, n := int64(topology.NoValue), 0
	for w, word := range candidates {
		rtt := q.ix.RTT[w*64:]
		n += bits.OnesCount64(word)
		for b := word; b != 0; b &= b - 1 {
			fastest = min(fastest, rtt[bits.TrailingZeros64(b)])
		}
	}
	if n == 1 || fastest == topology.NoValue {
		return n
	}
	limit := int64(math.MaxInt64 - 1)
	if width := int64(q.width()); width < limit-fastest {
		limit = fastest + width
	}
	for w, word := range candidates {
		rtt := q.ix.RTT[w*64:]
		for b := word; b != 0; b &= b - 1 {
			if i := bits.TrailingZeros64(b); rtt[i] > limit {
				word &^= 1 << i
				n--
			}
		}
		candidates[w] = word
	}
	t.dropped(StepWindow, candidates)
	return n
}

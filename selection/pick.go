package selection

import (
	"math/bits"
	"math/rand/v2"
)

// pick chooses among the n servers of the latency window, n > 0.
func (q *query) pick(window, spare []uint64, n int) int {
	if n == 1 {
		return nth(window, 0)
	}
	if q.operation == Read {
		switch {
		case q.rule.zoned:
			return q.pickInZone(window, spare, n)
		case q.rule.weights != nil:
			return q.pickWeighted(window)
		}
	}
	return q.pickOfTwo(window, n)
}

// pickOfTwo draws two different servers and takes the one with fewer operations
// in flight, the first of them if equal. Taking the least busy of all would send
// every process at once to a server that has just come up.
func (q *query) pickOfTwo(window []uint64, n int) int {
	a, b := q.drawTwo(window, n)
	if q.ix.Loads[b].InFlight() < q.ix.Loads[a].InFlight() {
		return b
	}
	return a
}

func (q *query) drawTwo(window []uint64, n int) (int, int) {
	first, second := q.drawPair(n)
	return nth(window, first), nth(window, second)
}

// drawPair draws two different numbers below n, n > 1.
func (q *query) drawPair(n int) (first, second int) {
	r := q.draw()
	first = int(r >> 32 * uint64(n) >> 32)
	second = int(r & 0xffffffff * uint64(n-1) >> 32)
	if second >= first {
		second++
	}
	return first, second
}

// A zone's server may get zoneShare/zoneMean times the mean. The promise is
// 1.15; the rest is room for the first choices, which cannot be exact.
const (
	zoneShare = 114
	zoneMean  = 100
	// fadeAfter is the mean number of choices per server at which old ones
	// begin to weigh less.
	fadeAfter = 4096
)

// pickInZone stays in the zone while its server's share of the choices is fair.
func (q *query) pickInZone(window, spare []uint64, n int) int {
	near := q.ix.Tagged(q.rule.zone)
	if near == nil {
		return q.pickOfTwo(window, n)
	}
	for w := range window {
		spare[w] = window[w] & near[w]
	}
	local := count(spare)
	if local == 0 || local == n {
		return q.pickOfTwo(window, n)
	}
	total := q.picks(window, n)
	server := q.pickBalanced(spare, local)
	picks := q.ix.Loads[server].Picks() + 1
	if picks*int64(n)*zoneMean <= (total+int64(n))*zoneShare {
		return server
	}
	for w := range window {
		spare[w] = window[w] &^ near[w]
	}
	return q.pickBalanced(spare, n-local)
}

// picks sums the recent choices of a window and lets them fade if they are many.
func (q *query) picks(window []uint64, n int) int64 {
	var total int64
	for w := range window {
		for b := window[w]; b != 0; b &= b - 1 {
			total += q.ix.Loads[w*64+bits.TrailingZeros64(b)].Picks()
		}
	}
	if total <= fadeAfter*int64(n) {
		return total
	}
	for w := range window {
		for b := window[w]; b != 0; b &= b - 1 {
			q.ix.Loads[w*64+bits.TrailingZeros64(b)].Fade()
		}
	}
	return total / 2
}

// pickBalanced is pickOfTwo that breaks ties by fewer recent choices.
func (q *query) pickBalanced(window []uint64, n int) int {
	if n == 1 {
		return nth(window, 0)
	}
	a, b := q.drawTwo(window, n)
	loadA, loadB := q.ix.Loads[a], q.ix.Loads[b]
	flightA, flightB := loadA.InFlight(), loadB.InFlight()
	if flightB < flightA || flightB == flightA && loadB.Picks() < loadA.Picks() {
		return b
	}
	return a
}

// pickWeighted draws two servers by weight, maybe the same, and takes the one
// with fewer operations in flight for its weight.
func (q *query) pickWeighted(window []uint64) int {
	var sum float64
	for w := range window {
		for b := window[w]; b != 0; b &= b - 1 {
			sum += q.weight(w*64 + bits.TrailingZeros64(b))
		}
	}
	if sum == 0 {
		return q.pickOfTwo(window, count(window))
	}
	a, b := q.drawWeighted(window, sum), q.drawWeighted(window, sum)
	if float64(q.ix.Loads[b].InFlight())*q.weight(a) < float64(q.ix.Loads[a].InFlight())*q.weight(b) {
		return b
	}
	return a
}

func (q *query) drawWeighted(window []uint64, sum float64) int {
	const unit = 1.0 / (1 << 53)
	rest := float64(q.draw()>>11) * unit * sum
	last := -1
	for w := range window {
		for b := window[w]; b != 0; b &= b - 1 {
			i := w*64 + bits.TrailingZeros64(b)
			weight := q.weight(i)
			if weight == 0 {
				continue
			}
			if last = i; rest < weight {
				return i
			}
			rest -= weight
		}
	}
	return last // rounding left a rest
}

func (q *query) weight(i int) float64 {
	if weight, listed := q.rule.weights[q.set.Server(i).Address]; listed {
		return weight
	}
	return 1
}

func (q *query) draw() uint64 {
	if q.random != nil {
		return q.random.Uint64()
	}
	return rand.Uint64()
}

// count returns the number of servers in a bitmap.
func count(bitmap []uint64) int {
	n := 0
	for _, word := range bitmap {
		n += bits.OnesCount64(word)
	}
	return n
}

// nth returns the position of the k-th server in a bitmap, counted from 0.
func nth(bitmap []uint64, k int) int {
	for w, word := range bitmap {
		if n := bits.OnesCount64(word); k >= n {
			k -= n
			continue
		}
		for ; k > 0; k-- {
			word &= word - 1
		}
		return w*64 + bits.TrailingZeros64(word)
	}
	panic("selection: bitmap has too few servers")
}

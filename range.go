package shardway

import (
	"fmt"
	"math/big"
)

// Range is a half-open interval of keys, [Low, High). A zero High is the open
// end: the range then holds every key from Low on. Ranges are comparable with
// ==. The zero value is no range. Build ranges with [NewRange], [RangeFrom] or
// [FullRange], which check them.
type Range struct {
	Low  Key // first key of the range
	High Key // first key after the range; the zero value is +infinity
}

// NewRange returns [low, high). Two kinds, a missing low end or low >= high
// are an [ArgumentError]. A zero high leaves the range open.
func NewRange(low, high Key) (Range, error) {
	r := Range{Low: low, High: high}
	return r, r.Validate()
}

// RangeFrom returns [low, +infinity).
func RangeFrom(low Key) Range { return Range{Low: low} }

// FullRange returns the range of all keys of a kind.
func FullRange(kind KeyKind) Range { return Range{Low: MinKey(kind)} }

// Validate checks that the range has a low end, one kind, and low < high.
func (r Range) Validate() error {
	switch {
	case r.Low.IsZero():
		return &ArgumentError{Argument: "low", Reason: "is missing"}
	case r.High.IsZero():
		return nil
	case r.Low.kind != r.High.kind:
		return &ArgumentError{
			Argument: "high", Value: r.High.quoted(),
			Reason: fmt.Sprintf("is %s %s key, low is %s %s key", article(r.High.kind), r.High.kind, article(r.Low.kind), r.Low.kind),
		}
	case r.Low.Compare(r.High) >= 0:
		return &ArgumentError{Argument: "range", Value: r.String(), Reason: "is empty: low must be below high"}
	}
	return nil
}

// Open reports whether the range has no upper end.
func (r Range) Open() bool { return r.High.IsZero() }

// Contains reports whether k lies in the range.
func (r Range) Contains(k Key) bool {
	return r.Low.Compare(k) <= 0 && (r.Open() || k.Compare(r.High) < 0)
}

// Covers reports whether every key of other lies in r.
func (r Range) Covers(other Range) bool {
	return r.Low.Compare(other.Low) <= 0 && compareHigh(other.High, r.High) <= 0
}

// Intersects reports whether the ranges share a key. Ranges that touch do not.
func (r Range) Intersects(other Range) bool {
	return (other.Open() || r.Low.Compare(other.High) < 0) && (r.Open() || other.Low.Compare(r.High) < 0)
}

// String returns the range for people: [low, high), strings quoted, +inf for
// an open end.
func (r Range) String() string {
	high := "+inf"
	if !r.Open() {
		high = r.High.quoted()
	}
	return "[" + r.Low.quoted() + ", " + high + ")"
}

// compareHigh compares two high ends, of which the zero value is the greatest.
func compareHigh(a, b Key) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// EvenRanges cuts all keys of a number or UUID kind into n ranges of equal
// size (to one key). The first starts at the smallest key, the last is open,
// neighbours touch. n runs from 1 to 65536.
func EvenRanges(kind KeyKind, n int) ([]Range, error) {
	bits := map[KeyKind]uint{KindInt32: 32, KindInt64: 64, KindUint64: 64, KindUUID: 128}[kind]
	if bits == 0 {
		return nil, &ArgumentError{Argument: "key kind", Value: kind.String(), Reason: "cannot be cut evenly; use int32, int64, uint64 or uuid"}
	}
	if n < 1 || n > 65536 {
		return nil, &ArgumentError{Argument: "n", Value: fmt.Sprint(n), Reason: "is not between 1 and 65536"}
	}
	ranges := make([]Range, n)
	for i := range ranges {
		p := new(big.Int).Lsh(big.NewInt(int64(i)), bits)
		p.Div(p, big.NewInt(int64(n)))
		ranges[i].Low = Key{kind: kind, hi: p.Uint64()}
		if kind == KindUUID {
			ranges[i].Low.lo = p.Uint64()
			ranges[i].Low.hi = new(big.Int).Rsh(p, 64).Uint64()
		}
		if i > 0 {
			ranges[i-1].High = ranges[i].Low
		}
	}
	return ranges, nil
}

package shardway_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
)

// Range algebra against the obvious oracle: the set of keys, over all ranges
// of a small key space.
func TestRangeAlgebra(t *testing.T) {
	t.Parallel()
	const n = 7
	at := func(i int) shardway.Key { return shardway.Int64Key(int64(i) - 3) }
	var ranges []shardway.Range
	for low := range n {
		ranges = append(ranges, shardway.RangeFrom(at(low)))
		for high := range n {
			r, err := shardway.NewRange(at(low), at(high))
			if (err == nil) != (low < high) || err != nil && !errors.Is(err, shardway.ErrInvalid) {
				t.Fatalf("NewRange(%s, %s): %v", at(low), at(high), err)
			}
			if err == nil {
				ranges = append(ranges, r)
			}
		}
	}
	set := func(r shardway.Range) (keys [n + 1]bool) {
		for i := range keys { // the key after the last bound stands for all that follow
			keys[i] = at(i).Compare(r.Low) >= 0 && (r.High.IsZero() || at(i).Compare(r.High) < 0)
		}
		return keys
	}
	for _, a := range ranges {
		for i, in := range set(a) {
			if got := a.Contains(at(i)); got != in {
				t.Errorf("%s contains %s: %v", a, at(i), got)
			}
		}
		for _, b := range ranges {
			intersects, covers := false, true
			as, bs := set(a), set(b)
			for i := range as {
				intersects = intersects || as[i] && bs[i]
				covers = covers && (as[i] || !bs[i])
			}
			if got := a.Intersects(b); got != intersects {
				t.Errorf("%s intersects %s: %v", a, b, got)
			}
			if got := a.Covers(b); got != covers {
				t.Errorf("%s covers %s: %v", a, b, got)
			}
		}
	}
}

func TestBadRanges(t *testing.T) {
	t.Parallel()
	one, two := shardway.Int64Key(1), shardway.Int64Key(2)
	for _, c := range []struct {
		low, high shardway.Key
		want      string
	}{
		{two, one, `range "[2, 1)" is empty`},
		{one, one, `range "[1, 1)" is empty`},
		{shardway.Key{}, one, "low is missing"},
		{one, shardway.Int32Key(2), `high "2" is an int32 key, low is an int64 key`},
	} {
		_, err := shardway.NewRange(c.low, c.high)
		if !errors.Is(err, shardway.ErrInvalid) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s…", err, c.want)
		}
	}
	if r := shardway.FullRange(shardway.KindString); r.Validate() != nil || r.String() != `["", +inf)` {
		t.Errorf("the full range is %s, %v", r, r.Validate())
	}
}

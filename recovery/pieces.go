package recovery

import (
	"slices"

	"github.com/shardway/shardway"
)

// A range of a list map stands for its low key alone. These functions know
// that; all others of this package leave it to them.

// intersects reports whether two ranges of a map share a key.
func intersects(kind shardway.MapKind, a, b shardway.Range) bool {
	if kind == shardway.ListMap {
		return a.Low == b.Low
	}
	return a.Intersects(b)
}

// precedes reports whether a ends before b begins.
func precedes(kind shardway.MapKind, a, b shardway.Range) bool {
	if kind == shardway.ListMap {
		return a.Low.Compare(b.Low) < 0
	}
	return !a.Open() && a.High.Compare(b.Low) <= 0
}

// touches reports whether b begins where a ends.
func touches(kind shardway.MapKind, a, b shardway.Range) bool {
	return kind == shardway.RangeMap && !a.Open() && a.High == b.Low
}

// cut returns the pieces into which the ends of the given ranges cut them
// all, in key order. Each piece lies wholly inside or outside of each range;
// pieces between ranges are among them.
func cut(kind shardway.MapKind, ranges []shardway.Range) []shardway.Range {
	var ends []shardway.Key
	open := false
	for _, r := range ranges {
		ends = append(ends, r.Low)
		switch {
		case kind == shardway.ListMap:
		case r.Open():
			open = true
		default:
			ends = append(ends, r.High)
		}
	}
	slices.SortFunc(ends, shardway.Key.Compare)
	ends = slices.Compact(ends)
	var pieces []shardway.Range
	for i, low := range ends {
		switch last := i == len(ends)-1; {
		case kind == shardway.ListMap, last && open:
			pieces = append(pieces, shardway.RangeFrom(low))
		case !last:
			pieces = append(pieces, shardway.Range{Low: low, High: ends[i+1]})
		}
	}
	return pieces
}

// cover finds the mappings that hold a piece, for pieces in key order that are
// not cut by the mappings.
type cover struct {
	kind   shardway.MapKind
	rows   []shardway.Mapping // in the order of their low keys
	active []shardway.Mapping
}

// at returns the mappings that hold the piece. The slice is valid until the
// next call.
func (c *cover) at(piece shardway.Range) []shardway.Mapping {
	c.active = slices.DeleteFunc(c.active, func(m shardway.Mapping) bool { return precedes(c.kind, m.Range, piece) })
	for len(c.rows) > 0 && c.rows[0].Range.Low.Compare(piece.Low) <= 0 {
		if !precedes(c.kind, c.rows[0].Range, piece) {
			c.active = append(c.active, c.rows[0])
		}
		c.rows = c.rows[1:]
	}
	return c.active
}

func byLow(a, b shardway.Mapping) int { return a.Range.Low.Compare(b.Range.Low) }

func rangesOf(mappings []shardway.Mapping) []shardway.Range {
	ranges := make([]shardway.Range, len(mappings))
	for i, m := range mappings {
		ranges[i] = m.Range
	}
	return ranges
}

// meeting returns the mappings, given in key order, that share a key with one
// of the ranges, given in key order too. Mappings may overlap each other.
func meeting(kind shardway.MapKind, mappings []shardway.Mapping, ranges []shardway.Range) []shardway.Mapping {
	ranges = union(kind, ranges)
	var met []shardway.Mapping
	i := 0
	for _, m := range mappings {
		// Low keys grow: a range that ends before this one begins is done with.
		for i < len(ranges) && precedes(kind, ranges[i], shardway.RangeFrom(m.Range.Low)) {
			i++
		}
		if i == len(ranges) {
			break
		}
		if intersects(kind, ranges[i], m.Range) {
			met = append(met, m)
		}
	}
	return met
}

// union returns disjoint ranges in key order that hold the same keys as the
// given ones, which are in the order of their low keys.
func union(kind shardway.MapKind, ranges []shardway.Range) []shardway.Range {
	var whole []shardway.Range
	for _, r := range ranges {
		n := len(whole) - 1
		switch {
		case n >= 0 && intersects(kind, whole[n], r) || n >= 0 && touches(kind, whole[n], r):
			if kind == shardway.RangeMap && !whole[n].Open() && (r.Open() || r.High.Compare(whole[n].High) > 0) {
				whole[n].High = r.High
			}
		default:
			whole = append(whole, r)
		}
	}
	return whole
}

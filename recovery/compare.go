package recovery

import (
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// span is a range of keys in the hands of a pending operation.
type span struct {
	shardway.Range

	operation store.OperationID
}

// spans returns what the pending operations of a map hold.
func spans(ops []store.Operation) []span {
	var all []span
	for _, op := range ops {
		for _, step := range op.Steps {
			for _, m := range slices.Concat(step.Remove, step.Add) {
				all = append(all, span{m.Range, op.ID})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.Low.Compare(b.Low) })
	return all
}

// comparison is the two sides of one shard. Both lists are in the order of
// their low keys. Global mappings share no key; local ones should not either,
// but a damaged local map may have any.
type comparison struct {
	kind    shardway.MapKind
	shard   shardway.ShardID
	global  []shardway.Mapping // those of the shard, and those of others that share a key with a local one
	local   []shardway.Mapping
	pending []span
	taken   map[shardway.MappingID]bool // ids of local mappings that the global map uses for others
	names   map[shardway.ShardID]string
}

// odd returns the local mappings without an equal global one, and the global
// ones of the shard without an equal local one.
func (c *comparison) odd() (global, local []shardway.Mapping) {
	there := make(map[shardway.MappingID]shardway.Mapping, len(c.global))
	for _, g := range c.global {
		there[g.ID] = g
	}
	for _, l := range c.local {
		if g, ok := there[l.ID]; ok && equal(g, l) {
			delete(there, l.ID)
			continue
		}
		local = append(local, l)
	}
	for _, g := range c.global {
		if _, left := there[g.ID]; left && g.ShardID == c.shard {
			global = append(global, g)
		}
	}
	return global, local
}

// equal reports whether two rows say the same; locks are not kept locally.
func equal(a, b shardway.Mapping) bool {
	return a.ID == b.ID && a.Range == b.Range && a.ShardID == b.ShardID && a.Status == b.Status
}

// compare cuts the differences into disjoint pieces in key order. It is a pure
// function of the two sides.
func (c *comparison) compare() (different, pending []Difference) {
	oddGlobal, oddLocal := c.odd()
	if len(oddGlobal)+len(oddLocal) == 0 {
		return nil, nil
	}
	ranges := slices.Concat(rangesOf(oddGlobal), rangesOf(oddLocal), rangesOf(meeting(c.kind, c.global, rangesOf(oddLocal))))
	held := make([]shardway.Mapping, len(c.pending))
	for i, s := range c.pending {
		ranges = append(ranges, s.Range)
		held[i] = shardway.Mapping{ID: shardway.MappingID(s.operation), Range: s.Range}
	}
	global, local := cover{kind: c.kind, rows: c.global}, cover{kind: c.kind, rows: oddLocal}
	own, spans := cover{kind: c.kind, rows: oddGlobal}, cover{kind: c.kind, rows: held}
	for _, piece := range cut(c.kind, ranges) {
		d := Difference{Range: piece}
		at, odd, there := global.at(piece), len(own.at(piece)) > 0, local.at(piece)
		if len(there) == 0 && !odd {
			spans.at(piece)
			continue
		}
		if len(at) > 0 {
			d.Global = c.claim(at[0])
		}
		if len(there) > 0 {
			d.Local = c.claim(there[0])
		}
		if s := spans.at(piece); len(s) > 0 {
			d.Operation = store.OperationID(s[0].ID)
			pending = join(c.kind, pending, d)
		} else if d.Global != d.Local {
			different = join(c.kind, different, d)
		}
	}
	return different, pending
}

func (c *comparison) claim(m shardway.Mapping) Claim {
	name, ok := c.names[m.ShardID]
	if !ok {
		name = hexID(int64(m.ShardID))
	}
	return Claim{Mapping: m.ID, ShardID: m.ShardID, Shard: name, Status: m.Status}
}

// join adds a piece, or prolongs the last one when it is its continuation.
func join(kind shardway.MapKind, pieces []Difference, d Difference) []Difference {
	if n := len(pieces) - 1; n >= 0 && touches(kind, pieces[n].Range, d.Range) {
		last := pieces[n]
		last.Range = d.Range
		if last == d {
			pieces[n].Range.High = d.Range.High
			return pieces
		}
	}
	return append(pieces, d)
}

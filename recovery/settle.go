package recovery

import (
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Keep says which side of a difference becomes the truth.
type Keep uint8

// The sides.
const (
	Ignore     Keep = 0 // nothing changes
	KeepGlobal Keep = 1 // the local map becomes what the global one says
	KeepLocal  Keep = 2 // the global map becomes what the local one says
)

// String returns ignore, global or local.
func (k Keep) String() string {
	switch k {
	case Ignore:
		return "ignore"
	case KeepGlobal:
		return "global"
	case KeepLocal:
		return "local"
	}
	return "invalid"
}

// decision is a piece of a difference and the side that is kept there.
type decision struct {
	shardway.Range

	keep Keep
}

// rewrite is which rows go and come on both sides.
type rewrite struct {
	removeGlobal, addGlobal []shardway.Mapping
	removeLocal, addLocal   []shardway.Mapping
	owned                   []shardway.Range // decided pieces that the shard owns afterwards
}

// holder is who has a piece: what a row says of it.
type holder struct {
	row    shardway.MappingID // whose content it is; 0: nobody has the piece
	shard  shardway.ShardID
	status shardway.MappingStatus
	lock   shardway.Lock
}

func holderOf(m shardway.Mapping) holder {
	return holder{row: m.ID, shard: m.ShardID, status: m.Status, lock: m.Lock}
}

// settle decides what becomes of the rows when each decided piece goes to the
// side that is kept. Everything outside of these pieces stays as it is, on
// both sides. A row that survives as it was keeps its id; what is cut, or
// would give one id two meanings, gets a new one. Where both sides agree
// afterwards, they have the same row.
func (c *comparison) settle(m shardway.MapID, decisions []decision) rewrite {
	touched := make([]shardway.Range, len(decisions))
	decided := make([]shardway.Mapping, len(decisions)) // rows that stand for the decisions
	for i, d := range decisions {
		touched[i] = d.Range
		decided[i] = shardway.Mapping{ID: shardway.MappingID(i), Range: d.Range}
	}
	global, local := meeting(c.kind, c.global, touched), meeting(c.kind, c.local, touched)
	global, local = counterparts(global, c.global, local), counterparts(local, c.local, global)
	t := table{kind: c.kind, m: m, shard: c.shard, taken: c.taken, global: byID(global), local: byID(local), fresh: map[shardway.Key]shardway.MappingID{}}
	inGlobal, inLocal, decide := cover{kind: c.kind, rows: global}, cover{kind: c.kind, rows: local}, cover{kind: c.kind, rows: decided}
	var out rewrite
	for _, piece := range cut(c.kind, slices.Concat(rangesOf(global), rangesOf(local), touched)) {
		var g, l holder
		if at := inGlobal.at(piece); len(at) > 0 {
			g = holderOf(at[0])
		}
		for _, at := range inLocal.at(piece) {
			if l.row == 0 || l.row == g.row { // of several, one that the global map has not
				l = holderOf(at)
			}
		}
		keep := Ignore
		if at := decide.at(piece); len(at) > 0 {
			keep = decisions[at[0].ID].keep
		}
		g, l = c.kept(keep, g, l)
		both := g.row != 0 && g.row == l.row && g.shard == c.shard && g.status == l.status
		if both && keep != Ignore {
			out.owned = append(out.owned, piece)
		}
		t.left = t.grow(t.left, run{piece, g, both})
		if l.lock = (shardway.Lock{}); both {
			l.lock = g.lock // so that both sides have rows of the same length
		}
		t.right = t.grow(t.right, run{piece, l, both})
	}
	t.finish(&out)
	return out
}

// kept returns who has a piece on both sides once one side is kept.
func (c *comparison) kept(keep Keep, g, l holder) (holder, holder) {
	switch {
	case keep == KeepGlobal && g.shard == c.shard:
		return g, g
	case keep == KeepGlobal:
		return g, holder{}
	case keep == KeepLocal && l.row != 0:
		l.shard, l.lock = c.shard, shardway.Lock{}
		if l.row == g.row {
			l.lock = g.lock
		}
		return l, l
	case keep == KeepLocal:
		return holder{}, holder{}
	}
	return g, l
}

// counterparts adds to some rows of one side those with the ids of rows of the
// other side: what is cut there gets a new id here as well.
func counterparts(some, all, other []shardway.Mapping) []shardway.Mapping {
	wanted := byID(other)
	for _, m := range some {
		delete(wanted, m.ID)
	}
	if len(wanted) == 0 {
		return some
	}
	for _, m := range all {
		if _, ok := wanted[m.ID]; ok {
			some = append(some, m)
		}
	}
	slices.SortFunc(some, byLow)
	return some
}

func byID(mappings []shardway.Mapping) map[shardway.MappingID]shardway.Mapping {
	rows := make(map[shardway.MappingID]shardway.Mapping, len(mappings))
	for _, m := range mappings {
		rows[m.ID] = m
	}
	return rows
}

// run is a row in the making: pieces next to each other with one holder.
type run struct {
	shardway.Range
	holder

	both bool // the same on the other side
}

// table collects the rows of both sides.
type table struct {
	kind          shardway.MapKind
	m             shardway.MapID
	shard         shardway.ShardID
	taken         map[shardway.MappingID]bool
	global, local map[shardway.MappingID]shardway.Mapping // the rows that stand now
	left, right   []run
	cut           map[shardway.MappingID]bool         // rows of which one side has several pieces now
	fresh         map[shardway.Key]shardway.MappingID // new ids of rows that both sides have, by low key
}

func (t *table) grow(runs []run, next run) []run {
	if n := len(runs) - 1; n >= 0 && runs[n].holder == next.holder && runs[n].both == next.both && touches(t.kind, runs[n].Range, next.Range) {
		runs[n].High = next.High
		return runs
	}
	if next.row == 0 {
		return runs
	}
	return append(runs, next)
}

func (t *table) mapping(r run, id shardway.MappingID) shardway.Mapping {
	return shardway.Mapping{ID: id, MapID: t.m, Range: r.Range, ShardID: r.shard, Status: r.status, Lock: r.lock}
}

// finish gives the rows their ids and compares them with those that stand.
func (t *table) finish(out *rewrite) {
	t.cut = map[shardway.MappingID]bool{}
	for _, runs := range [][]run{t.left, t.right} {
		seen := make(map[shardway.MappingID]bool, len(runs))
		for _, r := range runs {
			t.cut[r.row] = t.cut[r.row] || seen[r.row]
			seen[r.row] = true
		}
	}
	stays := map[shardway.MappingID]bool{}
	for _, r := range t.left {
		id := t.globalID(r)
		if row, ok := t.global[id]; ok && equal(row, t.mapping(r, id)) {
			stays[id] = true
			continue
		}
		out.addGlobal = append(out.addGlobal, t.mapping(r, id))
	}
	out.removeGlobal = t.rest(t.global, stays)
	stays = map[shardway.MappingID]bool{}
	for _, r := range t.right {
		id := t.localID(r)
		if row, ok := t.local[id]; ok && equal(row, t.mapping(r, id)) {
			stays[id] = true
			continue
		}
		added := t.mapping(r, id)
		added.Lock = shardway.Lock{} // which is not kept locally
		out.addLocal = append(out.addLocal, added)
	}
	out.removeLocal = t.rest(t.local, stays)
}

func (t *table) rest(rows map[shardway.MappingID]shardway.Mapping, stays map[shardway.MappingID]bool) []shardway.Mapping {
	var gone []shardway.Mapping
	for id, m := range rows {
		if !stays[id] {
			gone = append(gone, m)
		}
	}
	slices.SortFunc(gone, byLow)
	return gone
}

// globalID returns the id of a row of the global side. One that both sides
// have keeps the id of a whole row of either side, unless the global map uses
// it for something else.
func (t *table) globalID(r run) shardway.MappingID {
	g, inGlobal := t.global[r.row]
	l, inLocal := t.local[r.row]
	wanted := t.mapping(r, r.row)
	if r.both && t.cut[r.row] {
		wanted.ID = 0 // the id stays with, or goes with, the other pieces
	}
	if inGlobal && equal(g, wanted) || r.both && !inGlobal && !t.taken[r.row] && inLocal && equal(l, wanted) {
		if r.both {
			t.fresh[r.Low] = r.row
		}
		return r.row
	}
	id := shardway.MappingID(store.NewID())
	if r.both {
		t.fresh[r.Low] = id
	}
	return id
}

func (t *table) localID(r run) shardway.MappingID {
	if id, ok := t.fresh[r.Low]; ok && r.both {
		return id
	}
	if l, ok := t.local[r.row]; ok && equal(l, t.mapping(r, r.row)) {
		return r.row
	}
	return shardway.MappingID(store.NewID())
}

package mapfile

import "github.com/shardway/shardway"

// phases are the changes of a map's mappings. First all mappings are cut where
// a wanted one begins or ends; then each piece lies in one wanted mapping or in
// none, gets the shard and the status that are wanted there, and gaps are
// filled; then the pieces of each wanted mapping are merged.
type phases struct {
	splits, deletes, moves, statuses, merges []Action
	added                                    []Mapping
	gets                                     map[string]bool // shards that take mappings
}

func (p *planner) mappings() *phases {
	f := &phases{gets: map[string]bool{}}
	pieces := f.cut(p.is, p.want)
	for _, want := range p.want.Mappings {
		for len(pieces) > 0 && before(p.want.Kind, pieces[0].Range, want.Range) {
			f.remove(pieces[0])
			pieces = pieces[1:]
		}
		n := 0
		for n < len(pieces) && within(p.want.Kind, pieces[n].Range, want.Range) {
			n++
		}
		f.settle(p.want.Kind, pieces[:n], want)
		pieces = pieces[n:]
	}
	for _, piece := range pieces {
		f.remove(piece)
	}
	return f
}

// before reports whether a lies below b.
func before(kind shardway.MapKind, a, b shardway.Range) bool {
	if kind == shardway.ListMap {
		return a.Low.Compare(b.Low) < 0
	}
	return !a.Open() && a.High.Compare(b.Low) <= 0
}

func within(kind shardway.MapKind, a, b shardway.Range) bool {
	if kind == shardway.ListMap {
		return a.Low == b.Low
	}
	return b.Covers(a)
}

// cut splits the mappings of is at the ends of those of want.
func (f *phases) cut(is, want Map) []Mapping {
	if want.Kind == shardway.ListMap {
		return is.Mappings
	}
	var ends []shardway.Key // in order, the same one at most twice in a row
	for _, w := range want.Mappings {
		ends = append(ends, w.Range.Low)
		if !w.Range.Open() {
			ends = append(ends, w.Range.High)
		}
	}
	var pieces []Mapping
	for _, m := range is.Mappings {
		for len(ends) > 0 && ends[0].Compare(m.Range.Low) <= 0 {
			ends = ends[1:]
		}
		for len(ends) > 0 && m.Range.Contains(ends[0]) {
			at := ends[0]
			ends = ends[1:]
			if at == m.Range.Low {
				continue
			}
			f.splits = append(f.splits, Action{Kind: Split, Mappings: []Mapping{m}, At: at})
			lower := m
			lower.Range.High, m.Range.Low = at, at
			pieces = append(pieces, lower)
		}
		pieces = append(pieces, m)
	}
	return pieces
}

// remove plans the end of a piece that lies in no wanted mapping.
func (f *phases) remove(piece Mapping) {
	if piece.Status == shardway.Online {
		f.deletes = append(f.deletes, Action{Kind: Status, Mappings: []Mapping{piece}, Status: shardway.Offline})
		piece.Status = shardway.Offline
	}
	f.deletes = append(f.deletes, Action{Kind: Delete, Mappings: []Mapping{piece}})
}

// settle makes pieces, and what is missing between them, a wanted mapping.
func (f *phases) settle(kind shardway.MapKind, pieces []Mapping, want Mapping) {
	var parts []Mapping
	rest := want.Range // of the wanted one, above all parts so far
	for _, piece := range pieces {
		if kind == shardway.RangeMap && rest.Low != piece.Range.Low {
			parts = append(parts, f.fill(want, shardway.Range{Low: rest.Low, High: piece.Range.Low}))
		}
		parts = append(parts, f.adapt(piece, want))
		rest.Low = piece.Range.High
	}
	switch {
	case kind == shardway.ListMap && len(pieces) > 0:
	case len(pieces) > 0 && pieces[len(pieces)-1].Range.High == want.Range.High:
	default:
		parts = append(parts, f.fill(want, rest))
	}
	whole := parts[0]
	for _, right := range parts[1:] {
		f.merges = append(f.merges, Action{Kind: Merge, Mappings: []Mapping{whole, right}})
		whole.Range.High = right.Range.High
	}
}

// fill plans a new mapping.
func (f *phases) fill(want Mapping, r shardway.Range) Mapping {
	n := Mapping{Range: r, Shard: want.Shard, Status: want.Status}
	f.added = append(f.added, n)
	f.gets[want.Shard] = true
	return n
}

// adapt gives a piece the shard and the status that are wanted. One that is
// online is moved offline, and comes back online by a change of its own.
func (f *phases) adapt(piece, want Mapping) Mapping {
	if piece.Shard != want.Shard {
		status := want.Status
		if piece.Status == shardway.Online {
			status = shardway.Offline
		}
		f.moves = append(f.moves, Action{Kind: Move, Mappings: []Mapping{piece}, From: piece.Shard, To: want.Shard, Status: status})
		f.gets[want.Shard] = true
		piece.Shard, piece.Status = want.Shard, status
	}
	if piece.Status != want.Status {
		f.statuses = append(f.statuses, Action{Kind: Status, Mappings: []Mapping{piece}, Status: want.Status})
		piece.Status = want.Status
	}
	return piece
}

// adds are the additions, many mappings at a time.
func (f *phases) adds() (all []Action) {
	for rest := f.added; len(rest) > 0; {
		n := min(batch, len(rest))
		all = append(all, Action{Kind: Add, Mappings: rest[:n]})
		rest = rest[n:]
	}
	return all
}

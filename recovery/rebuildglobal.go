package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// RebuildGlobal makes the global map what the local maps of shards say: for a
// global store that was lost or restored from an older backup. Shard map and
// shards must be there: see [Recovery.Attach]. A key that two local maps claim
// stays as it is in the global map; both shards name the conflict. Results come
// in the order of the shards' names. A shard that cannot be read keeps what it
// has and does not stop the others.
//
// What many shards have goes into the global map in few operations; what is
// left after that is resolved shard by shard.
func (r *Recovery) RebuildGlobal(ctx context.Context, m shardway.ShardMap, b Rebuild) ([]Rebuilt, error) {
	shards, err := r.shards(ctx, m, b.Shards)
	if err != nil {
		return nil, err
	}
	if m, err = r.mapOf(ctx, m); err != nil {
		return nil, err
	}
	w := &wholesale{r: r, m: m, rebuild: b, all: make([]Rebuilt, len(shards)), index: map[shardway.ShardID]int{}}
	for i, s := range shards {
		w.all[i].Shard = s
		w.index[s.ID] = i
	}
	if err := w.read(ctx); err != nil {
		return w.all, err
	}
	if w.still && !b.DryRun && len(w.claims.lost) == 0 {
		if err := w.run(ctx); err != nil {
			return w.all, err
		}
	}
	w.global = nil
	res := b.resolution(KeepLocal, "rebuild global map")
	err = r.each(ctx, "rebuilding", len(shards), func(i int) {
		if w.all[i].Err == nil {
			r.rebuild(ctx, &w.all[i], res, w.claims, b.DryRun)
		}
	})
	return w.all, err
}

// mapOf returns the current row of a map given by value.
func (r *Recovery) mapOf(ctx context.Context, m shardway.ShardMap) (shardway.ShardMap, error) {
	at, err := r.moment(ctx, m.ID)
	if err != nil {
		return m, err
	}
	return at.m, nil
}

// wholesale is the rebuild of a global map for many shards at once.
type wholesale struct {
	r       *Recovery
	m       shardway.ShardMap
	rebuild Rebuild
	all     []Rebuilt
	index   map[shardway.ShardID]int // into all
	ready   map[shardway.ShardID]bool

	claims *claims
	global []claim // the rows of the global map, in key order
	locked map[shardway.MappingID]bool
	busy   []shardway.Range // in the hands of pending operations
	still  bool             // nothing changed while all this was read
}

// read reads all local maps and the global one.
func (w *wholesale) read(ctx context.Context) error {
	for try := 1; ; try++ {
		before, err := w.r.moment(ctx, w.m.ID)
		if err != nil {
			return err
		}
		if err := w.readLocals(ctx); err != nil {
			return err
		}
		after, err := w.readGlobal(ctx)
		if err != nil {
			return err
		}
		if w.still = before.same(after); w.still || try == looks {
			return nil
		}
	}
}

func (w *wholesale) readLocals(ctx context.Context) error {
	globalID, err := w.r.globalID(ctx)
	if err != nil {
		return err
	}
	shards, err := w.r.shards(ctx, w.m, nil)
	if err != nil {
		return err
	}
	w.claims, w.ready = &claims{kind: w.m.Kind, names: map[shardway.ShardID]string{}}, map[shardway.ShardID]bool{}
	err = w.r.each(ctx, "reading", len(shards), func(i int) {
		s := shards[i]
		f := w.r.read(ctx, s.Location, w.m.ID, globalID)
		w.r.told.Lock()
		defer w.r.told.Unlock()
		w.claims.add(s, f, w.rebuild.IgnoreUnreachable)
		if at, ours := w.index[s.ID]; ours {
			w.all[at].Err = f.err
			w.ready[s.ID] = f.state == Equal && f.local.Shard.ID == s.ID
		}
	})
	slices.Sort(w.claims.lost)
	w.claims.order()
	return err
}

func (w *wholesale) readGlobal(ctx context.Context) (at *moment, err error) {
	err = w.r.view(ctx, func(tx store.Reader) error {
		w.global, w.locked, w.busy = nil, map[shardway.MappingID]bool{}, nil
		if at, err = momentOf(ctx, tx, w.m.ID); err != nil {
			return err
		}
		for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: w.m}) {
			if err != nil {
				return err
			}
			w.global = append(w.global, claim{Range: row.Range, mapping: row.ID, shard: row.ShardID, status: row.Status})
			if row.Lock.Token != "" {
				w.locked[row.ID] = true
			}
		}
		ops, err := tx.Operations(ctx, store.OperationQuery{Map: w.m.ID})
		if err != nil {
			return err
		}
		for _, s := range spans(ops) {
			w.busy = append(w.busy, s.Range)
		}
		w.busy = union(w.m.Kind, w.busy)
		return nil
	})
	return at, err
}

// step is a row of the global map that goes or comes. There are as many as the
// map has rows: it points to what was read.
type step struct {
	*claim

	add bool
}

// plan lists, in key order, the rows that can go and come without a look at
// single shards: whose shard was read, which no other shard claims, no
// operation holds and nobody has locked, and whose ids mean one thing.
func (w *wholesale) plan() []step {
	wanted, difficult := w.wanted()
	kept := w.kept()
	var steps []step
	var stay []claim
	for i := range w.global {
		g := &w.global[i]
		_, hit := difficult.other(0, g.Range)
		if kept[g.mapping] || hit || !w.ready[g.shard] || w.held(g.Range) || w.locked[g.mapping] && !w.rebuild.Force {
			stay = append(stay, *g)
			continue
		}
		steps = append(steps, step{claim: g})
	}
	staying := &claims{kind: w.m.Kind, sorted: stay}
	staying.order()
	for _, i := range wanted {
		c := &w.claims.sorted[i]
		if _, hit := staying.other(0, c.Range); !hit {
			steps = append(steps, step{claim: c, add: true})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return a.Low.Compare(b.Low) })
	return steps
}

// wanted returns which of the claims, by index, are missing in the global map
// and can come, and those that are missing and need a look.
func (w *wholesale) wanted() (easy []int, hard *claims) {
	there := make(map[shardway.MappingID]int, len(w.global)) // id → index in global
	for i, g := range w.global {
		there[g.mapping] = i
	}
	hard = &claims{kind: w.m.Kind}
	for i, c := range w.claims.sorted {
		at, known := there[c.mapping]
		if known && w.global[at] == c {
			continue
		}
		alone := i == 0 || precedes(w.m.Kind, w.claims.sorted[w.claims.reach[i-1]].Range, c.Range)
		alone = alone && (i+1 == len(w.claims.sorted) || precedes(w.m.Kind, c.Range, w.claims.sorted[i+1].Range))
		if alone && w.ready[c.shard] && !known && !w.held(c.Range) {
			easy = append(easy, i)
		} else {
			hard.sorted = append(hard.sorted, c)
		}
	}
	hard.order()
	return easy, hard
}

// kept returns the ids of global rows that a local map has too: equal, or one
// id with two meanings.
func (w *wholesale) kept() map[shardway.MappingID]bool {
	there := make(map[shardway.MappingID]bool, len(w.global))
	for _, g := range w.global {
		there[g.mapping] = false
	}
	for _, c := range w.claims.sorted {
		if _, known := there[c.mapping]; known {
			there[c.mapping] = true
		}
	}
	return there
}

func (w *wholesale) held(r shardway.Range) bool {
	return slices.ContainsFunc(w.busy, func(b shardway.Range) bool { return intersects(w.m.Kind, b, r) })
}

// batchRows is how many rows one operation changes: enough to be quick, few
// enough not to keep others waiting for long.
const batchRows = 20000

// run makes the planned changes, region by region of the keys.
func (w *wholesale) run(ctx context.Context) error {
	steps := w.plan()
	for len(steps) > 0 {
		n := 1
		last := steps[0].Range // the region so far
		for n < len(steps) && (n < batchRows || !precedes(w.m.Kind, last, steps[n].Range)) {
			if !last.Open() && (steps[n].Open() || steps[n].High.Compare(last.High) > 0) {
				last.High = steps[n].High
			}
			last.Low = steps[n].Low
			n++
		}
		region := shardway.Range{Low: steps[0].Low, High: last.High}
		if w.m.Kind == shardway.ListMap && n < len(steps) {
			region.High = steps[n].Low
		}
		if err := w.batch(ctx, steps[:n], region); err != nil {
			return err
		}
		steps = steps[n:]
		w.r.told.Lock()
		if w.r.cfg.Progress != nil {
			w.r.cfg.Progress(Progress{Doing: "rebuilding regions", Done: len(w.all) - len(w.all)*len(steps)/max(len(steps)+n, 1), Total: len(w.all)})
		}
		w.r.told.Unlock()
	}
	return nil
}

// batch changes one region of the global map. When that cannot be done at
// once, it is left to the shards, one by one.
func (w *wholesale) batch(ctx context.Context, steps []step, region shardway.Range) error {
	ch := catalog.Reconcile{
		Map: w.m, Force: w.rebuild.Force, Kind: "rebuild global map", Reason: w.rebuild.Reason,
		Basis: []catalog.Basis{{Within: region, IDs: w.within(region)}},
	}
	removed, added := map[shardway.ShardID][]shardway.Mapping{}, map[shardway.ShardID][]shardway.Mapping{}
	for _, s := range steps {
		mp := shardway.Mapping{ID: s.mapping, MapID: w.m.ID, Range: s.Range, ShardID: s.shard, Status: s.status}
		if s.add {
			ch.Add, added[s.shard] = append(ch.Add, mp), append(added[s.shard], mp)
		} else {
			ch.Remove, removed[s.shard] = append(ch.Remove, mp), append(removed[s.shard], mp)
		}
	}
	for i := range w.all {
		shard := w.all[i].Shard
		if len(removed[shard.ID])+len(added[shard.ID]) > 0 {
			ch.Parts = append(ch.Parts, catalog.Part{Shard: shard, Found: &shard}) // the local map stays as it is
		}
	}
	ch.Summary = fmt.Sprintf("%d shards, global map -%d +%d mappings, from the local maps", len(ch.Parts), len(ch.Remove), len(ch.Add))
	result, err := w.r.catalog.Do(ctx, ch)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, shardway.ErrStale), errors.Is(err, shardway.ErrPending), errors.Is(err, shardway.ErrExists):
		return nil
	default:
		return fmt.Errorf("rebuilding shard map %q: %w", w.m.Name, err)
	}
	result.Mappings, result.Shards = nil, nil
	for i := range w.all {
		id := w.all[i].Shard.ID
		if len(removed[id])+len(added[id]) > 0 {
			w.all[i].Effect = w.all[i].Effect.and(Effect{GlobalRemoved: removed[id], GlobalAdded: added[id], Result: result})
		}
	}
	return nil
}

// within returns the ids of the rows of the global map that a query for the
// region finds, as they were read.
func (w *wholesale) within(region shardway.Range) []shardway.MappingID {
	var ids []shardway.MappingID
	for _, g := range w.global {
		if w.m.Kind == shardway.ListMap && region.Contains(g.Low) || w.m.Kind == shardway.RangeMap && region.Intersects(g.Range) {
			ids = append(ids, g.mapping)
		}
	}
	return ids
}

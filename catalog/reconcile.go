package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Reconcile makes the global map and the local maps of some shards say the
// same. It writes what package recovery has decided after reading both, and
// nothing else: what was read is in Basis, and when the global map has changed
// since, the change is [shardway.ErrStale]. While it runs no other change
// works on its shards, so that the local maps stay as they were read too.
type Reconcile struct {
	Map   shardway.ShardMap
	Parts []Part  // the shards concerned; at least one
	Basis []Basis // what was decided upon
	// Remove and Add are mappings of the global map, of whichever shards. Those
	// to add keep their ids; what they cover must be free once Remove is gone.
	Remove, Add []shardway.Mapping
	Force       bool   // although mappings to remove are locked by others
	Kind        string // for the history; empty: "resolve differences"
	Summary     string // for the history; empty: how many mappings change
	Reason      string // for the history; may be empty
}

// Part is what changes in the local map of one shard. The local row of the
// shard becomes what the global map says, and missing tables are created.
type Part struct {
	Shard       shardway.Shard     // row of the global map, as read; [shardway.ErrStale] when it has changed since
	Found       *shardway.Shard    // row of the local map, as read; nil for none
	Remove, Add []shardway.Mapping // of the local map; those to add keep their ids
}

// Basis is a part of the global map as it was read: all its mappings of one
// shard, or all in a range of keys, pending ones included.
type Basis struct {
	ShardID shardway.ShardID     // 0: of all shards
	Within  shardway.Range       // the zero value: everywhere
	IDs     []shardway.MappingID // in the order of [store.Reader.Mappings]
}

func (ch Reconcile) target() shardway.MapID { return ch.Map.ID }

func (ch Reconcile) plan(ctx context.Context, s *state) (*plan, error) {
	m, err := s.shardMap(ctx, ch.Map)
	if err != nil {
		return nil, err
	}
	if len(ch.Parts) == 0 {
		return nil, &shardway.ArgumentError{Argument: "shards", Reason: "are missing"}
	}
	p := &plan{kind: cmp.Or(ch.Kind, "resolve differences"), summary: ch.Summary, reason: ch.Reason, m: m, result: Result{Map: m}}
	p.result.Mappings = slices.Concat(ch.Add, nil)
	global := store.Step{Shard: ch.Parts[0].Shard, GlobalOnly: true, Remove: ch.Remove, Add: ch.Add}
	changes := len(ch.Remove) + len(ch.Add)
	var marks []store.Step
	for i, part := range ch.Parts {
		row, local, err := s.part(ctx, m, part)
		if err != nil {
			return nil, err
		}
		if local != nil {
			p.steps = append(p.steps, *local)
			changes += len(part.Remove) + len(part.Add) + 1
			p.result.Mappings = append(p.result.Mappings, part.Add...)
		}
		p.result.Shards = append(p.result.Shards, row)
		if i == 0 { // the same before and after: a mark that keeps others away
			global.Before, global.After = &row, &row
			continue
		}
		marks = append(marks, store.Step{Shard: row, GlobalOnly: true, Before: &row, After: &row})
	}
	if changes == 0 {
		p.nothing = true
		return p, nil
	}
	p.steps = append(append(p.steps, global), marks...)
	if p.summary == "" {
		p.summary = fmt.Sprintf("shard %q and %d more, %d rows", ch.Parts[0].Shard.Name, len(ch.Parts)-1, changes)
	}
	return p, ch.check(ctx, s, m)
}

// part checks one shard and returns its row and the step of its local store,
// nil when nothing changes there.
func (s *state) part(ctx context.Context, m shardway.ShardMap, part Part) (shardway.Shard, *store.Step, error) {
	_, row, err := s.currentShard(ctx, part.Shard)
	if err != nil {
		return row, nil, err
	}
	if err := s.checkIdle(ctx, m, row, nil); err != nil {
		return row, nil, err
	}
	step := &store.Step{Shard: row, LocalOnly: true, Remove: part.Remove, Add: part.Add}
	if part.Found == nil || !SameShard(*part.Found, row) {
		step.Before, step.After = part.Found, &row
	}
	if step.After == nil && len(step.Remove)+len(step.Add) == 0 {
		return row, nil, nil
	}
	return row, step, nil
}

// SameShard reports whether two rows of a shard say the same in every field.
func SameShard(a, b shardway.Shard) bool {
	return a.ID == b.ID && a.MapID == b.MapID && a.Name == b.Name && a.Status == b.Status && a.Version == b.Version &&
		sameLocation(a.Location, b.Location)
}

func sameLocation(a, b shardway.Location) bool {
	return a.Engine == b.Engine && a.Database == b.Database && slices.EqualFunc(a.Servers, b.Servers, func(x, y shardway.Server) bool {
		if x.Address != y.Address || len(x.Tags) != len(y.Tags) {
			return false
		}
		for name, value := range x.Tags {
			if other, ok := y.Tags[name]; !ok || other != value {
				return false
			}
		}
		return true
	})
}

// check compares the global map with what the change was decided upon, and
// looks whether its mappings can go and come.
func (ch Reconcile) check(ctx context.Context, s *state, m shardway.ShardMap) error {
	known := map[shardway.MappingID]store.MappingRow{}
	var window []store.MappingRow // all rows of the one basis that has all shards
	for _, b := range ch.Basis {
		rows, err := s.basis(ctx, m, b)
		if err != nil {
			return err
		}
		for _, row := range rows {
			known[row.ID] = row
		}
		if b.ShardID == 0 && b.Within != (shardway.Range{}) {
			window = append(window, rows...)
		}
	}
	if err := ch.checkRemoved(ctx, s, m, known); err != nil {
		return err
	}
	return ch.checkAdded(ctx, s, m, window)
}

func (s *state) basis(ctx context.Context, m shardway.ShardMap, b Basis) ([]store.MappingRow, error) {
	rows, err := collect(s.tx.Mappings(ctx, store.MappingQuery{Map: m, ShardID: b.ShardID, Within: b.Within}))
	if err != nil {
		return nil, err
	}
	same := len(rows) == len(b.IDs)
	for i, row := range rows {
		if row.Operation != 0 {
			return nil, &PendingError{Operation: row.Operation, Object: "mapping " + row.Format(m.Kind)}
		}
		same = same && row.ID == b.IDs[i]
	}
	if !same {
		return nil, fmt.Errorf("shard map %q has changed since it was compared: %w", m.Name, shardway.ErrStale)
	}
	return rows, nil
}

func (ch Reconcile) checkRemoved(ctx context.Context, s *state, m shardway.ShardMap, known map[shardway.MappingID]store.MappingRow) error {
	var ids []shardway.MappingID
	for _, mp := range ch.Remove {
		if _, ok := known[mp.ID]; !ok {
			ids = append(ids, mp.ID)
		}
	}
	if len(ids) > 0 {
		for row, err := range s.tx.Mappings(ctx, store.MappingQuery{Map: m, IDs: ids}) {
			if err != nil {
				return err
			}
			known[row.ID] = row
		}
	}
	for _, mp := range ch.Remove {
		row, ok := known[mp.ID]
		switch {
		case !ok || row.Pending || row.Range != mp.Range || row.ShardID != mp.ShardID || row.Status != mp.Status:
			return fmt.Errorf("mapping %s (%s) of shard map %q: %w", mp.Format(m.Kind), mp.ID, m.Name, shardway.ErrStale)
		case row.Operation != 0:
			return &PendingError{Operation: row.Operation, Object: "mapping " + mp.Format(m.Kind)}
		case !ch.Force && s.held(row.Lock):
			return fmt.Errorf("changing mapping %s of shard map %q: %s: %w",
				mp.Format(m.Kind), m.Name, lockedBy(row.Lock), shardway.ErrMappingLocked)
		}
	}
	return nil
}

// checkAdded refuses mappings that are no mappings of the map, and those that
// share a key with each other or with one that stays. Ranges within what goes
// are free: no two mappings of the global map share a key.
func (ch Reconcile) checkAdded(ctx context.Context, s *state, m shardway.ShardMap, window []store.MappingRow) error {
	if len(ch.Add) == 0 {
		return nil
	}
	shards, err := s.tx.Shards(ctx, m.ID)
	if err != nil {
		return err
	}
	known := map[shardway.ShardID]bool{}
	for _, row := range shards {
		known[row.ID] = !row.Pending
	}
	added := slices.SortedFunc(slices.Values(ch.Add), byLow)
	for i, mp := range added {
		if err := checkRange(m, mp.Range); err != nil {
			return fmt.Errorf("adding mapping to shard map %q: %w", m.Name, err)
		}
		if !known[mp.ShardID] {
			return &shardway.LookupError{Map: m.Name, Shard: fmt.Sprint(mp.ShardID), Err: shardway.ErrShardNotFound}
		}
		if i > 0 && clash(m, added[i-1].Range, mp.Range) {
			return overlapError(m, shards, mp, added[i-1])
		}
	}
	gone := slices.SortedFunc(slices.Values(ch.Remove), byLow)
	fresh := slices.DeleteFunc(added, func(mp shardway.Mapping) bool { return covered(m, gone, mp.Range) })
	if len(fresh) == 0 {
		return nil
	}
	if window == nil {
		if window, err = collect(s.between(ctx, m, fresh[0].Range, fresh[len(fresh)-1].Range)); err != nil {
			return err
		}
	}
	return checkStay(m, shards, fresh, window, gone)
}

func byLow(a, b shardway.Mapping) int { return a.Range.Low.Compare(b.Range.Low) }

// covered reports whether each key of r lies in one of the mappings, which are
// in key order and share none.
func covered(m shardway.ShardMap, sorted []shardway.Mapping, r shardway.Range) bool {
	i, exact := slices.BinarySearchFunc(sorted, r.Low, func(mp shardway.Mapping, low shardway.Key) int { return mp.Range.Low.Compare(low) })
	if m.Kind == shardway.ListMap {
		return exact
	}
	if !exact {
		i--
	}
	for reached := r.Low; i >= 0 && i < len(sorted); i++ {
		next := sorted[i].Range
		if !next.Contains(reached) {
			return false
		}
		if next.Covers(shardway.Range{Low: reached, High: r.High}) {
			return true
		}
		reached = next.High
	}
	return false
}

// checkStay refuses a mapping that shares a key with a row that stays.
func checkStay(m shardway.ShardMap, shards []store.ShardRow, fresh []shardway.Mapping, rows []store.MappingRow, gone []shardway.Mapping) error {
	leaving := make(map[shardway.MappingID]bool, len(gone))
	for _, mp := range gone {
		leaving[mp.ID] = true
	}
	i := 0
	for _, row := range rows {
		for i < len(fresh) && before(m, fresh[i].Range, row.Range) {
			i++
		}
		if i == len(fresh) {
			break
		}
		if leaving[row.ID] || !clash(m, fresh[i].Range, row.Range) {
			continue
		}
		if row.Operation != 0 {
			return &PendingError{Operation: row.Operation, Object: "mapping " + row.Format(m.Kind)}
		}
		return overlapError(m, shards, fresh[i], row.Mapping)
	}
	return nil
}

package catalog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// AddMappings adds mappings to a map, one or many at once: all of them, or
// none. A point or range that is taken, in the map or by another one of the
// list, is [shardway.ErrExists]; the error names both. Gaps are legal.
type AddMappings struct {
	Map    shardway.ShardMap
	New    []NewMapping
	Reason string // for the history; may be empty
}

// NewMapping is a mapping to add. In a list map Range is
// [shardway.RangeFrom](point).
type NewMapping struct {
	Range   shardway.Range
	ShardID shardway.ShardID
	Offline bool
}

func (ch AddMappings) target() shardway.MapID { return ch.Map.ID }

func (ch AddMappings) plan(ctx context.Context, s *state) (*plan, error) {
	m, err := s.shardMap(ctx, ch.Map)
	if err != nil {
		return nil, err
	}
	if len(ch.New) == 0 {
		return nil, &shardway.ArgumentError{Argument: "mappings", Reason: "are missing"}
	}
	shards, err := s.tx.Shards(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	p := &plan{kind: "add mapping", reason: ch.Reason, m: m, result: Result{Map: m}}
	step := map[shardway.ShardID]int{} // shard → index in p.steps
	for _, n := range ch.New {
		if err := checkRange(m, n.Range); err != nil {
			return nil, fmt.Errorf("adding mapping to shard map %q: %w", m.Name, err)
		}
		i, seen := step[n.ShardID]
		if !seen {
			row, err := findShard(m, shards, n.ShardID)
			if err != nil {
				return nil, err
			}
			if row.Status == shardway.ShardOffline {
				return nil, &shardway.ArgumentError{Argument: "shard", Value: row.Name, Reason: "is offline: it takes no new mappings"}
			}
			i = len(p.steps)
			step[n.ShardID] = i
			p.steps = append(p.steps, store.Step{Shard: row.Shard})
		}
		add := shardway.Mapping{ID: newMappingID(), MapID: m.ID, Range: n.Range, ShardID: n.ShardID, Status: shardway.Online}
		if n.Offline {
			add.Status = shardway.Offline
		}
		p.steps[i].Add = append(p.steps[i].Add, add)
		p.result.Mappings = append(p.result.Mappings, add)
	}
	p.summary = summarize(m, p.result.Mappings) + onShards(p.steps)
	return p, s.checkFree(ctx, m, shards, p.result.Mappings)
}

func newMappingID() shardway.MappingID { return shardway.MappingID(store.NewID()) }

func summarize(m shardway.ShardMap, mappings []shardway.Mapping) string {
	text := mappings[0].Format(m.Kind)
	if n := len(mappings); n > 1 {
		text = fmt.Sprintf("%d mappings, the first is %s", n, text)
	}
	return text
}

// onShards names the shards of steps, a few of them.
func onShards(steps []store.Step) string {
	const few = 3
	if len(steps) > few {
		return fmt.Sprintf(", on %d shards", len(steps))
	}
	names := make([]string, len(steps))
	for i, step := range steps {
		names[i] = strconv.Quote(step.Shard.Name)
	}
	word := "shard"
	if len(names) > 1 {
		word = "shards"
	}
	return ", on " + word + " " + strings.Join(names, ", ")
}

// checkFree reports the first new mapping that shares a key with another new
// one or with a row of the store. Rows that stand come before pending ones, so
// that the answer does not depend on what else is going on.
func (s *state) checkFree(ctx context.Context, m shardway.ShardMap, shards []store.ShardRow, added []shardway.Mapping) error {
	sorted := slices.Clone(added)
	slices.SortFunc(sorted, func(a, b shardway.Mapping) int { return a.Range.Low.Compare(b.Range.Low) })
	for i := 1; i < len(sorted); i++ {
		if clash(m, sorted[i-1].Range, sorted[i].Range) {
			return fmt.Errorf("adding mappings %s and %s to shard map %q: they overlap each other: %w",
				sorted[i-1].Format(m.Kind), sorted[i].Format(m.Kind), m.Name, shardway.ErrExists)
		}
	}
	var pending error
	i := 0
	for row, err := range s.between(ctx, m, sorted[0].Range, sorted[len(sorted)-1].Range) {
		if err != nil {
			return err
		}
		for i < len(sorted) && before(m, sorted[i].Range, row.Range) {
			i++
		}
		if i == len(sorted) {
			break
		}
		if !clash(m, sorted[i].Range, row.Range) {
			continue
		}
		if row.Operation == 0 {
			return overlapError(m, shards, sorted[i], row.Mapping)
		}
		pending = cmp.Or(pending, error(&PendingError{Operation: row.Operation, Object: "mapping " + row.Format(m.Kind)}))
	}
	return pending
}

// between returns the rows that could share a key with the mapping first, with
// last, or with one that lies between them.
func (s *state) between(ctx context.Context, m shardway.ShardMap, first, last shardway.Range) iter.Seq2[store.MappingRow, error] {
	if m.Kind == shardway.RangeMap {
		return s.tx.Mappings(ctx, store.MappingQuery{Map: m, Within: shardway.Range{Low: first.Low, High: last.High}})
	}
	return func(yield func(store.MappingRow, error) bool) {
		if first != last {
			for row, err := range s.tx.Mappings(ctx, store.MappingQuery{Map: m, Within: shardway.Range{Low: first.Low, High: last.Low}}) {
				if !yield(row, err) {
					return
				}
			}
		}
		// One that is to replace the row that stands is held by the same operation.
		for row, err := range s.tx.Mappings(ctx, store.MappingQuery{Map: m, Within: shardway.RangeFrom(last.Low), Limit: 1}) {
			if !yield(row, err) {
				return
			}
		}
	}
}

// clash reports whether two mappings of one map would share a key.
func clash(m shardway.ShardMap, a, b shardway.Range) bool {
	if m.Kind == shardway.ListMap {
		return a.Low == b.Low
	}
	return a.Intersects(b)
}

// before reports whether a ends before b begins.
func before(m shardway.ShardMap, a, b shardway.Range) bool {
	if m.Kind == shardway.ListMap {
		return a.Low.Compare(b.Low) < 0
	}
	return !a.Open() && a.High.Compare(b.Low) <= 0
}

func overlapError(m shardway.ShardMap, shards []store.ShardRow, added, existing shardway.Mapping) error {
	owner := ""
	for _, row := range shards {
		if row.ID == existing.ShardID {
			owner = row.Name
		}
	}
	if m.Kind == shardway.ListMap {
		return fmt.Errorf("adding mapping %s to shard map %q: the point is mapped to shard %q: %w",
			added.Format(m.Kind), m.Name, owner, shardway.ErrExists)
	}
	return fmt.Errorf("adding mapping %s to shard map %q: it overlaps %s on shard %q (split that mapping to give a part of it away): %w",
		added.Range, m.Name, existing.Range, owner, shardway.ErrExists)
}

// UpdateMapping changes status or shard of a mapping, or both at once. Fields
// left nil stay as they are; with both nil nothing happens. A mapping that is
// online before and after cannot change its shard ([shardway.ErrMappingOnline]).
// What is set is written, and gives the mapping a new id, even when it is so
// already. Only the map changes: moving the rows is up to the caller.
//
// Taking a mapping offline, alone or with a move, drains it.
type UpdateMapping struct {
	Mapping shardway.Mapping // as read; [shardway.ErrStale] when it has changed since
	Status  *shardway.MappingStatus
	ShardID *shardway.ShardID
	Drain   store.Drain        // what becomes of those who use the mapping; zero: as Config says
	Token   shardway.LockToken // of the lock, when the mapping is locked
	Reason  string             // for the history; may be empty
}

func (ch UpdateMapping) target() shardway.MapID { return ch.Mapping.MapID }

func (ch UpdateMapping) plan(ctx context.Context, s *state) (*plan, error) {
	if err := ch.Drain.Check(); err != nil {
		return nil, err
	}
	m, old, err := s.currentMapping(ctx, ch.Mapping, ch.Token)
	if err != nil {
		return nil, err
	}
	p := &plan{kind: "update mapping", reason: ch.Reason, m: m, drain: ch.Drain, result: Result{Map: m, Mappings: []shardway.Mapping{old}}}
	if ch.Status == nil && ch.ShardID == nil {
		p.nothing = true
		return p, nil
	}
	next := old
	next.ID = newMappingID()
	if ch.Status != nil {
		next.Status = *ch.Status
	}
	if next.Status > shardway.Online {
		return nil, &shardway.ArgumentError{Argument: "mapping status", Value: fmt.Sprint(uint8(next.Status)), Reason: "is not a mapping status"}
	}
	if ch.ShardID != nil {
		next.ShardID = *ch.ShardID
	}
	source, err := s.shard(ctx, m, old.ShardID)
	if err != nil {
		return nil, err
	}
	p.result.Mappings = []shardway.Mapping{next}
	p.summary = fmt.Sprintf("%s, %s → %s", next.Format(m.Kind), old.Status, next.Status)
	if next.ShardID == old.ShardID {
		p.steps = []store.Step{{Shard: source.Shard, Remove: []shardway.Mapping{old}, Add: []shardway.Mapping{next}}}
		return p, nil
	}
	if old.Status == shardway.Online && next.Status == shardway.Online {
		return nil, fmt.Errorf("moving mapping %s of shard map %q: take it offline first, or with the move: %w",
			old.Format(m.Kind), m.Name, shardway.ErrMappingOnline)
	}
	target, err := s.shard(ctx, m, next.ShardID)
	if err != nil {
		return nil, err
	}
	if target.Status == shardway.ShardOffline {
		return nil, &shardway.ArgumentError{Argument: "shard", Value: target.Name, Reason: "is offline: it takes no new mappings"}
	}
	p.kind = "move mapping"
	p.summary += fmt.Sprintf(", shard %q → %q", source.Name, target.Name)
	// The source gives the mapping up before the target gets it, so that no
	// two local stores ever own a key.
	p.steps = []store.Step{
		{Shard: source.Shard, Remove: []shardway.Mapping{old}},
		{Shard: target.Shard, Add: []shardway.Mapping{next}},
	}
	return p, nil
}

// DeleteMapping removes an offline mapping. An online one is
// [shardway.ErrMappingOnline].
type DeleteMapping struct {
	Mapping shardway.Mapping   // as read; [shardway.ErrStale] when it has changed since
	Token   shardway.LockToken // of the lock, when the mapping is locked
	Reason  string             // for the history; may be empty
}

func (ch DeleteMapping) target() shardway.MapID { return ch.Mapping.MapID }

func (ch DeleteMapping) plan(ctx context.Context, s *state) (*plan, error) {
	m, old, err := s.currentMapping(ctx, ch.Mapping, ch.Token)
	if err != nil {
		return nil, err
	}
	if old.Status == shardway.Online {
		return nil, fmt.Errorf("deleting mapping %s of shard map %q: take it offline first: %w", old.Format(m.Kind), m.Name, shardway.ErrMappingOnline)
	}
	row, err := s.shard(ctx, m, old.ShardID)
	if err != nil {
		return nil, err
	}
	return &plan{
		kind: "delete mapping", reason: ch.Reason, summary: fmt.Sprintf("%s on shard %q", old.Format(m.Kind), row.Name), m: m,
		steps:  []store.Step{{Shard: row.Shard, Remove: []shardway.Mapping{old}}},
		result: Result{Map: m},
	}, nil
}

// currentMapping returns the map and the current row of a mapping given by value.
func (s *state) currentMapping(ctx context.Context, given shardway.Mapping, token shardway.LockToken) (shardway.ShardMap, shardway.Mapping, error) {
	if given.ID == 0 {
		return shardway.ShardMap{}, given, &shardway.ArgumentError{Argument: "mapping", Reason: "is missing"}
	}
	m, err := s.mapByID(ctx, given.MapID, "of mapping "+given.ID.String())
	if err != nil {
		return m, given, err
	}
	old, err := s.mapping(ctx, m, given, token)
	return m, old, err
}

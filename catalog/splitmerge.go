package catalog

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// SplitMapping replaces a range by [low, At) and [At, high), on the same shard,
// with the same status and lock. Online mappings stay online. At must lie
// strictly inside.
type SplitMapping struct {
	Mapping shardway.Mapping // as read; [shardway.ErrStale] when it has changed since
	At      shardway.Key
	Token   shardway.LockToken // of the lock, when the mapping is locked
	Reason  string             // for the history; may be empty
}

func (ch SplitMapping) target() shardway.MapID { return ch.Mapping.MapID }

func (ch SplitMapping) plan(ctx context.Context, s *state) (*plan, error) {
	m, old, err := s.currentMapping(ctx, ch.Mapping, ch.Token)
	if err != nil {
		return nil, err
	}
	if err := checkKind(m, shardway.RangeMap, "splitting a mapping"); err != nil {
		return nil, err
	}
	if err := checkKey(m, "split point", ch.At); err != nil {
		return nil, err
	}
	if ch.At == old.Range.Low || !old.Range.Contains(ch.At) {
		return nil, &shardway.ArgumentError{
			Argument: "split point", Value: ch.At.String(),
			Reason: fmt.Sprintf("is not inside %s of shard map %q", old.Range, m.Name),
		}
	}
	lower, upper := old, old
	lower.ID, upper.ID = newMappingID(), newMappingID()
	lower.Range.High, upper.Range.Low = ch.At, ch.At
	return s.replace(ctx, m, &plan{
		kind: "split mapping", reason: ch.Reason,
		summary: fmt.Sprintf("%s at %s", old.Range, shardway.Mapping{Range: upper.Range}.Format(shardway.ListMap)),
		result:  Result{Map: m, Mappings: []shardway.Mapping{lower, upper}},
	}, []shardway.Mapping{old})
}

// MergeMappings replaces two ranges by one. Left must end where Right begins;
// both are on one shard and have one status. The result has Left's lock.
type MergeMappings struct {
	Left, Right shardway.Mapping   // as read; [shardway.ErrStale] when one has changed since
	Token       shardway.LockToken // of Left's lock, when it is locked
	RightToken  shardway.LockToken // of Right's lock, when it is locked
	Reason      string             // for the history; may be empty
}

func (ch MergeMappings) target() shardway.MapID { return ch.Left.MapID }

func (ch MergeMappings) plan(ctx context.Context, s *state) (*plan, error) {
	m, left, err := s.currentMapping(ctx, ch.Left, ch.Token)
	if err != nil {
		return nil, err
	}
	if err := checkKind(m, shardway.RangeMap, "merging mappings"); err != nil {
		return nil, err
	}
	right, err := s.mapping(ctx, m, ch.Right, ch.RightToken)
	if err != nil {
		return nil, err
	}
	refuse := func(reason string) (*plan, error) {
		return nil, &shardway.ArgumentError{Argument: "mappings", Value: left.Range.String() + " and " + right.Range.String(), Reason: reason}
	}
	switch {
	case left.Range.Open() || left.Range.High != right.Range.Low:
		return refuse("are not neighbours: the first must end where the second begins")
	case left.ShardID != right.ShardID:
		return refuse("are on two shards")
	case left.Status != right.Status:
		return refuse("have two statuses: one is online, the other offline")
	}
	merged := left
	merged.ID, merged.Range.High = newMappingID(), right.Range.High
	return s.replace(ctx, m, &plan{
		kind: "merge mappings", reason: ch.Reason,
		summary: fmt.Sprintf("%s and %s", left.Range, right.Range),
		result:  Result{Map: m, Mappings: []shardway.Mapping{merged}},
	}, []shardway.Mapping{left, right})
}

// replace completes a plan that exchanges mappings of one shard for others.
func (s *state) replace(ctx context.Context, m shardway.ShardMap, p *plan, old []shardway.Mapping) (*plan, error) {
	row, err := s.shard(ctx, m, old[0].ShardID)
	if err != nil {
		return nil, err
	}
	p.m = m
	p.summary += fmt.Sprintf(", on shard %q", row.Name)
	p.steps = []store.Step{{Shard: row.Shard, Remove: old, Add: p.result.Mappings}}
	return p, nil
}

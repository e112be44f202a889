package catalog

import (
	"cmp"
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// AttachShard brings a shard back into a map from what its own database says:
// after [DetachShard], a failover to a copy elsewhere, or the loss of the
// global store. The shard keeps its id. Its location becomes Location, in the
// local map too. Mappings are not touched: the local map still has those of
// the shard, and package recovery makes them the global ones.
//
// A shard, name or location that the map has already is [shardway.ErrExists];
// a local map of another kind is [store.ErrMapsDiffer].
type AttachShard struct {
	Map      shardway.ShardMap
	Location shardway.Location // where the shard's database is now
	Found    store.LocalMap    // what the local store there has of the map, as read
	Name     string            // new name; empty: the one that the shard had
	Reason   string            // for the history; may be empty
}

func (ch AttachShard) target() shardway.MapID { return ch.Map.ID }

func (ch AttachShard) plan(ctx context.Context, s *state) (*plan, error) {
	m, err := s.shardMap(ctx, ch.Map)
	if err != nil {
		return nil, err
	}
	found := ch.Found.Shard
	wrap := func(err error) (*plan, error) {
		return nil, fmt.Errorf("attaching shard %q at %s to shard map %q: %w", found.Name, ch.Location, m.Name, err)
	}
	switch there := ch.Found.Map; {
	case found.ID == 0 || there.ID != m.ID || found.MapID != m.ID:
		return wrap(fmt.Errorf("the database has no shard of this map: %w", store.ErrMapsDiffer))
	case there.Kind != m.Kind || there.KeyKind != m.KeyKind:
		return wrap(fmt.Errorf("its local map is a %s map with %s keys: %w", there.Kind, there.KeyKind, store.ErrMapsDiffer))
	}
	rows, err := s.tx.Shards(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		switch {
		case row.ID != found.ID:
		case row.Operation != 0:
			return nil, &PendingError{Operation: row.Operation, Object: fmt.Sprintf("shard %q", row.Name)}
		default:
			return wrap(fmt.Errorf("the map has it as shard %q at %s; change its location, or detach it first: %w", row.Name, row.Location, shardway.ErrExists))
		}
	}
	shard := found
	shard.Location, shard.Name, shard.Version = ch.Location, cmp.Or(ch.Name, found.Name), store.NewID()
	if err := s.checkShard(ctx, m, &shard); err != nil {
		return wrap(err)
	}
	return &plan{
		kind: "attach shard", reason: ch.Reason, summary: fmt.Sprintf("shard %q at %s", shard.Name, shard.Location), m: m,
		steps: []store.Step{
			{Shard: shard, LocalOnly: true, Before: &found, After: &shard},
			{Shard: shard, GlobalOnly: true, After: &shard},
		},
		result: Result{Map: m, Shards: []shardway.Shard{shard}},
	}, nil
}

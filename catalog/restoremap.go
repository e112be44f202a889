package catalog

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
)

// RestoreShardMap creates an empty shard map again under the id that it had:
// that is what the local maps of its shards know it by. It is for a global
// store that was lost. An id or a name that is taken is [shardway.ErrExists].
type RestoreShardMap struct {
	Map    shardway.ShardMap // as a local map has it
	Reason string            // for the history; may be empty
}

func (ch RestoreShardMap) target() shardway.MapID { return 0 }

func (ch RestoreShardMap) plan(ctx context.Context, s *state) (*plan, error) {
	if ch.Map.ID <= 0 {
		return nil, &shardway.ArgumentError{Argument: "shard map id", Value: fmt.Sprint(int64(ch.Map.ID)), Reason: "is no id"}
	}
	maps, err := s.tx.ShardMaps(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if m.ID == ch.Map.ID {
			return nil, fmt.Errorf("restoring shard map %q: it is there as %q: %w", ch.Map.Name, m.Name, shardway.ErrExists)
		}
	}
	p, err := CreateShardMap{Name: ch.Map.Name, Kind: ch.Map.Kind, KeyKind: ch.Map.KeyKind, Reason: ch.Reason}.plan(ctx, s)
	if err != nil {
		return nil, err
	}
	p.m.ID, p.addMap.ID, p.result.Map.ID = ch.Map.ID, ch.Map.ID, ch.Map.ID
	return p, nil
}

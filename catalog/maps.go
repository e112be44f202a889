package catalog

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

const createShardMap = "create shard map"

// CreateShardMap adds an empty shard map. A name that is taken is
// [shardway.ErrExists].
type CreateShardMap struct {
	Name    string
	Kind    shardway.MapKind
	KeyKind shardway.KeyKind
	Reason  string // for the history; may be empty
}

func (ch CreateShardMap) target() shardway.MapID { return 0 }

func (ch CreateShardMap) plan(ctx context.Context, s *state) (*plan, error) {
	if err := shardway.CheckName("shard map name", ch.Name); err != nil {
		return nil, err
	}
	if ch.Kind != shardway.ListMap && ch.Kind != shardway.RangeMap {
		return nil, &shardway.ArgumentError{Argument: "map kind", Value: ch.Kind.String(), Reason: "is neither list nor range"}
	}
	if !ch.KeyKind.Valid() {
		return nil, &shardway.ArgumentError{Argument: "key kind", Value: ch.KeyKind.String(), Reason: "is not a key kind"}
	}
	maps, err := s.tx.ShardMaps(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if m.Name == ch.Name {
			return nil, fmt.Errorf("creating shard map %q: %w", ch.Name, shardway.ErrExists)
		}
	}
	m := shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: ch.Name, Kind: ch.Kind, KeyKind: ch.KeyKind, Generation: 1}
	return &plan{
		kind: createShardMap, reason: ch.Reason, summary: fmt.Sprintf("%s map %q with %s keys", m.Kind, m.Name, m.KeyKind),
		m: m, addMap: &m, result: Result{Map: m},
	}, nil
}

// DeleteShardMap removes a shard map without shards. One with shards is
// [shardway.ErrInUse]; one that is gone already is no error.
type DeleteShardMap struct {
	Map    shardway.ShardMap
	Reason string // for the history; may be empty
}

func (ch DeleteShardMap) target() shardway.MapID { return ch.Map.ID }

func (ch DeleteShardMap) plan(ctx context.Context, s *state) (*plan, error) {
	maps, err := s.tx.ShardMaps(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{kind: "delete shard map", reason: ch.Reason, summary: fmt.Sprintf("%s map %q", ch.Map.Kind, ch.Map.Name), m: ch.Map, nothing: true}
	for _, m := range maps {
		if m.ID == ch.Map.ID {
			p.nothing, p.m, p.dropMap = false, m, m.ID
		}
	}
	if p.nothing {
		return p, nil
	}
	rows, err := s.tx.Shards(ctx, ch.Map.ID)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		row := rows[0]
		if row.Operation != 0 {
			return nil, &PendingError{Operation: row.Operation, Object: fmt.Sprintf("shard %q", row.Name)}
		}
		return nil, fmt.Errorf("deleting shard map %q: it has %d shards, among them %q: %w", ch.Map.Name, len(rows), row.Name, shardway.ErrInUse)
	}
	return p, nil
}

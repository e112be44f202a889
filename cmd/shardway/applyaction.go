package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/mapfile"
)

// act makes one change of a plan. What it changes must be as the plan has it.
func (s *session) act(ctx context.Context, a mapfile.Action, reason string) error {
	ch, err := s.changeFor(ctx, a, reason)
	if err != nil {
		return err
	}
	_, err = s.do(ctx, ch)
	return err
}

// changeFor looks up what a change of a plan is about.
func (s *session) changeFor(ctx context.Context, a mapfile.Action, reason string) (catalog.Change, error) {
	if a.Kind == mapfile.CreateMap {
		return catalog.CreateShardMap{Name: a.Map, Kind: a.MapKind, KeyKind: a.KeyKind, Reason: reason}, nil
	}
	m, err := s.ShardMap(ctx, a.Map)
	if err != nil {
		return nil, err
	}
	if a.Kind == mapfile.AddShard {
		if err := s.vacant(ctx, m, shardway.Shard{Name: a.Shard.Name, Location: a.Shard.Location}, false); err != nil {
			return nil, err
		}
		return catalog.AddShard{Map: m, Name: a.Shard.Name, Location: a.Shard.Location, Status: a.Shard.Status, Reason: reason}, nil
	}
	if len(a.Mappings) == 0 {
		return s.shardChange(ctx, m, a, reason)
	}
	shards, err := s.Shards(ctx, m)
	if err != nil {
		return nil, err
	}
	names := map[string]shardway.ShardID{}
	for _, sh := range shards {
		names[sh.Name] = sh.ID
	}
	return s.mappingChange(ctx, m, names, a, reason)
}

func (s *session) shardChange(ctx context.Context, m shardway.ShardMap, a mapfile.Action, reason string) (catalog.Change, error) {
	name := a.Shard.Name
	if a.Kind == mapfile.RenameShard {
		name = a.From
	}
	sh, err := s.Shard(ctx, m, name)
	if err != nil {
		return nil, err
	}
	ch := catalog.UpdateShard{Shard: sh, Reason: reason}
	switch a.Kind {
	case mapfile.DeleteShard:
		return catalog.DeleteShard{Shard: sh, Reason: reason}, nil
	case mapfile.RenameShard:
		ch.Name = &a.Shard.Name
	case mapfile.UpdateShard:
		ch.Location = &a.Shard.Location
	case mapfile.StatusShard:
		ch.Status = &a.Shard.Status
	default:
		return nil, fmt.Errorf("%s is no change of a shard", a.Kind)
	}
	return ch, nil
}

func (s *session) mappingChange(ctx context.Context, m shardway.ShardMap, shards map[string]shardway.ShardID, a mapfile.Action, reason string) (catalog.Change, error) {
	if a.Kind == mapfile.Add {
		add := catalog.AddMappings{Map: m, Reason: reason}
		for _, n := range a.Mappings {
			id, ok := shards[n.Shard]
			if !ok {
				return nil, &shardway.LookupError{Map: m.Name, Shard: n.Shard, Err: shardway.ErrShardNotFound}
			}
			add.New = append(add.New, catalog.NewMapping{Range: n.Range, ShardID: id, Offline: n.Status == shardway.Offline})
		}
		return add, nil
	}
	var now []shardway.Mapping
	for _, planned := range a.Mappings {
		mp, err := s.MappingForKey(ctx, m, planned.Range.Low)
		if errors.Is(err, shardway.ErrKeyNotMapped) || err == nil && (mp.Range != planned.Range || mp.ShardID != shards[planned.Shard] || mp.Status != planned.Status) {
			err = fmt.Errorf("mapping %s of shard map %q is not as planned: %w", shardway.Mapping{Range: planned.Range}.Format(m.Kind), m.Name, shardway.ErrStale)
		}
		if err != nil {
			return nil, err
		}
		now = append(now, mp)
	}
	switch a.Kind {
	case mapfile.Split:
		return catalog.SplitMapping{Mapping: now[0], At: a.At, Reason: reason}, nil
	case mapfile.Merge:
		return catalog.MergeMappings{Left: now[0], Right: now[1], Reason: reason}, nil
	case mapfile.Delete:
		return catalog.DeleteMapping{Mapping: now[0], Reason: reason}, nil
	case mapfile.Status:
		return catalog.UpdateMapping{Mapping: now[0], Status: &a.Status, Reason: reason}, nil
	case mapfile.Move:
		to, ok := shards[a.To]
		if !ok {
			return nil, &shardway.LookupError{Map: m.Name, Shard: a.To, Err: shardway.ErrShardNotFound}
		}
		return catalog.UpdateMapping{Mapping: now[0], Status: &a.Status, ShardID: &to, Reason: reason}, nil
	default:
		return nil, fmt.Errorf("%s is no change of a mapping", a.Kind)
	}
}

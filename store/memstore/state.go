package memstore

import (
	"maps"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// state is everything a global store holds. Invariant: a state that readers
// can reach never changes, nor does anything its rows point to.
type state struct {
	id         string
	maps       map[shardway.MapID]shardway.ShardMap
	shards     map[shardway.ShardID]store.ShardRow
	mappings   map[shardway.MappingID]store.MappingRow
	operations map[store.OperationID]store.Operation
	history    []store.Entry // oldest first
	seq        int64         // of the latest operation
}

func newState(id string) *state {
	return &state{
		id:         id,
		maps:       map[shardway.MapID]shardway.ShardMap{},
		shards:     map[shardway.ShardID]store.ShardRow{},
		mappings:   map[shardway.MappingID]store.MappingRow{},
		operations: map[store.OperationID]store.Operation{},
	}
}

func (s *state) clone() *state {
	return &state{
		id:         s.id,
		maps:       maps.Clone(s.maps),
		shards:     maps.Clone(s.shards),
		mappings:   maps.Clone(s.mappings),
		operations: maps.Clone(s.operations),
		history:    slices.Clip(s.history), // so that appending does not touch the original
		seq:        s.seq,
	}
}

func (s *state) describe() store.Description {
	return store.Description{ID: s.id, Version: store.Current}
}

// The copies below cut a value off from the memory of those who gave it or get it.

func copyShard(s shardway.Shard) shardway.Shard {
	s.Location.Servers = slices.Clone(s.Location.Servers)
	for i := range s.Location.Servers {
		s.Location.Servers[i].Tags = maps.Clone(s.Location.Servers[i].Tags)
	}
	return s
}

func copyOperation(o store.Operation) store.Operation {
	o.Steps = slices.Clone(o.Steps)
	for i := range o.Steps {
		o.Steps[i] = copyStep(o.Steps[i])
	}
	return o
}

func copyStep(step store.Step) store.Step {
	step.Shard = copyShard(step.Shard)
	for _, p := range []**shardway.Shard{&step.Before, &step.After} {
		if *p != nil {
			s := copyShard(**p)
			*p = &s
		}
	}
	step.Remove = slices.Clone(step.Remove)
	step.Add = slices.Clone(step.Add)
	return step
}

func copyEntry(e store.Entry) store.Entry {
	e.Ranges = slices.Clone(e.Ranges)
	return e
}

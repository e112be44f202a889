package shardway

import "context"

// Source is what a [Router] reads: the global store, with read-only rights.
// Package store/sqlstore has it for SQL databases, store/memstore in memory.
// All methods see committed, published rows only and are safe for concurrent use.
type Source interface {
	// ShardMap returns the map with the given name, or ErrMapNotFound.
	ShardMap(ctx context.Context, name string) (ShardMap, error)
	// Lookup returns the mapping that holds the key; Found is false when none
	// does. Mapping, shard and generation belong to one state of the map. It
	// returns ErrMapNotFound when the map is gone.
	Lookup(ctx context.Context, m ShardMap, key Key) (Answer, error)
	// Load calls each for the mappings within a range, in key order, and then
	// returns all shards of the map and its generation, all of one state of the
	// map. In a list map the mappings within are the points that lie in the
	// range, in a range map those that intersect it. The zero Range is the
	// whole map. It returns ErrMapNotFound when the map is gone, and the error
	// of each when that ends it.
	Load(ctx context.Context, m ShardMap, within Range, each func(MappingRow) error) (MapState, error)
	// Changes returns the generation of the map and what changed after the
	// generation since, or Complete = false when the store does not know that
	// far back. It returns ErrMapNotFound when the map is gone.
	Changes(ctx context.Context, m ShardMap, since int64) (Changes, error)
}

// Answer is a global store's answer for one key.
type Answer struct {
	Found      bool
	Mapping    Mapping
	Shard      Shard
	Generation int64 // of the map when the answer was given
}

// MappingRow is a mapping as stores keep it: encoded keys. Low and High are
// valid only until the callback that receives the row returns.
type MappingRow struct {
	ID      MappingID
	Low     []byte
	High    []byte // nil is the open end, and always nil in a list map
	ShardID ShardID
	Status  MappingStatus
}

// MapState is what goes with the mappings of a loaded map.
type MapState struct {
	Shards     []Shard // all shards of the map, whatever range was asked for
	Generation int64
}

// Changes tells how a map differs from an earlier generation.
type Changes struct {
	Generation int64
	Complete   bool    // false: the store does not know that far back, or a change since concerns the whole map: load it
	Shards     bool    // rows of shards changed since, apart from the mappings in Ranges: read the shards again
	Ranges     []Range // changed since; in a list map each is one point (High is the zero value). They may overlap
}

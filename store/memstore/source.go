package memstore

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// ShardMap returns the map with the given name, or ErrMapNotFound.
func (g *Global) ShardMap(ctx context.Context, name string) (shardway.ShardMap, error) {
	s, err := g.read(ctx)
	if err != nil {
		return shardway.ShardMap{}, fmt.Errorf("reading shard map %q: %w", name, err)
	}
	for _, m := range s.maps {
		if m.Name == name {
			return m, nil
		}
	}
	return shardway.ShardMap{}, fmt.Errorf("reading shard map %q: %w", name, shardway.ErrMapNotFound)
}

// readMap returns the state and what it holds of the map m.
func (g *Global) readMap(ctx context.Context, m shardway.ShardMap) (*state, shardway.ShardMap, error) {
	s, err := g.read(ctx)
	if err != nil {
		return nil, shardway.ShardMap{}, err
	}
	found, ok := s.maps[m.ID]
	if !ok {
		return nil, shardway.ShardMap{}, shardway.ErrMapNotFound
	}
	return s, found, nil
}

// Lookup returns the mapping that holds the key. Its lock is left out: routers
// do not see locks. The zero key is ErrKeyRequired, a key of another kind than
// the map's is ErrWrongType.
func (g *Global) Lookup(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	s, found, err := g.readMap(ctx, m)
	switch {
	case err != nil:
	case key.IsZero():
		err = shardway.ErrKeyRequired
	case key.Kind() != found.KeyKind:
		err = shardway.ErrWrongType
	}
	if err != nil {
		return shardway.Answer{}, &shardway.LookupError{Map: m.Name, Key: key.String(), Err: err}
	}
	answer := shardway.Answer{Generation: found.Generation}
	for _, row := range s.mappings {
		if row.MapID != m.ID || row.Pending || !holds(row.Range, key, found.Kind) {
			continue
		}
		answer.Found = true
		answer.Mapping = row.Mapping
		answer.Mapping.Lock = shardway.Lock{}
		answer.Shard = copyShard(s.shards[row.ShardID].Shard)
	}
	return answer, nil
}

func holds(r shardway.Range, key shardway.Key, kind shardway.MapKind) bool {
	if kind == shardway.ListMap {
		return r.Low == key
	}
	return r.Contains(key)
}

// Load calls each for the published mappings within a range, in key order. The
// bytes of a row are overwritten after each call, so that keeping them shows.
func (g *Global) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	s, found, err := g.readMap(ctx, m)
	if err != nil {
		return shardway.MapState{}, fmt.Errorf("loading shard map %q: %w", m.Name, err)
	}
	var low, high []byte
	for _, row := range s.selectMappings(store.MappingQuery{Map: found, Within: within}) {
		if row.Pending {
			continue
		}
		if err := ctx.Err(); err != nil {
			return shardway.MapState{}, fmt.Errorf("loading shard map %q: %w", m.Name, err)
		}
		low = row.Range.Low.AppendEncoded(low[:0])
		out := shardway.MappingRow{ID: row.ID, Low: low, ShardID: row.ShardID, Status: row.Status}
		if !row.Range.Open() {
			high = row.Range.High.AppendEncoded(high[:0])
			out.High = high
		}
		if err := each(out); err != nil {
			return shardway.MapState{}, fmt.Errorf("loading shard map %q: %w", m.Name, err)
		}
		spoil(low)
		spoil(high)
	}
	answer := shardway.MapState{Generation: found.Generation}
	rows, err := reader{s}.Shards(ctx, m.ID)
	for _, row := range rows {
		if !row.Pending {
			answer.Shards = append(answer.Shards, row.Shard)
		}
	}
	return answer, err
}

func spoil(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// Changes returns what the history says about the generations after since. It
// is complete when every one of them has an entry, and each entry has ranges or
// is of shards only.
func (g *Global) Changes(ctx context.Context, m shardway.ShardMap, since int64) (shardway.Changes, error) {
	s, found, err := g.readMap(ctx, m)
	if err != nil {
		return shardway.Changes{}, fmt.Errorf("reading the changes of shard map %q: %w", m.Name, err)
	}
	known := map[int64]bool{}
	changes := shardway.Changes{Generation: found.Generation, Complete: true}
	for _, e := range s.history {
		if e.MapID != m.ID || e.Generation <= since {
			continue
		}
		if len(e.Ranges) == 0 && !e.ShardsOnly {
			return shardway.Changes{Generation: found.Generation}, nil
		}
		known[e.Generation] = true
		changes.Shards = changes.Shards || e.ShardsOnly
		changes.Ranges = append(changes.Ranges, e.Ranges...)
	}
	if int64(len(known)) != found.Generation-since {
		return shardway.Changes{Generation: found.Generation}, nil
	}
	return changes, nil
}

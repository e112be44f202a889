package mongostore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
)

// mappingRow is a mapping that an attempt adds. Locks are not kept locally.
func mappingRow(m shardway.Mapping, of shardway.ShardMap, attempt string) mongomap.Row {
	return mongomap.Row{
		ID: rowID(attempt, int64(m.ID)), Kind: mongomap.MappingRow, Of: int64(m.ID), Map: int64(of.ID), Added: attempt,
		Mapping: &mongomap.MappingFields{
			Shard: int64(m.ShardID), Low: m.Range.Low.Encoded(), High: m.Range.High.Encoded(), Status: int32(m.Status),
		},
	}
}

// shardRow is a shard that an attempt adds, with its map.
func shardRow(s shardway.Shard, m shardway.ShardMap, attempt string) mongomap.Row {
	return mongomap.Row{
		ID: rowID(attempt, int64(s.ID)), Kind: mongomap.ShardRow, Of: int64(s.ID), Map: int64(m.ID), Added: attempt,
		Shard: &mongomap.ShardFields{
			Name: s.Name, Engine: s.Location.Engine, Database: s.Location.Database, Servers: rowServers(s.Location.Servers),
			Status: int32(s.Status), Version: s.Version, MapName: m.Name, MapKind: int32(m.Kind), KeyKind: int32(m.KeyKind),
		},
	}
}

func rowID(attempt string, of int64) string { return fmt.Sprintf("%s.%016x", attempt, of) }

func rowServers(servers []shardway.Server) []mongomap.Server {
	all := make([]mongomap.Server, len(servers))
	for i, s := range servers {
		all[i].Address = s.Address
		for _, name := range slices.Sorted(maps.Keys(s.Tags)) {
			all[i].Tags = append(all[i].Tags, name, s.Tags[name])
		}
	}
	return all
}

func rowMap(r *mongomap.Row) shardway.ShardMap {
	return shardway.ShardMap{
		ID: shardway.MapID(r.Map), Name: r.Shard.MapName, Kind: shardway.MapKind(r.Shard.MapKind), KeyKind: shardway.KeyKind(r.Shard.KeyKind),
	}
}

func rowShard(r *mongomap.Row) shardway.Shard {
	s := shardway.Shard{
		ID: shardway.ShardID(r.Of), MapID: shardway.MapID(r.Map), Name: r.Shard.Name,
		Location: shardway.Location{Engine: r.Shard.Engine, Database: r.Shard.Database},
		Status:   shardway.ShardStatus(r.Shard.Status), Version: r.Shard.Version,
	}
	for _, server := range r.Shard.Servers {
		v := shardway.Server{Address: server.Address}
		for i := 0; i+1 < len(server.Tags); i += 2 {
			if v.Tags == nil {
				v.Tags = map[string]string{}
			}
			v.Tags[server.Tags[i]] = server.Tags[i+1]
		}
		s.Location.Servers = append(s.Location.Servers, v)
	}
	return s
}

func rowMapping(r *mongomap.Row, kind shardway.KeyKind) (m shardway.Mapping, err error) {
	m = shardway.Mapping{
		ID: shardway.MappingID(r.Of), MapID: shardway.MapID(r.Map), ShardID: shardway.ShardID(r.Mapping.Shard),
		Status: shardway.MappingStatus(r.Mapping.Status),
	}
	if m.Range.Low, err = shardway.DecodeKey(kind, r.Mapping.Low); err == nil {
		m.Range.High, err = shardway.DecodeKey(kind, r.Mapping.High)
	}
	if err != nil {
		return m, fmt.Errorf("reading mapping %s: %w", m.ID, err)
	}
	return m, nil
}

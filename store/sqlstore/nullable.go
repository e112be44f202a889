package sqlstore

import (
	"database/sql"

	"github.com/shardway/shardway"
)

// nullable scans mappingRowColumns and shardColumns of a row that may have neither.
type nullable struct {
	mapping struct {
		id, shardID, status sql.NullInt64
		low, high           []byte
	}
	shard struct {
		id, mapID, status, version      sql.NullInt64
		name, engine, database, servers sql.NullString
	}
}

func (n *nullable) all() []any {
	m, s := &n.mapping, &n.shard
	return []any{
		&m.id, &m.low, &m.high, &m.shardID, &m.status,
		&s.id, &s.mapID, &s.name, &s.engine, &s.database, &s.servers, &s.status, &s.version,
	}
}

// values are the mapping and the shard of a row that has them.
func (n *nullable) values(m shardway.ShardMap) (shardway.Mapping, shardway.Shard, error) {
	v := shardway.Mapping{
		ID:      shardway.MappingID(n.mapping.id.Int64),
		MapID:   m.ID,
		ShardID: shardway.ShardID(n.mapping.shardID.Int64),
		Status:  shardway.MappingStatus(n.mapping.status.Int64),
	}
	var err error
	if v.Range, err = decodeRange(m.KeyKind, n.mapping.low, n.mapping.high); err != nil {
		return shardway.Mapping{}, shardway.Shard{}, err
	}
	shard := shardRecord{
		shard: shardway.Shard{
			ID: shardway.ShardID(n.shard.id.Int64), MapID: shardway.MapID(n.shard.mapID.Int64), Name: n.shard.name.String,
			Location: shardway.Location{Engine: n.shard.engine.String, Database: n.shard.database.String},
			Status:   shardway.ShardStatus(n.shard.status.Int64), Version: n.shard.version.Int64,
		},
		servers: n.shard.servers.String,
	}
	s, err := shard.value()
	return v, s, err
}

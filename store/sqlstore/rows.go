package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Columns in the order in which the functions below scan them.
const (
	mapColumns        = `map_id, name, kind, key_kind, generation`
	shardColumns      = `s.shard_id, s.map_id, s.name, s.engine, s.database_name, s.servers, s.status, s.version`
	mappingColumns    = `m.mapping_id, m.low_key, m.high_key, m.shard_id, m.status, m.lock_token, m.lock_owner, m.lock_reason, m.lock_expires`
	mappingRowColumns = `m.mapping_id, m.low_key, m.high_key, m.shard_id, m.status`
)

// shardRecord scans shardColumns.
type shardRecord struct {
	shard   shardway.Shard
	servers string
}

func (r *shardRecord) dest() []any {
	return []any{
		&r.shard.ID, &r.shard.MapID, &r.shard.Name, &r.shard.Location.Engine, &r.shard.Location.Database,
		&r.servers, &r.shard.Status, &r.shard.Version,
	}
}

func (r *shardRecord) value() (shardway.Shard, error) {
	servers, err := decodeServers(r.servers)
	if err != nil {
		return shardway.Shard{}, fmt.Errorf("reading the servers of shard %q: %w", r.shard.Name, err)
	}
	s := r.shard
	s.Location.Servers = servers
	return s, nil
}

// shardArgs are a shard's values in the order of shardColumns.
func shardArgs(s shardway.Shard) ([]any, error) {
	servers, err := encodeServers(s.Location.Servers)
	if err != nil {
		return nil, fmt.Errorf("writing the servers of shard %q: %w", s.Name, err)
	}
	return []any{int64(s.ID), int64(s.MapID), s.Name, s.Location.Engine, s.Location.Database, servers, int64(s.Status), s.Version}, nil
}

// serverDocument is a server of a shard as it is stored, in a JSON array.
type serverDocument struct {
	Address string            `json:"address"`
	Tags    map[string]string `json:"tags,omitempty"`
}

func encodeServers(servers []shardway.Server) (string, error) {
	documents := make([]serverDocument, len(servers))
	for i, s := range servers {
		documents[i] = serverDocument(s)
	}
	text, err := json.Marshal(documents)
	return string(text), err
}

func decodeServers(text string) ([]shardway.Server, error) {
	var documents []serverDocument
	if err := json.Unmarshal([]byte(text), &documents); err != nil {
		return nil, err
	}
	var servers []shardway.Server
	for _, d := range documents {
		servers = append(servers, shardway.Server(d))
	}
	return servers, nil
}

// mappingRecord scans mappingColumns.
type mappingRecord struct {
	mapping          shardway.Mapping
	low, high, token []byte
	expires          int64
}

func (r *mappingRecord) dest() []any {
	m := &r.mapping
	return []any{&m.ID, &r.low, &r.high, &m.ShardID, &m.Status, &r.token, &m.Lock.Owner, &m.Lock.Reason, &r.expires}
}

func (r *mappingRecord) value(m shardway.ShardMap) (shardway.Mapping, error) {
	v := r.mapping
	v.MapID = m.ID
	v.Lock.Token, v.Lock.Expires = shardway.LockToken(r.token), instant(r.expires)
	var err error
	v.Range, err = decodeRange(m.KeyKind, r.low, r.high)
	if err != nil {
		return shardway.Mapping{}, fmt.Errorf("reading mapping %s: %w", v.ID, err)
	}
	return v, nil
}

func decodeRange(kind shardway.KeyKind, low, high []byte) (r shardway.Range, err error) {
	if r.Low, err = shardway.DecodeKey(kind, low); err != nil {
		return shardway.Range{}, err
	}
	if r.High, err = shardway.DecodeKey(kind, high); err != nil {
		return shardway.Range{}, err
	}
	return r, nil
}

// pendingInsert are the columns of pending mappings for an insert.
func pendingInsert(mappings []shardway.Mapping, m shardway.MapID, op store.OperationID) []dialect.Column {
	n := len(mappings)
	ops, expires := make([]int64, n), make([]int64, n)
	tokens, owners, reasons := make([][]byte, n), make([]string, n), make([]string, n)
	for i, v := range mappings {
		ops[i], expires[i] = int64(op), micros(v.Lock.Expires)
		tokens[i], owners[i], reasons[i] = tokenBytes(v.Lock.Token), text(v.Lock.Owner), text(v.Lock.Reason)
	}
	return append(localMappingInsert(mappings, m),
		dialect.Column{Name: "op_id", Values: ops},
		dialect.Column{Name: "lock_token", Values: tokens},
		dialect.Column{Name: "lock_owner", Values: owners},
		dialect.Column{Name: "lock_reason", Values: reasons},
		dialect.Column{Name: "lock_expires", Values: expires},
	)
}

// tokenBytes is a token as it is stored: engines that pad text with spaces, or
// refuse some of it, compare bytes as they are. No token is NULL.
func tokenBytes(t shardway.LockToken) []byte {
	if t == "" {
		return nil
	}
	return []byte(t)
}

// localMappingInsert are the columns that global and local mappings share.
func localMappingInsert(mappings []shardway.Mapping, m shardway.MapID) []dialect.Column {
	n := len(mappings)
	ids, maps, shards, status := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	lows, highs := make([][]byte, n), make([][]byte, n)
	for i, v := range mappings {
		ids[i], maps[i], shards[i], status[i] = int64(v.ID), int64(m), int64(v.ShardID), int64(v.Status)
		lows[i], highs[i] = v.Range.Low.Encoded(), v.Range.High.Encoded()
	}
	return []dialect.Column{
		{Name: "mapping_id", Values: ids},
		{Name: "map_id", Values: maps},
		{Name: "low_key", Values: lows},
		{Name: "high_key", Values: highs},
		{Name: "shard_id", Values: shards},
		{Name: "status", Values: status},
	}
}

// ids are the ids of mappings.
func ids(mappings []shardway.Mapping) []int64 {
	numbers := make([]int64, len(mappings))
	for i, m := range mappings {
		numbers[i] = int64(m.ID)
	}
	return numbers
}

// scanMap scans mapColumns.
func scanMap(rows *sql.Rows) (m shardway.ShardMap, err error) {
	err = rows.Scan(&m.ID, &m.Name, &m.Kind, &m.KeyKind, &m.Generation)
	return m, err
}

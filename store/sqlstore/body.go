package sqlstore

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// bodyVersion is the version of the JSON below. A body of a newer version is
// refused. Names of fields never change; a new one needs a meaning for its
// absence.
const bodyVersion = 1

// partBytes is how much of a body goes into one row: well below the packet
// size of every engine.
const partBytes = 512 << 10

// bodyDocument is an operation as it is stored: what is not in columns. Ids
// are 16 hex digits, keys the hex digits of their encoding, instants RFC 3339
// in UTC.
type bodyDocument struct {
	Version int            `json:"v"`
	Map     mapDocument    `json:"map"`
	Steps   []stepDocument `json:"steps"`
}

type mapDocument struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Kind       uint8  `json:"kind"`     // 1 list, 2 range
	KeyKind    string `json:"key_kind"` // int32, int64, …
	Generation int64  `json:"generation"`
}

type stepDocument struct {
	Shard  shardDocument     `json:"shard"`
	Before *shardDocument    `json:"before,omitempty"`
	After  *shardDocument    `json:"after,omitempty"`
	Remove []mappingDocument `json:"remove,omitempty"`
	Add    []mappingDocument `json:"add,omitempty"`
	// LocalOnly: the rows of the global store do not follow this step.
	LocalOnly bool `json:"local_only,omitempty"`
	// GlobalOnly: no local store is changed by this step.
	GlobalOnly bool `json:"global_only,omitempty"`
}

type shardDocument struct {
	ID       string           `json:"id"`
	MapID    string           `json:"map_id"`
	Name     string           `json:"name"`
	Engine   string           `json:"engine"`
	Database string           `json:"database,omitempty"`
	Servers  []serverDocument `json:"servers"`
	Status   uint8            `json:"status"` // 0 online, 1 offline
	Version  string           `json:"version"`
}

type mappingDocument struct {
	ID      string        `json:"id"`
	Low     string        `json:"low"`
	High    string        `json:"high,omitempty"` // absent: the open end, or a point
	ShardID string        `json:"shard_id"`
	Status  uint8         `json:"status"` // 0 offline, 1 online
	Lock    *lockDocument `json:"lock,omitempty"`
}

type lockDocument struct {
	Token   string     `json:"token"`
	Owner   string     `json:"owner,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
}

// encodeBody returns the stored form of an operation's map and steps.
func encodeBody(o *store.Operation) (string, error) {
	d := bodyDocument{
		Version: bodyVersion,
		Map: mapDocument{
			ID: hexID(int64(o.Map.ID)), Name: o.Map.Name, Kind: uint8(o.Map.Kind),
			KeyKind: o.Map.KeyKind.String(), Generation: o.Map.Generation,
		},
		Steps: make([]stepDocument, len(o.Steps)),
	}
	for i, s := range o.Steps {
		d.Steps[i] = stepDocument{Shard: documentShard(s.Shard), Remove: documentMappings(s.Remove), Add: documentMappings(s.Add), LocalOnly: s.LocalOnly, GlobalOnly: s.GlobalOnly}
		if s.Before != nil {
			before := documentShard(*s.Before)
			d.Steps[i].Before = &before
		}
		if s.After != nil {
			after := documentShard(*s.After)
			d.Steps[i].After = &after
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("writing operation %s: %w", o.ID, err)
	}
	return string(text), nil
}

func documentShard(s shardway.Shard) shardDocument {
	d := shardDocument{
		ID: hexID(int64(s.ID)), MapID: hexID(int64(s.MapID)), Name: s.Name, Engine: s.Location.Engine, Database: s.Location.Database,
		Servers: make([]serverDocument, len(s.Location.Servers)), Status: uint8(s.Status), Version: hexID(s.Version),
	}
	for i, server := range s.Location.Servers {
		d.Servers[i] = serverDocument(server)
	}
	return d
}

func documentMappings(mappings []shardway.Mapping) []mappingDocument {
	if len(mappings) == 0 {
		return nil
	}
	documents := make([]mappingDocument, len(mappings))
	for i, m := range mappings {
		documents[i] = mappingDocument{
			ID: hexID(int64(m.ID)), Low: hex.EncodeToString(m.Range.Low.Encoded()), High: hex.EncodeToString(m.Range.High.Encoded()),
			ShardID: hexID(int64(m.ShardID)), Status: uint8(m.Status),
		}
		if m.Lock == (shardway.Lock{}) {
			continue
		}
		lock := &lockDocument{Token: string(m.Lock.Token), Owner: text(m.Lock.Owner), Reason: text(m.Lock.Reason)}
		if !m.Lock.Expires.IsZero() {
			expires := m.Lock.Expires.UTC()
			lock.Expires = &expires
		}
		documents[i].Lock = lock
	}
	return documents
}

// decodeBody reads the stored form into an operation.
func decodeBody(body string, o *store.Operation) error {
	var version struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		return fmt.Errorf("reading operation %s: %w", o.ID, err)
	}
	if version.Version != bodyVersion {
		return fmt.Errorf("reading operation %s: its form has version %d, this program knows %d: %w",
			o.ID, version.Version, bodyVersion, shardway.ErrStoreVersion)
	}
	var d bodyDocument
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		return fmt.Errorf("reading operation %s: %w", o.ID, err)
	}
	if err := d.fill(o); err != nil {
		return fmt.Errorf("reading operation %s: %w", o.ID, err)
	}
	return nil
}

func (d *bodyDocument) fill(o *store.Operation) error {
	r := documentReader{}
	o.Map = shardway.ShardMap{
		ID: shardway.MapID(r.id(d.Map.ID)), Name: d.Map.Name, Kind: shardway.MapKind(d.Map.Kind), Generation: d.Map.Generation,
	}
	kind, err := shardway.ParseKeyKind(d.Map.KeyKind)
	if err != nil {
		return err
	}
	o.Map.KeyKind = kind
	r.m = o.Map
	o.Steps = nil
	for _, s := range d.Steps {
		step := store.Step{
			Shard: *r.shard(&s.Shard), Before: r.shard(s.Before), After: r.shard(s.After),
			Remove: r.mappings(s.Remove), Add: r.mappings(s.Add), LocalOnly: s.LocalOnly, GlobalOnly: s.GlobalOnly,
		}
		o.Steps = append(o.Steps, step)
	}
	return r.err
}

// documentReader turns documents into values and keeps the first error.
type documentReader struct {
	m   shardway.ShardMap
	err error
}

func (r *documentReader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
	}
}

func (r *documentReader) id(text string) int64 {
	v, err := strconv.ParseInt(text, 16, 64)
	r.fail(err)
	return v
}

func (r *documentReader) key(text string) shardway.Key {
	if text == "" {
		return shardway.Key{}
	}
	enc, err := hex.DecodeString(text)
	r.fail(err)
	k, err := shardway.DecodeKey(r.m.KeyKind, enc)
	r.fail(err)
	return k
}

func (r *documentReader) shard(d *shardDocument) *shardway.Shard {
	if d == nil {
		return nil
	}
	s := &shardway.Shard{
		ID: shardway.ShardID(r.id(d.ID)), MapID: shardway.MapID(r.id(d.MapID)), Name: d.Name,
		Location: shardway.Location{Engine: d.Engine, Database: d.Database},
		Status:   shardway.ShardStatus(d.Status), Version: r.id(d.Version),
	}
	for _, server := range d.Servers {
		s.Location.Servers = append(s.Location.Servers, shardway.Server(server))
	}
	return s
}

func (r *documentReader) mappings(documents []mappingDocument) []shardway.Mapping {
	if len(documents) == 0 {
		return nil
	}
	mappings := make([]shardway.Mapping, len(documents))
	for i, d := range documents {
		m := shardway.Mapping{
			ID: shardway.MappingID(r.id(d.ID)), MapID: r.m.ID, Range: shardway.Range{Low: r.key(d.Low), High: r.key(d.High)},
			ShardID: shardway.ShardID(r.id(d.ShardID)), Status: shardway.MappingStatus(d.Status),
		}
		if d.Lock != nil {
			m.Lock = shardway.Lock{Token: shardway.LockToken(d.Lock.Token), Owner: d.Lock.Owner, Reason: d.Lock.Reason}
			if d.Lock.Expires != nil {
				m.Lock.Expires = d.Lock.Expires.UTC()
			}
		}
		mappings[i] = m
	}
	return mappings
}

func hexID(id int64) string { return fmt.Sprintf("%016x", id) }

// parts cuts a body into pieces of at most size bytes, between characters.
func parts(body string, size int) []string {
	var pieces []string
	for len(body) > size {
		cut := size
		for !utf8.RuneStart(body[cut]) {
			cut--
		}
		pieces, body = append(pieces, strings.Clone(body[:cut])), body[cut:]
	}
	return append(pieces, body)
}

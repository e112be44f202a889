package recovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// State is what a comparison found at a shard.
type State string

// The states. Their texts are stored in reports and never change.
const (
	Equal       State = "equal"       // both maps say the same, but for what is pending
	Differs     State = "differs"     // the shard's row, mappings, or both
	NoStore     State = "no store"    // the database has no local store
	NoMap       State = "no map"      // it has one, which does not know the map
	OtherShard  State = "other shard" // its local map is that of another shard
	Foreign     State = "foreign"     // its local store belongs to another global store
	Unsupported State = "unsupported" // its local store has a version that this program does not know
	Unreachable State = "unreachable" // it does not answer
)

// Report is what the comparison of the global map with the local map of one
// shard found. It is a value and can be saved as JSON, compared with a later
// one, and resolved.
type Report struct {
	Map     shardway.ShardMap // its Generation is not part of the report
	Shard   shardway.Shard    // as the global map has it
	State   State
	Problem string          // why the local store could not be read
	StoreID string          // global store that the local store belongs to
	Local   *shardway.Shard // the shard as the local map has it; nil for nowhere
	Fields  []Field         // in which the two differ
	// Operation is the pending operation that changes the shard's row: then the
	// rows are not compared.
	Operation store.OperationID
	// Differences are disjoint pieces, in key order, that the two sides give to
	// different mappings. In a list map each is one point, as in
	// [shardway.Mapping].
	Differences []Difference
	// Pending are pieces in the hands of an operation: nobody can say yet which
	// side is right.
	Pending []Difference
	// Changing says that the map changed all the time while it was read: some
	// differences may be none. It is not part of the comparison of reports.
	Changing bool
}

// Field is one thing that global and local map say of the shard itself.
type Field struct {
	Name          string // name, location, status or version
	Global, Local string
}

// Difference is one piece of keys and what each side says of it.
type Difference struct {
	Range         shardway.Range
	Global, Local Claim             // the zero value: nobody has it
	Operation     store.OperationID // of a pending piece
}

// Claim is a mapping that holds a piece.
type Claim struct {
	Mapping shardway.MappingID
	ShardID shardway.ShardID
	Shard   string // its name, or its id when the global map does not know it
	Status  shardway.MappingStatus
}

// Place says on which side a difference is: "global only", "local only" or "both".
func (d Difference) Place() string {
	switch {
	case d.Local == Claim{}:
		return "global only"
	case d.Global == Claim{}:
		return "local only"
	}
	return "both"
}

// Clean reports whether there is nothing to resolve: what is pending does not count.
func (r Report) Clean() bool { return r.State == Equal }

// Same reports whether two reports found the same: then a resolution of one is
// one of the other. What was pending is not compared.
func (r Report) Same(other Report) bool {
	return r.Map.ID == other.Map.ID && catalog.SameShard(r.Shard, other.Shard) && r.State == other.State && r.StoreID == other.StoreID &&
		sameRow(r.Local, other.Local) && slices.Equal(r.Fields, other.Fields) && slices.Equal(r.Differences, other.Differences)
}

func sameRow(a, b *shardway.Shard) bool {
	if a == nil || b == nil {
		return a == b
	}
	return catalog.SameShard(*a, *b)
}

// reportVersion is the version of the JSON below. A report of another version
// is refused. Names of fields never change.
const reportVersion = 1

// reportDocument is a report as JSON. Ids are 16 hex digits. Keys stand there
// twice: as people type them, and as the hex digits of their encoding, which
// is what is read.
type reportDocument struct {
	Version     int                  `json:"version"`
	Map         mapDocument          `json:"map"`
	Shard       shardDocument        `json:"shard"`
	State       State                `json:"state"`
	Problem     string               `json:"problem,omitempty"`
	StoreID     string               `json:"store_id,omitempty"`
	Local       *shardDocument       `json:"local_shard,omitempty"`
	Fields      []fieldDocument      `json:"fields"`
	Operation   string               `json:"operation,omitempty"`
	Differences []differenceDocument `json:"differences"`
	Pending     []differenceDocument `json:"pending"`
	Changing    bool                 `json:"changing,omitempty"`
}

type mapDocument struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	KeyKind string `json:"key"`
}

type shardDocument struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Engine   string           `json:"engine"`
	Database string           `json:"database"`
	Servers  []serverDocument `json:"servers"`
	Status   string           `json:"status"`
	Version  string           `json:"version"`
}

type serverDocument struct {
	Address string            `json:"address"`
	Tags    map[string]string `json:"tags,omitempty"`
}

type fieldDocument struct {
	Name   string `json:"name"`
	Global string `json:"global"`
	Local  string `json:"local"`
}

type differenceDocument struct {
	Place     string         `json:"place"`
	Low       string         `json:"low"`
	High      *string        `json:"high,omitempty"` // absent: the open end, or a point
	LowBytes  string         `json:"low_bytes"`
	HighBytes string         `json:"high_bytes,omitempty"`
	Global    *claimDocument `json:"global,omitempty"`
	Local     *claimDocument `json:"local,omitempty"`
	Operation string         `json:"operation,omitempty"`
}

type claimDocument struct {
	Mapping string `json:"mapping"`
	ShardID string `json:"shard_id"`
	Shard   string `json:"shard"`
	Status  string `json:"status"`
}

// MarshalJSON writes the report in its stored form. The same report always
// gives the same bytes.
func (r Report) MarshalJSON() ([]byte, error) {
	d := reportDocument{
		Version: reportVersion, State: r.State, Problem: r.Problem, StoreID: r.StoreID, Changing: r.Changing,
		Map:    mapDocument{ID: hexID(int64(r.Map.ID)), Name: r.Map.Name, Kind: r.Map.Kind.String(), KeyKind: r.Map.KeyKind.String()},
		Shard:  documentShard(r.Shard),
		Fields: []fieldDocument{}, Differences: documentPieces(r.Differences), Pending: documentPieces(r.Pending),
	}
	if r.Local != nil {
		local := documentShard(*r.Local)
		d.Local = &local
	}
	for _, f := range r.Fields {
		d.Fields = append(d.Fields, fieldDocument(f))
	}
	if r.Operation != 0 {
		d.Operation = r.Operation.String()
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads what [Report.MarshalJSON] writes.
func (r *Report) UnmarshalJSON(text []byte) error {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return fmt.Errorf("reading report: %w", err)
	}
	if version.Version != reportVersion {
		return &shardway.ArgumentError{Argument: "report", Value: fmt.Sprint("version ", version.Version), Reason: fmt.Sprintf("is not version %d, which this program knows", reportVersion)}
	}
	var d reportDocument
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		return fmt.Errorf("reading report: %w", err)
	}
	read, err := d.report()
	if err != nil {
		return fmt.Errorf("reading report: %w", err)
	}
	*r = read
	return nil
}

func hexID(id int64) string { return fmt.Sprintf("%016x", id) }

func documentShard(s shardway.Shard) shardDocument {
	d := shardDocument{
		ID: hexID(int64(s.ID)), Name: s.Name, Engine: s.Location.Engine, Database: s.Location.Database,
		Servers: []serverDocument{}, Status: s.Status.String(), Version: hexID(s.Version),
	}
	for _, server := range s.Location.Servers {
		d.Servers = append(d.Servers, serverDocument(server))
	}
	return d
}

// Package mongomap is the form of a local store in a MongoDB database: names of
// collections, shapes of documents, and how to tell from them whether the
// database owns a mapping. Package store/mongostore writes them, package
// mongoshard asks.
//
// MongoDB changes one document at a time, a step of an operation many. So the
// one document of [Store] decides: it names the last commit, and a row counts
// by what that commit says of the row's marks. See docs/adr/0006 for the
// protocol.
package mongomap

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The collections. They are created by Deploy, with the indexes of [RowIndexes]
// and [OperationIndexes].
const (
	Store      = "shardway_store"      // one document: [StoreDocument]
	Operations = "shardway_operations" // [OperationDocument], until its operation has ended
	Rows       = "shardway_rows"       // [Row]
	Lanes      = "shardway_lanes"      // [Lane], where there are transactions
)

// StoreID is the _id of the document in [Store].
const StoreID = "local"

// RowIndexes are the fields of [Rows], and OperationIndexes those of
// [Operations], that have an index each.
var (
	RowIndexes       = []string{"of", "map", "added", "removed"}
	OperationIndexes = []string{"seq"}
)

// StoreDocument is what the local store is, and its last commit.
type StoreDocument struct {
	ID      string `bson:"_id"`
	Global  string `bson:"global"` // id of the global store
	Major   int    `bson:"major"`
	Minor   int    `bson:"minor"`
	Commits int64  `bson:"commits"` // how many there have been
	// Forgotten: an operation up to this Seq that is not known, or known and not
	// applied, counts as undone. Ended, at most Forgotten: one up to this Seq
	// counts as undone, whatever a document that is left of it says.
	Forgotten int64  `bson:"forgotten"`
	Ended     int64  `bson:"ended,omitempty"`
	Last      Commit `bson:"last"`
}

// Commit is a change of an operation's state, and of the rows with it.
type Commit struct {
	Attempt   string `bson:"attempt"` // unique: see [NewAttempt]; empty before the first one
	Operation int64  `bson:"op"`
	Seq       int64  `bson:"seq"`
	Epoch     int64  `bson:"epoch"`
	State     int32  `bson:"state"`   // store.StepState
	Settled   bool   `bson:"settled"` // operation and rows say by themselves what the commit says
}

// OperationDocument is the state of an operation in this database, as of the
// commit with that number.
type OperationDocument struct {
	ID      int64 `bson:"_id"` // store.OperationID
	Seq     int64 `bson:"seq"`
	Epoch   int64 `bson:"epoch"`
	State   int32 `bson:"state"`
	Commits int64 `bson:"commits"`
}

// The kinds of row.
const (
	MappingRow = "mapping"
	ShardRow   = "shard"
)

// Row is a mapping or a shard that this database owns, is about to own, or is
// about to give away. It never changes, but for its marks.
type Row struct {
	ID      string   `bson:"_id"` // of the attempt that added it, and Of
	Kind    string   `bson:"row"`
	Of      int64    `bson:"of"` // shardway.MappingID or shardway.ShardID
	Map     int64    `bson:"map"`
	Added   string   `bson:"added,omitempty"`   // the attempt that adds it; empty: it is there
	Removed []string `bson:"removed,omitempty"` // the attempts that remove it

	Mapping *MappingFields `bson:"mapping,omitempty"`
	Shard   *ShardFields   `bson:"shard,omitempty"`
}

// MappingFields are those of a mapping. Keys are in their encoded form.
type MappingFields struct {
	Shard  int64  `bson:"shard"`
	Low    []byte `bson:"low"`
	High   []byte `bson:"high,omitempty"`
	Status int32  `bson:"status"`
}

// ShardFields are those of a shard and of its shard map.
type ShardFields struct {
	Name     string   `bson:"name"`
	Engine   string   `bson:"engine"`
	Database string   `bson:"database"`
	Servers  []Server `bson:"servers"`
	Status   int32    `bson:"status"`
	Version  int64    `bson:"version"`
	MapName  string   `bson:"map_name"`
	MapKind  int32    `bson:"map_kind"`
	KeyKind  int32    `bson:"key_kind"`
}

// Server is a server of a shard. Tags are pairs, because a name may hold what
// a field's name must not.
type Server struct {
	Address string   `bson:"address"`
	Tags    []string `bson:"tags,omitempty"` // name, value, name, value…
}

// Counts reports whether the database owns the row when the commit with the
// given attempt is the last one.
func (r *Row) Counts(last string) bool {
	return (r.Added == "" || r.Added == last) && !slices.Contains(r.Removed, last)
}

// Clean reports whether the row has no marks: then it counts, whatever the last
// commit is.
func (r *Row) Clean() bool { return r.Added == "" && len(r.Removed) == 0 }

// NewAttempt returns the mark of one executor's attempt to bring an operation
// to a state (store.OperationID, its Seq, store.StepState). No other attempt
// ever has the same.
func NewAttempt(op, seq int64, want int32) string {
	return fmt.Sprintf("%016x.%d.%s-%d", op, want, rand.Text(), seq)
}

// ParseAttempt returns operation and state of a mark.
func ParseAttempt(mark string) (op int64, want int32, ok bool) {
	parts := strings.Split(mark, ".")
	if len(parts) != 3 {
		return 0, 0, false
	}
	op, err := strconv.ParseInt(parts[0], 16, 64)
	if err != nil {
		return 0, 0, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	return op, int32(n), err == nil
}

// seqOf returns the Seq of a mark's operation. Marks of programs that did not
// write it have none.
func seqOf(mark string) (seq int64, ok bool) {
	_, text, found := strings.Cut(mark, "-")
	if !found {
		return 0, false
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	return seq, err == nil
}

// AttemptsOf returns the bounds of all marks of an operation: at least low, and
// less than high.
func AttemptsOf(op int64) (low, high string) {
	return fmt.Sprintf("%016x.", op), fmt.Sprintf("%016x/", op)
}

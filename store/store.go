// Package store is the contract between those who change a shard map (packages
// catalog, recovery) and the databases that keep it. It holds values and
// interfaces, no code that reaches a database: package store/sqlstore
// implements both stores on SQL databases, store/memstore in memory, and
// store/storetest is the suite that every implementation passes.
//
// A [Global] store is the authority. Everything that changes it goes through
// Update: a short transaction in which a pure function looks at the rows and
// returns a [Delta]. A [Local] store is the part of the map that one shard's
// database keeps; it changes in idempotent steps that carry the epoch of the
// operation they belong to.
package store

import (
	"context"
	"iter"
	"time"

	"github.com/shardway/shardway"
)

// Description says what a store is.
type Description struct {
	ID      string // of the global store: random, given when it was created; local stores remember whose they are
	Version Version
	// Forgotten is, of a local store, the Seq up to which it refuses to apply
	// operations that it does not know, see [StepState]. 0 of a global store.
	Forgotten int64
}

// Global is the global store. All methods are safe for concurrent use.
type Global interface {
	shardway.Source
	// Describe returns id and version, ErrNoStore when the database has no
	// global store, or ErrStoreVersion for a version this program cannot use.
	Describe(ctx context.Context) (Description, error)
	// View calls fn with one consistent, read-only state of the store. fn may
	// be called again after a transient fault.
	View(ctx context.Context, fn func(tx Reader) error) error
	// Update runs a change in one transaction. It serialises with every other
	// Update of the same map, of which one that is not there is ErrMapNotFound;
	// with map 0, with every other one that creates maps. It calls fn, and
	// writes the Delta that fn returns; an error of fn leaves the store as it is. now is the store's own clock, in UTC. fn must
	// be pure: it may be called again after a transient fault.
	//
	// An error that wraps ErrUnknownOutcome means the commit may have
	// happened: look at the operation by its id.
	Update(ctx context.Context, m shardway.MapID, fn func(tx Reader, now time.Time) (Delta, error)) error
	// Close frees the connections. It is idempotent.
	Close() error
}

// Deployer creates the global store in its database.
type Deployer interface {
	// Deploy creates the tables and returns the new store's description. A
	// store that is there already is ErrExists, or is replaced, with all its
	// contents, when replace is set. Two programs that deploy at once end with
	// one store.
	Deploy(ctx context.Context, replace bool) (Description, error)
}

// Reader reads the rows of a global store inside one transaction.
type Reader interface {
	// ShardMaps returns all maps, ordered by name.
	ShardMaps(ctx context.Context) ([]shardway.ShardMap, error)
	// Shards returns the shards of a map (0: of all maps) ordered by name,
	// pending ones included.
	Shards(ctx context.Context, m shardway.MapID) ([]ShardRow, error)
	// Mappings returns the mappings that q selects, ordered by low key and
	// pending ones after the others, pending ones included.
	Mappings(ctx context.Context, q MappingQuery) iter.Seq2[MappingRow, error]
	// Operations returns the pending operations that q selects, oldest first.
	Operations(ctx context.Context, q OperationQuery) ([]Operation, error)
	// History returns the entries that q selects, newest first.
	History(ctx context.Context, q HistoryQuery) iter.Seq2[Entry, error]
}

// ShardRow is a shard as the global store keeps it.
type ShardRow struct {
	shardway.Shard
	Operation OperationID // the pending operation that changes it, or 0
	Pending   bool        // it is being added: routers do not see it
}

// MappingRow is a mapping as the global store keeps it.
type MappingRow struct {
	shardway.Mapping
	Operation OperationID // the pending operation that changes it, or 0
	Pending   bool        // it is being added: routers do not see it
}

// MappingQuery selects mappings. Fields left zero do not restrict.
type MappingQuery struct {
	Map     shardway.ShardMap // required: id, kind and key kind
	IDs     []shardway.MappingID
	Within  shardway.Range // list map: points inside; range map: mappings that intersect
	ShardID shardway.ShardID
	Status  *shardway.MappingStatus
	Token   shardway.LockToken // locked with this token, expired or not
	After   shardway.Key       // low key greater than this, to read in pages
	Limit   int                // at most so many; 0 is no limit
}

// OperationQuery selects operations. Fields left zero do not restrict.
type OperationQuery struct {
	ID  OperationID
	Map shardway.MapID
}

// HistoryQuery selects history entries. Fields left zero do not restrict.
type HistoryQuery struct {
	Operation OperationID
	Map       shardway.MapID
	Limit     int // at most so many; 0 is no limit
}

// Delta is what an Update writes, in the order of the fields. All parts are
// written, or none.
type Delta struct {
	AddMap  *shardway.ShardMap // a new map; its generation is 1
	DropMap shardway.MapID     // a map without shards
	// Prepare stores the operation, marks every mapping in Remove and every
	// shard in Before with it, and inserts Add and the new shards as pending.
	// A row to be marked that is not there or carries another mark is ErrStale.
	// The store sets Seq, greater than that of every earlier operation and
	// than the one given, and Horizon.
	Prepare *Operation
	// Publish makes a prepared operation visible: marked mappings are deleted,
	// pending ones become visible, shards become their After state, the map's
	// generation grows by one, and the operation is deleted.
	Publish *Operation
	// Abort takes a prepared operation back: marks are cleared, pending rows
	// and the operation deleted.
	Abort *Operation
	// Lease stores Epoch, Owner and LeaseUntil of an operation, and sets
	// Horizon. Publish, Abort and Lease of an operation that is not pending, or
	// with an older epoch than it has, are ErrLostLease.
	Lease *Operation
	// Lock stores the Lock of each mapping by its id; one that is not there is
	// ErrStale.
	Lock []shardway.Mapping
	// History appends entries. Those of a Publish get the map's new generation.
	History []Entry
}

// Entry is one line of the history: a change that was made or taken back.
type Entry struct {
	Operation  OperationID
	At         time.Time // store clock, UTC
	MapID      shardway.MapID
	MapName    string
	Kind       string // what was done, such as "split mapping"
	Outcome    Outcome
	Who        string
	Reason     string
	Summary    string           // the objects changed, for people
	Generation int64            // of the map after the change; 0 when the map was not changed
	Ranges     []shardway.Range // whose mappings changed; routers follow the map by these. Empty: the whole map, but for ShardsOnly
	ShardsOnly bool             // no mapping changed, at most rows of shards: routers read only these. Ranges is empty then
}

// Outcome is how an operation ended. The numbers are stored.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = 0 // neither pending nor in the history
	Pending Outcome = 1 // not ended
	Done    Outcome = 2 // published
	Undone  Outcome = 3 // taken back
)

// String returns unknown, pending, done or undone.
func (o Outcome) String() string {
	return [...]string{"unknown", "pending", "done", "undone"}[o&3]
}

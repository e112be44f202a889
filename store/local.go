package store

import (
	"context"

	"github.com/shardway/shardway"
)

// Local is the local store: the part of the shard maps that the database of a
// shard keeps. All methods are safe for concurrent use.
type Local interface {
	// Deploy creates the tables when they are missing and binds them to the
	// global store with the given id. It returns ErrForeignStore when they
	// belong to another one and ErrStoreVersion for a version this program
	// cannot use; both leave the database as it is.
	Deploy(ctx context.Context, globalID string) error
	// Describe returns version and the id of the global store, ErrNoStore when
	// the database has no local store, or ErrStoreVersion.
	Describe(ctx context.Context) (Description, error)
	// Read returns one consistent state of everything about a map (0: all maps,
	// ordered by name).
	Read(ctx context.Context, m shardway.MapID) ([]LocalMap, error)
	// Step brings the database to the wanted state of one step of an operation,
	// in one transaction. It is idempotent. See [StepState].
	Step(ctx context.Context, s LocalStep) (StepState, error)
	// Close frees the connections. It is idempotent.
	Close() error
}

// LocalMap is what a local store holds of one shard map.
type LocalMap struct {
	Map      shardway.ShardMap // Generation is not kept locally
	Shard    shardway.Shard
	Mappings []shardway.Mapping // ordered by low key; locks are not kept locally
}

// LocalStep asks a local store for the outcome of one step of an operation.
type LocalStep struct {
	Operation OperationID
	Seq       int64
	Horizon   int64 // [Operation.Horizon]: local stores forget what is below; 0: nothing
	Epoch     int64
	Map       shardway.ShardMap
	Step      Step
	Want      StepState // what it should be afterwards

	// Drain says what becomes of those who use the mappings that the step takes
	// away. A store whose database has no sessions, or cannot tell what they are
	// for, does as far as it can.
	Drain Drain
	// Drained, if not nil, has what the step met added to it. It is written
	// before Step returns.
	Drained *Drained
}

// StepState is the state of one step in one local store. The numbers are stored.
//
// A local store remembers for every operation the state and the highest epoch.
// A step with a lower epoch returns ErrLostLease and changes nothing; a higher
// one is remembered. Then:
//
//	wanted Seen:    changes no map row; returns the state found
//	wanted Applied: untouched or Seen → the rows change, Applied; Applied → nothing; Undone → ErrLostLease
//	wanted Undone:  untouched or Seen → Undone, no map row changes; Applied → the rows change back; Undone → nothing
//
// Applying removes exactly the rows of Remove and Before (by id and version)
// and inserts Add and After; when a row to remove is missing, or one to add is
// already there, the step is refused with ErrMapsDiffer, as is one that would
// leave mappings without their shard.
//
// Before rows are removed, the step waits for transactions and holders that
// keep their mappings where they are, as its Drain says, and is refused with
// ErrMappingBusy when they stay. Once the shard has given mappings up
// ([LocalStep.Leaving]), a step that wants Applied ends the sessions that are
// left over from them, also when it was applied before: a step may be repeated
// to make sure. An error then does not mean that nothing has changed.
//
// A store forgets operations below the step's Horizon, some of them with each
// step: nobody will finish them or take them back any more. It also may forget
// those that changed nothing. It keeps a Seq, [Description.Forgotten], up to
// which every operation that it does not know counts as Undone: an executor that
// comes late is refused, and changes nothing.
type StepState uint8

// The step states.
const (
	StepSeen    StepState = 1 // fenced: known, no rows changed
	StepApplied StepState = 2
	StepUndone  StepState = 3
)

package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/shardway/shardway"
)

// ErrUnknownOutcome is a commit whose acknowledgement was lost.
var ErrUnknownOutcome error = unknownOutcome{}

type unknownOutcome struct{}

// Error returns the text.
func (unknownOutcome) Error() string { return "outcome unknown" }

// CommitUnknown is true: package retry does not repeat such a unit unasked.
func (unknownOutcome) CommitUnknown() bool { return true }

// ErrLostLease is a step of an executor whose operation somebody else has
// taken over. Nothing was written.
var ErrLostLease = errors.New("operation was taken over")

// ErrMapsDiffer is a local map that does not hold what the global map says it
// holds: the change was not made; recovery has to resolve the difference.
var ErrMapsDiffer = errors.New("local and global shard map differ")

// OperationID identifies an operation for ever; ids are random.
type OperationID int64

// String returns 16 hex digits.
func (id OperationID) String() string { return fmt.Sprintf("%016x", int64(id)) }

// ParseOperationID reads what [OperationID.String] prints.
func ParseOperationID(text string) (OperationID, error) {
	v, err := strconv.ParseInt(text, 16, 64)
	if err != nil || len(text) != 16 || v <= 0 {
		return 0, &shardway.ArgumentError{Argument: "operation id", Value: text, Reason: "is no id: those have 16 hex digits, the first one 0 to 7, and are not 0"}
	}
	return OperationID(v), nil
}

// NewID returns a random positive number for a map, shard, mapping, version or
// operation id.
func NewID() int64 {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails, see its documentation
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id != 0 {
			return id
		}
	}
}

// Operation is a change of shards or mappings on its way through the global
// store and the local stores. It is complete: with it alone, anybody can
// finish the change or take it back.
type Operation struct {
	ID  OperationID
	Seq int64 // order of preparation in the global store; set by it
	// Horizon: every operation with a lower Seq has ended. It is what the
	// global store knew when it prepared or leased the operation, at most Seq,
	// and not kept; 0 says nothing.
	Horizon int64
	Kind    string
	Map     shardway.ShardMap
	Steps   []Step // in the order in which local stores change
	Who     string
	Reason  string
	Summary string
	Started time.Time // store clock, UTC

	// The executor. Epoch grows whenever somebody takes the operation over;
	// steps of an older epoch are refused everywhere.
	Epoch      int64
	Owner      string
	LeaseUntil time.Time // store clock, UTC
}

// Step is the part of an operation that changes one local store. Undoing it
// exchanges Before and After, Remove and Add.
type Step struct {
	Shard  shardway.Shard  // where the step is applied: the location to connect to
	Before *shardway.Shard // shard row before; nil when the step adds the shard or leaves it alone
	After  *shardway.Shard // shard row after; nil when the step removes the shard or leaves it alone
	Remove []shardway.Mapping
	Add    []shardway.Mapping
	// LocalOnly is set when the step says nothing about the rows of the global
	// store: those are what the other steps say.
	LocalOnly bool
	// GlobalOnly is set when no local store changes with the step: it says what
	// the rows of the global store become, and nobody connects to its shard.
	GlobalOnly bool
}

// GlobalSteps returns the steps that the rows of the global store follow.
func (o *Operation) GlobalSteps() []Step {
	return slices.DeleteFunc(slices.Clone(o.Steps), func(s Step) bool { return s.LocalOnly })
}

// Removed returns the mappings that the operation removes from the global store.
func (o *Operation) Removed() []shardway.Mapping {
	var all []shardway.Mapping
	for _, s := range o.GlobalSteps() {
		all = append(all, s.Remove...)
	}
	return all
}

// Added returns the mappings that the operation adds to the global store.
func (o *Operation) Added() []shardway.Mapping {
	var all []shardway.Mapping
	for _, s := range o.GlobalSteps() {
		all = append(all, s.Add...)
	}
	return all
}

package mongoshard

import (
	"errors"
	"fmt"

	"github.com/shardway/shardway"
)

// EngineError is a shard on another engine than this adapter connects to.
type EngineError struct {
	Shard  string // its name
	Engine string // that it is on
	mixed  bool
}

// Error names shard and engine, and says what to do where nobody has said that
// the map has shards on several engines.
func (e *EngineError) Error() string {
	text := fmt.Sprintf("shard %q is on %s, not on MongoDB", e.Shard, e.Engine)
	if !e.mixed {
		text += ": connect to it with the adapter for that engine, and set ShardConfig.Mixed to say that it is meant so"
	}
	return text
}

// Is reports whether target is [shardway.ErrInvalid].
func (e *EngineError) Is(target error) bool { return target == shardway.ErrInvalid }

// TransactionError is a transaction asked of a deployment that has none.
type TransactionError struct {
	Deployment string // its URI with hosts and replica set only
}

// Error names the deployment.
func (e *TransactionError) Error() string {
	return "deployment " + e.Deployment + " has no transactions: it is a standalone server; a replica set of one member has them"
}

// Is reports whether target is [shardway.ErrInvalid].
func (e *TransactionError) Is(target error) bool { return target == shardway.ErrInvalid }

// changingError is a mapping that is about to be removed. Nothing was done.
type changingError struct{}

// Error says so.
func (*changingError) Error() string { return "the mapping is just being changed" }

// Is reports whether target is [shardway.ErrPending].
func (*changingError) Is(target error) bool { return target == shardway.ErrPending }

// SafeToRetry is true: the transaction has done nothing.
func (*changingError) SafeToRetry() bool { return true }

// errNotHere is a shard that does not have the mapping.
var errNotHere = errors.New("the shard does not have the mapping")

// errShardsClosed is a [Shards] that was closed.
var errShardsClosed = fmt.Errorf("adapter is closed: %w", shardway.ErrUnavailable)

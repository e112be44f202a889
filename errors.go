package shardway

import (
	"errors"
	"strings"
)

// The errors to match with errors.Is. They arrive wrapped: the text around
// them names the map, key, shard or server.
var (
	// ErrInvalid is bad input: an [ArgumentError] says which argument and why.
	ErrInvalid = errors.New("invalid argument")
	// ErrKeyRequired is a lookup without a key: nil bytes, the zero [Key], or a context without one.
	ErrKeyRequired = errors.New("key required")
	// ErrWrongType is a shard map used with another map kind or key kind than it has.
	ErrWrongType = errors.New("wrong map kind or key kind")
	// ErrMapNotFound is an unknown shard map.
	ErrMapNotFound = errors.New("shard map not found")
	// ErrShardNotFound is an unknown shard.
	ErrShardNotFound = errors.New("shard not found")
	// ErrKeyNotMapped is a key, or a mapping, that the shard map does not have.
	ErrKeyNotMapped = errors.New("key not mapped")
	// ErrExists is a name, location, point or range that is already taken.
	ErrExists = errors.New("already exists")
	// ErrInUse is a shard map with shards, or a shard with mappings, that should be deleted.
	ErrInUse = errors.New("still in use")
	// ErrStale is an object that was changed by somebody else since it was read: read it again.
	ErrStale = errors.New("object is stale")
	// ErrMappingOffline is a connection asked for a key whose mapping is offline.
	ErrMappingOffline = errors.New("mapping is offline")
	// ErrMappingOnline is a change that needs an offline mapping.
	ErrMappingOnline = errors.New("mapping is online")
	// ErrMappingLocked is a mapping locked by another owner, or an unlock with a wrong token.
	ErrMappingLocked = errors.New("mapping is locked")
	// ErrPending is a change that waits for another operation on the same mapping or shard.
	ErrPending = errors.New("another operation is pending")
	// ErrUnavailable is a store or shard that cannot be reached or does not let us in.
	ErrUnavailable = errors.New("unavailable")
	// ErrNoStore is a database without a global or local store.
	ErrNoStore = errors.New("no store here")
	// ErrStoreVersion is a store of a version that this program does not know.
	ErrStoreVersion = errors.New("store version not supported")
	// ErrForeignStore is a shard database that belongs to another global store.
	ErrForeignStore = errors.New("belongs to another global store")
	// ErrPoolExhausted is a wait for a free connection that ended before there was one.
	ErrPoolExhausted = errors.New("connection pool exhausted")
)

// ArgumentError says which argument is wrong. It matches [ErrInvalid].
type ArgumentError struct {
	Argument string // its name, as the caller knows it
	Value    string // what was given, as text; empty when there is nothing to show
	Reason   string // what is wrong with it, to be read after name and value
}

// Error returns argument, value and reason.
func (e *ArgumentError) Error() string {
	if e.Value == "" {
		return e.Argument + " " + e.Reason
	}
	return e.Argument + " " + `"` + e.Value + `" ` + e.Reason
}

// Is reports whether target is [ErrInvalid].
func (e *ArgumentError) Is(target error) bool { return target == ErrInvalid }

// LookupError adds to an error where on the way key → shard → server →
// connection it happened. Fields that are not known are empty.
type LookupError struct {
	Map    string // name of the shard map
	Key    string // the key as text
	Shard  string // name of the shard
	Server string // address of the server
	Err    error  // the cause
}

// Error names what is known, then the cause.
func (e *LookupError) Error() string {
	var b strings.Builder
	for _, part := range [...][2]string{{"shard map", e.Map}, {"key", e.Key}, {"shard", e.Shard}, {"server", e.Server}} {
		if part[1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(part[0] + ` "` + part[1] + `"`)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LookupError) Unwrap() error { return e.Err }

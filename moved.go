package shardway

import "fmt"

// MovedError is the error of work whose session was ended by the server because
// the key's mapping is being changed: it goes offline, or to another shard. It
// matches [ErrStale].
//
// A session that was ended does not say why. The adapter asks the shard once
// more, on another session: if it does not have the mapping online any more, that
// is why.
type MovedError struct {
	Map    string // name of the shard map
	Shard  string // name of the shard that had the mapping
	Undone bool   // nothing of the work was kept: its transaction had not begun to commit
	Err    error  // what the driver said, or why the work was not done again
}

// Error names shard map and shard, then the cause.
func (e *MovedError) Error() string {
	return fmt.Sprintf("shard map %q: the mapping on shard %q was changed meanwhile and the session ended: %v", e.Map, e.Shard, e.Err)
}

// Is reports whether target is [ErrStale].
func (e *MovedError) Is(target error) bool { return target == ErrStale }

// Unwrap returns the cause.
func (e *MovedError) Unwrap() error { return e.Err }

// SafeToRetry is true when nothing of the work was kept.
func (e *MovedError) SafeToRetry() bool { return e.Undone }

// DemotedError is the error of a statement or a commit on a session of a server
// that was primary when the session was given out and was seen to be primary no
// longer. It was not sent. It matches [ErrUnavailable].
type DemotedError struct {
	Server string // address
}

// Error names the server.
func (e *DemotedError) Error() string {
	return fmt.Sprintf("server %q is not primary any more: nothing more was sent to it", e.Server)
}

// Is reports whether target is [ErrUnavailable].
func (e *DemotedError) Is(target error) bool { return target == ErrUnavailable }

// SafeToRetry is true: what the error is of did not reach a server.
func (e *DemotedError) SafeToRetry() bool { return true }

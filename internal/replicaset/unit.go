package replicaset

import (
	"errors"
	"slices"
	"sync"

	"github.com/shardway/shardway"
)

// Unit remembers the servers that failed one unit of work, over its attempts.
// It is safe for concurrent use. A nil Unit remembers nothing.
type Unit struct {
	mu     sync.Mutex // guards the field below
	failed []string   // addresses
}

func (u *Unit) add(address string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.failed, address) {
		u.failed = append(u.failed, address)
	}
}

func (u *Unit) servers() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.failed)
}

// Attempt is one piece of work on its way to a server. It is for one goroutine.
// The zero value is one of no unit.
type Attempt struct {
	Unit   *Unit    // that it belongs to, or nil
	Server string   // address of the last server tried
	failed []string // addresses of servers that failed in this attempt
}

// Avoid has the attempt choose a server only if no other suits.
func (a *Attempt) Avoid(address string) { a.failed = append(a.failed, address) }

// avoided are the servers that are chosen only if no other suits.
func (a *Attempt) avoided() []string {
	if a.Unit == nil {
		return a.failed
	}
	return append(a.Unit.servers(), a.failed...)
}

// MovedBefore adds to an error of a unit of work that the session of an
// earlier attempt was ended by a change of the mapping, when the mapping is away.
func MovedBefore(err error) error {
	var lookup *shardway.LookupError
	switch {
	case errors.As(err, new(*shardway.MovedError)): // it says so itself
		return err
	case !errors.Is(err, shardway.ErrMappingOffline) && !errors.Is(err, shardway.ErrStale), !errors.As(err, &lookup):
		return err
	}
	return &shardway.MovedError{Map: lookup.Map, Shard: lookup.Shard, Err: err, Undone: true}
}

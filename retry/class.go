package retry

import (
	"database/sql/driver"
	"errors"
	"strconv"

	"github.com/shardway/shardway/internal/dialect"
)

// Class is what an error is worth to those who could do the work once more.
type Class int

// The classes.
const (
	None          Class = iota // no error
	SafeToRetry                // nothing reached a server
	Transient                  // nothing was kept: deadlock, conflict, read-only server, lost before the commit
	Overloaded                 // nothing was kept, and the server needs a pause: never repeated at once
	Offline                    // the mapping is offline: repeated if [Policy.WaitOffline] says so
	Permanent                  // the same would happen again, or nothing is known of the error
	Cancelled                  // a context ended: never repeated
	CommitUnknown              // the work may have been kept: never repeated unasked
)

// String returns the class's name.
func (c Class) String() string {
	names := [...]string{"none", "safe to retry", "transient", "overloaded", "offline", "permanent", "cancelled", "commit unknown"}
	if c < 0 || int(c) >= len(names) {
		return "class " + strconv.Itoa(int(c))
	}
	return names[c]
}

// ErrCommitUnknown is work that may or may not have been kept: the answer to
// its commit was lost. Find out before doing it again; see [Policy.Applied].
var ErrCommitUnknown = errors.New("outcome of the commit is unknown")

// Classify returns an error's class. An error that nobody has marked and that
// leaves the outcome open, such as a connection that broke during a statement,
// is CommitUnknown: see [Uncommitted]. Of several joined errors the worst
// counts, in the order of the classes.
func Classify(err error) Class {
	if err == nil {
		return None
	}
	return weigh(err).class()
}

// verdict is a class with what else must be known to mark errors. Worse ones
// are greater.
type verdict int

const (
	unmarked verdict = iota // nothing is known of the error
	safe
	again
	later
	offline
	never
	expired   // a context's deadline
	cancelled // a context was cancelled
	timedOut  // no answer in time: may have been done
	broken    // the connection broke: may have been done
	unknown   // the answer to a commit was lost
)

func (v verdict) class() Class {
	switch v {
	case safe:
		return SafeToRetry
	case again:
		return Transient
	case later:
		return Overloaded
	case offline:
		return Offline
	case expired, cancelled:
		return Cancelled
	case timedOut, broken, unknown:
		return CommitUnknown
	case unmarked, never:
	}
	return Permanent
}

// uncommitted is what v means when the work was not asked to be kept.
func (v verdict) uncommitted() verdict {
	switch v {
	case expired, timedOut:
		return later
	case broken:
		return again
	default:
		return v
	}
}

// committing is what v means for an answer to a commit: unless the server says
// that the transaction was rolled back, it may stand.
func (v verdict) committing() verdict {
	switch v {
	case safe, again, later, never:
		return v
	default:
		return unknown
	}
}

// weigh finds the verdict on a tree of errors. What a node says of itself
// covers the errors below it, except an unknown commit; of siblings the worst
// counts. A sentinel wrapped next to its cause says what its parent is.
func weigh(err error) verdict {
	below, by := unmarked, unmarked
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			below = weigh(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if v, ok := sentinel(inner); ok {
				by = max(by, v)
			} else if inner != nil {
				below = max(below, weigh(inner))
			}
		}
	}
	if by != unmarked {
		below = cover(by, below)
	}
	return judge(err, below)
}

// judge is the verdict on a node, given that on the errors below it.
func judge(err error, below verdict) verdict {
	switch e := err.(type) { //nolint:errorlint // weigh walks the tree
	case *StoppedError:
		return max(below, never) // it has been repeated
	case *uncommittedError:
		return below.uncommitted()
	case *commitError:
		return below.committing()
	case interface{ CommitUnknown() bool }:
		if e.CommitUnknown() {
			return unknown
		}
	}
	if below == unknown {
		return unknown
	}
	if v, ok := sentinel(err); ok {
		return v
	}
	if saysSafe(err) {
		return cover(safe, below)
	}
	if repeat, ok := dialect.Reported(err); ok {
		return max(below, verdicts[repeat])
	}
	if v, ok := labelled(err); ok {
		return v
	}
	if v, ok := network(err); ok {
		return v
	}
	return below
}

// cover is the verdict on a node that says of itself that nothing was kept,
// over errors that say why. A reason that will not go away counts more.
func cover(by, below verdict) verdict {
	if by == unknown || by == offline {
		return max(by, below)
	}
	if v := below.uncommitted(); v != unmarked && v != safe {
		return v
	}
	return by
}

// saysSafe reports whether err itself says that nothing was kept. By the
// contract of database/sql, drivers say ErrBadConn only then.
func saysSafe(err error) bool {
	if err == driver.ErrBadConn { //nolint:errorlint // weigh walks the tree
		return true
	}
	if e, ok := err.(interface{ Is(target error) bool }); ok && e.Is(driver.ErrBadConn) {
		return true
	}
	e, ok := err.(interface{ SafeToRetry() bool })
	return ok && e.SafeToRetry()
}

// verdicts are those on errors that a server reported.
var verdicts = map[dialect.Repeat]verdict{
	dialect.Never:    never,
	dialect.Again:    again,
	dialect.Later:    later,
	dialect.Broken:   broken,
	dialect.TimedOut: timedOut,
}

// sentinel returns the verdict on one of Shardway's own errors.
func sentinel(err error) (verdict, bool) {
	for i := range own {
		if own[i].err == err { //nolint:errorlint // weigh walks the tree
			return own[i].verdict, true
		}
	}
	return unmarked, false
}

package mongoshard

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway/selection"
)

// ErrForeignClient means that a client was not made by Connect or With.
var ErrForeignClient = errors.New("the client was not made by mongoshard")

// errAsked ends an operation that only asked for its deployment.
var errAsked = errors.New("the operation asked for its deployment only")

// OptionError refuses client options that this package cannot honor, or that
// contradict each other.
type OptionError struct {
	// Option names the option; if two contradict each other, both.
	Option string
	// Reason says why it is refused, and what to do.
	Reason string
}

// Error names the option and the reason.
func (e *OptionError) Error() string {
	return fmt.Sprintf("client option %s: %s", e.Option, e.Reason)
}

// Error says that no server of a deployment was selected. Err is the cause: a
// *selection.Error with the step that dropped each server, a
// *selection.InvalidError, a *selection.PredicateError, or the driver's error
// of a deployment that it cannot speak to.
type Error struct {
	// Deployment is its URI with hosts and replica set only.
	Deployment string
	// Err is the cause.
	Err error
	// Strangers are the servers that answered but belong to another deployment,
	// by address.
	Strangers []*StrangerError
}

// Error names the deployment, the cause and the strangers.
func (e *Error) Error() string {
	text := fmt.Sprintf("selecting a server of %s: %v", e.Deployment, e.Err)
	for _, stranger := range e.Strangers {
		text += "; " + stranger.Error()
	}
	return text
}

// Unwrap returns the cause and the strangers. After a selection timeout it also
// has context.DeadlineExceeded, so that mongo.IsTimeout holds.
func (e *Error) Unwrap() []error {
	list := []error{e.Err}
	if errors.Is(e.Err, selection.ErrTimeout) {
		list = append(list, context.DeadlineExceeded)
	}
	for _, stranger := range e.Strangers {
		list = append(list, stranger)
	}
	return list
}

// SafeToRetry is true: nothing reached a server.
func (e *Error) SafeToRetry() bool { return true }

// StrangerError says why the driver left out a server that answered.
type StrangerError struct {
	// Server is its address.
	Server string
	// Type is what it said it is, such as "Mongos" or "RSPrimary".
	Type string
	// SetName is the replica set it said it is a member of; it may be empty.
	SetName string
	// Want is the replica set that the options name.
	Want string
}

// Error names the server, what it is and the replica set that was asked for.
func (e *StrangerError) Error() string {
	if e.SetName == "" {
		return fmt.Sprintf("server %s is a %s, not a member of replica set %q", e.Server, e.Type, e.Want)
	}
	return fmt.Sprintf("server %s is a member of replica set %q, not of %q", e.Server, e.SetName, e.Want)
}

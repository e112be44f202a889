package selection

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoServer means that no server of the set suits the criteria. Every such
// error is an *Error.
var ErrNoServer = errors.New("no suitable server")

// InvalidError refuses criteria or a request that no change of the servers
// could make valid.
type InvalidError struct {
	// Field names what is wrong.
	Field string
	// Reason says why, and what would be right.
	Reason string
}

// Error names the field and the reason.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid server selection: %s: %s", e.Field, e.Reason)
}

// PredicateError is the error of a selection whose predicate panicked.
type PredicateError struct {
	// Predicate is the function's name.
	Predicate string
	// Server is the address it was asked about.
	Server string
	// Value is what it panicked with.
	Value any
}

// Error names the predicate, the server and the value.
func (e *PredicateError) Error() string {
	return fmt.Sprintf("predicate %s panicked on server %s: %v", e.Predicate, e.Server, e.Value)
}

// Error says why no server was selected. It matches ErrNoServer, and the cause
// of the end of waiting, with errors.Is.
type Error struct {
	// Explanation has the step that dropped each server.
	Explanation Explanation
	// Waited is how long a Selector waited for a change.
	Waited time.Duration
	// Cause is why waiting ended: the context's error, ErrTimeout, or nil if
	// nothing was waited for.
	Cause error
}

// ErrTimeout means that the selection timeout passed.
var ErrTimeout = errors.New("selection timeout")

// maxErrorBytes keeps an error's text readable in a log, however many servers.
const maxErrorBytes = 4000

// Error names the criteria and, grouped by step, every server. It is shorter
// than 4 kB: with many servers first details go, then addresses.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no suitable server for %s (%s)", e.Explanation.Operation, e.Explanation.Criteria)
	if e.Cause != nil {
		fmt.Fprintf(&b, " after %v: %v", e.Waited.Round(time.Millisecond), e.Cause)
	}
	if reason := e.Explanation.Final; reason != "" {
		b.WriteString(": " + reason)
	}
	head := b.String()
	if len(head) > maxErrorBytes/4 {
		head = head[:maxErrorBytes/4] + "…"
	}
	for _, maxDetail := range []int{160, 40, 0} {
		if text := head + e.Explanation.group(maxDetail, 0); len(text) <= maxErrorBytes {
			return text
		}
	}
	return head + e.Explanation.group(0, maxErrorBytes-len(head)-40)
}

// Unwrap returns ErrNoServer, the cause, and the conflict between servers that
// claim to be primary, if there is one.
func (e *Error) Unwrap() []error {
	list := []error{ErrNoServer}
	if e.Cause != nil {
		list = append(list, e.Cause)
	}
	if e.Explanation.Conflict != nil {
		list = append(list, e.Explanation.Conflict)
	}
	return list
}

// SafeToRetry is true: nothing reached a server.
func (e *Error) SafeToRetry() bool { return true }

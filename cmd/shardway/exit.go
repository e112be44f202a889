package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/store"
)

// The exit codes. They are part of the interface: docs/cli.md lists them.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitVersion     = 6
	exitPending     = 7
	exitDiffer      = 8
	exitInterrupted = 130
)

// exitCodes is the table of the help text.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "all is well, or a dry run found nothing against the change"},
	{exitOther, "any other error, or not confirmed; of diff: the two differ; of doctor: warnings"},
	{exitUsage, "bad input: unknown command or flag, malformed key, empty range, wrong key type, no such file; of doctor: errors"},
	{exitNotFound, "no such shard map, shard, mapping or operation"},
	{exitConflict, "refused as things stand: exists already, in use, online, offline, locked, stale"},
	{exitUnavailable, "a store or shard cannot be reached or does not let us in, or has no store"},
	{exitVersion, "a store of another version, one to be upgraded, or one of another global store"},
	{exitPending, "a change is pending: shardway operations, shardway recover"},
	{exitDiffer, "a shard's local map differs from the global one"},
	{exitInterrupted, "interrupted; nothing has changed, or the message says what has"},
}

// errUpgradeDue is what status found: a store older than the program.
var errUpgradeDue = errors.New("upgrade due")

// errOperationUnknown is an operation id that a store has never seen.
var errOperationUnknown = errors.New("operation not found")

// verdict says what to make of an error.
type verdict struct {
	err  error
	code int
	hint string
}

// verdicts are looked through in order and the first that matches counts: what
// is pending comes before the reason why it is.
var verdicts = []verdict{
	{shardway.ErrPending, exitPending, "shardway operations shows it, shardway recover ends it"},
	{store.ErrUnknownOutcome, exitPending, "shardway operations ID tells how it ended"},
	{store.ErrMapsDiffer, exitDiffer, ""},
	{context.Canceled, exitInterrupted, ""},
	{shardway.ErrForeignStore, exitVersion, ""},
	{shardway.ErrStoreVersion, exitVersion, ""},
	{errUpgradeDue, exitVersion, "shardway upgrade brings the stores to the version of this program"},
	{shardway.ErrMapNotFound, exitNotFound, "shardway map list shows the shard maps"},
	{shardway.ErrShardNotFound, exitNotFound, "shardway shard list --map MAP shows the shards"},
	{shardway.ErrKeyNotMapped, exitNotFound, "shardway mapping list --map MAP shows the mappings"},
	{errOperationUnknown, exitNotFound, ""},
	{shardway.ErrStale, exitConflict, "it has changed since its id was read: look again and decide anew"},
	{shardway.ErrMappingLocked, exitConflict, "the owner's --token opens it; shardway mapping unlock --force takes the lock away"},
	{shardway.ErrMappingOnline, exitConflict, "shardway mapping offline takes it offline"},
	{store.ErrMappingBusy, exitConflict, "--drain 30s waits longer and then ends the sessions, --drain kill ends them at once"},
	{shardway.ErrMappingOffline, exitConflict, "shardway mapping online brings it back"},
	{shardway.ErrExists, exitConflict, ""},
	{errNotAllowed, exitConflict, ""},
	{errDifferent, exitOther, ""},
	{errNotConfirmed, exitOther, ""},
	{errWarnings, exitOther, ""},
	{errGrave, exitUsage, ""},
	{shardway.ErrInUse, exitConflict, ""},
	{shardway.ErrNoStore, exitUnavailable, "shardway init creates the global store, shardway shard add that of a new shard; shardway doctor says how a lost one comes back"},
	{shardway.ErrInvalid, exitUsage, ""},
	{shardway.ErrKeyRequired, exitUsage, ""},
	{shardway.ErrWrongType, exitUsage, ""},
	{shardway.ErrUnavailable, exitUnavailable, ""},
	{selection.ErrNoServer, exitUnavailable, "shardway servers SHARD --map MAP shows the servers"},
	{shardway.ErrPoolExhausted, exitUnavailable, ""},
	{context.DeadlineExceeded, exitUnavailable, ""},
}

// judge returns the exit code for an error and what to do about it.
func judge(ctx context.Context, err error) (code int, hint string) {
	var h *hinted
	if errors.As(err, &h) {
		hint = h.hint
	}
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			if hint == "" {
				hint = v.hint
			}
			return v.code, hint
		}
	}
	if ctx.Err() != nil { // a driver that does not wrap the cancellation
		return exitInterrupted, hint
	}
	return exitOther, hint
}

// hinted is an error with the command to run next.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// usageError is a mistake in the command line itself.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Is reports whether target is [shardway.ErrInvalid].
func (e *usageError) Is(target error) bool { return target == shardway.ErrInvalid }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func exitCodesText() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.meaning)
	}
	return b.String()
}

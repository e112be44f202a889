package pgxshard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
)

// The questions to the local map. Those of the fence must fail where the
// mapping is not here online, for a statement that follows in a pipeline runs
// unless one before it fails. A text that is no number does that, and says why.
var (
	askPlain    = postgres.ValidateMapping()
	askLocked   = postgres.LockMapping()
	tagPlain    = postgres.ValidateTagged()
	tagLocked   = postgres.LockTagged()
	tagReadOnly = postgres.ValidateTaggedTx()
	fencePlain  = fence(askPlain)
	fenceLocked = fence(askLocked)
	untag       = postgres.Untag()
)

const (
	saysOffline = "shardway: mapping is offline"
	saysNotHere = "shardway: mapping is not here"
)

func fence(question string) string {
	return `SELECT (CASE (` + question + `) WHEN 1 THEN '1' WHEN 0 THEN '` + saysOffline + `' ELSE '` + saysNotHere + `' END)::int`
}

// errNotHere is a shard that does not have the mapping.
var errNotHere = errors.New("the shard does not have the mapping")

// errBroken is a session that was dead when it was to be used: nothing was done.
var errBroken = errors.New("session is broken")

// errAgain is a validation that the server took back because of what others did
// at the same time: nothing was done, and the session is as good as before.
var errAgain = errors.New("in conflict with others")

// statementError is an error of the caller's own statement, on a shard that was
// validated. The caller gets the cause.
type statementError struct{ err error }

// Error returns the cause's text.
func (e *statementError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *statementError) Unwrap() error { return e.err }

// refused tells what the fence says, if it does: the server's message quotes it
// in every language.
func refused(err error) error {
	e := fromServer(err)
	switch {
	case e == nil || e.Code != "22P02":
		return nil
	case strings.Contains(e.Message, saysOffline):
		return shardway.ErrMappingOffline
	case strings.Contains(e.Message, saysNotHere):
		return errNotHere
	}
	return nil
}

// checkFailed gives the error of a validation its meaning. Whatever was sent
// behind it was not done, unless the connection broke without a word.
func (v *visit) checkFailed(ctx context.Context, err error) error {
	const doing = "validating the connection"
	if r := refused(err); r != nil {
		v.pool.failedChecks.Add(1)
		return r
	}
	if replicaset.Over(ctx) && fromServer(err) == nil {
		return replicaset.Ended(ctx, doing, err)
	}
	if postgres.ReadOnly(err) {
		v.readOnly(err)
	}
	switch postgres.Classify(err) {
	case dialect.Transient:
		return fmt.Errorf("%s: %w: %w: %w", doing, errAgain, shardway.ErrUnavailable, err)
	case dialect.Lost, dialect.Outdated:
		v.state.forget()
		if v.reused {
			return fmt.Errorf("%s: %w: %w: %w", doing, errBroken, shardway.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
	case dialect.NoTable:
		return fmt.Errorf("%s: the database has no local store: %w: %w", doing, shardway.ErrNoStore, err)
	case dialect.Unavailable:
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
	case dialect.Other, dialect.Duplicate:
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// readOnly learns from a server that takes no writes though it should: all
// sessions to it are suspect.
func (v *visit) readOnly(err error) {
	if v.reads {
		return
	}
	v.pool.suspect()
	v.dirty = true
	if v.seat.set != nil {
		v.seat.set.RefusedWrite(v.unit, v.seat.server, time.Now(), err)
	}
}

// learn takes note of the error of a statement.
func (v *visit) learn(ctx context.Context, err error) {
	switch {
	case err == nil:
	case postgres.ReadOnly(err):
		v.readOnly(err)
	case v.seat.set != nil && !replicaset.Over(ctx) && v.conn.Conn().IsClosed():
		v.seat.set.Broke(v.unit, v.seat.server, time.Now(), err)
	}
}

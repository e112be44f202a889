package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Causes of a [StoppedError], besides [ErrCommitUnknown] and the errors of
// contexts.
var (
	// ErrAttemptsSpent is a unit that failed as often as it may.
	ErrAttemptsSpent = errors.New("no attempts left")
	// ErrBudgetSpent is a unit whose shard has no more repeated attempts in its
	// [Budget].
	ErrBudgetSpent = errors.New("no retry budget left")
)

// StoppedError is an error that would have been repeated, had something not
// stopped it. It matches its cause and wraps the last error.
type StoppedError struct {
	Attempts int   // attempts that were made
	Cause    error // ErrAttemptsSpent, ErrBudgetSpent, ErrCommitUnknown or a context's error
	Err      error // of the last attempt
}

// Error says why, after how many attempts, and the last error.
func (e *StoppedError) Error() string {
	times := "1 attempt"
	if e.Attempts != 1 {
		times = fmt.Sprintf("%d attempts", e.Attempts)
	}
	return fmt.Sprintf("giving up after %s: %v: %v", times, e.Cause, e.Err)
}

// Unwrap returns the last error and the cause.
func (e *StoppedError) Unwrap() []error { return []error{e.Err, e.Cause} }

// Attempt is what [Policy.OnAttempt] is told.
type Attempt struct {
	Number  int           // counted from 1
	Err     error         // nil: the unit is done
	Class   Class         // of Err
	Elapsed time.Duration // how long the attempt took
	Again   bool          // there will be another one, unless the context ends first
	Pause   time.Duration // before the next attempt
}

// Do runs a unit of work and runs it again, as a whole, while its error is
// transient and p allows it. fn gets a context that ends with the attempt and
// the number of the attempt, counted from 1. A panic of fn passes through.
//
// Errors that are not worth repeating are returned as they are. A unit whose
// outcome is unknown is not repeated unless p.Applied says that its work was
// not kept: the error matches [ErrCommitUnknown]. Do does not start a pause
// that the context's deadline would end; then, and after the end of ctx, the
// error matches both the last error and that of the context. A policy without
// any end is refused with a [shardway.ArgumentError], before fn is run.
func Do(ctx context.Context, p Policy, fn func(ctx context.Context, attempt int) error) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("starting a unit of work: %w", ended(ctx))
	}
	u := &unit{policy: p.withDefaults(), fn: fn}
	if p.MaxElapsed > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.MaxElapsed)
		defer cancel()
	}
	u.deadline, u.ends = ctx.Deadline()
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, u.turn(ctx) },
		backoff.WithBackOff(u),
		backoff.WithMaxTries(uint(u.policy.MaxAttempts)),
		backoff.WithMaxElapsedTime(0), // the context has it
		backoff.WithNotify(func(_ error, pause time.Duration) { u.tell(true, pause) }))
	if err != nil {
		err = u.stopped(ctx)
	}
	u.tell(false, 0)
	if err == nil {
		u.policy.Budget.succeed(u.policy.Shard)
	}
	return err
}

// attemptKey is the number of the attempt in its context.
type attemptKey struct{}

// AttemptNumber returns the number of the attempt that ctx was made for by
// [Do], counted from 1; 0 for other contexts.
func AttemptNumber(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// unit is one call of Do.
type unit struct {
	policy   Policy
	fn       func(ctx context.Context, attempt int) error
	deadline time.Time // if ends
	ends     bool

	attempts int
	pauses   int
	err      error    // of the last attempt
	verdict  verdict  // on err
	inDoubt  bool     // Applied must be asked before fn is run again
	asking   error    // of asking Applied the last time
	stop     error    // why there is no pause
	untold   *Attempt // what OnAttempt has not been told
}

// errAgain and errStop are all that package backoff sees of errors.
var (
	errAgain = errors.New("again")
	errStop  = backoff.Permanent(errors.New("stop"))
)

// turn is one attempt, or finding out what became of the last one.
func (u *unit) turn(ctx context.Context) error {
	if u.inDoubt {
		switch applied := u.ask(ctx); {
		case applied:
			return nil
		case u.inDoubt:
			return u.again(u.worth(u.asking).uncommitted())
		}
	}
	u.attempts++
	u.asking = nil
	start := time.Now()
	u.err, u.verdict = u.attempt(ctx)
	u.untold = &Attempt{Number: u.attempts, Err: u.err, Elapsed: time.Since(start)}
	if u.err == nil {
		return nil
	}
	u.untold.Class = u.verdict.class()
	if u.untold.Class == CommitUnknown {
		u.inDoubt = u.policy.Applied != nil
	}
	return u.again(u.verdict)
}

// ask finds out whether the last attempt was applied. Without an answer the
// doubt stays.
func (u *unit) ask(ctx context.Context) (applied bool) {
	applied, u.asking = u.policy.Applied(ctx)
	u.inDoubt = u.asking != nil
	return applied && !u.inDoubt
}

// attempt runs the unit once.
func (u *unit) attempt(ctx context.Context) (error, verdict) { //nolint:revive,staticcheck // the verdict is on the error
	run := context.WithValue(ctx, attemptKey{}, u.attempts)
	if u.policy.AttemptTimeout > 0 {
		var cancel context.CancelFunc
		run, cancel = context.WithTimeout(run, u.policy.AttemptTimeout)
		defer cancel()
	}
	err := u.fn(run, u.attempts)
	if err == nil {
		return nil, unmarked
	}
	v := u.worth(err)
	if (v == expired || v == cancelled) && run.Err() != nil && ctx.Err() == nil {
		v = timedOut // the attempt's time is over, not the caller's
	}
	return err, v
}

// worth is the verdict on err with the policy's say in it.
func (u *unit) worth(err error) verdict {
	v := weigh(err)
	if v.class() == Permanent && u.policy.Transient != nil && u.policy.Transient(err) {
		return again
	}
	return v
}

// again decides whether a turn may be followed by another one. That the context
// has ended is seen by package backoff.
func (u *unit) again(v verdict) error {
	switch class := v.class(); {
	case class == SafeToRetry, class == Transient, class == Overloaded,
		class == Offline && u.policy.WaitOffline,
		class == CommitUnknown && u.inDoubt:
		return errAgain
	}
	return errStop
}

// Reset does nothing: a unit runs once.
func (u *unit) Reset() {}

// NextBackOff returns the pause before the next attempt, or backoff.Stop when
// it would be in vain.
func (u *unit) NextBackOff() time.Duration {
	pause := u.policy.Backoff.pause(u.pauses)
	if u.pauses == 0 && !u.policy.Backoff.WaitFirst && (u.verdict == safe || u.verdict == again) {
		pause = 0
	}
	u.pauses++
	if u.ends && !time.Now().Add(pause).Before(u.deadline) {
		u.stop = context.DeadlineExceeded
		return backoff.Stop
	}
	if !u.policy.Budget.take(u.policy.Shard) {
		u.stop = ErrBudgetSpent
		return backoff.Stop
	}
	return pause
}

// stopped returns what Do returns for a unit that did not succeed.
func (u *unit) stopped(ctx context.Context) error {
	if u.inDoubt && u.asking == nil && ctx.Err() == nil && u.ask(ctx) {
		return nil
	}
	class, cause := u.verdict.class(), u.stop
	if ctx.Err() != nil {
		cause = ended(ctx)
	}
	switch {
	case class == CommitUnknown && (u.inDoubt || u.policy.Applied == nil):
		if cause != nil {
			cause = fmt.Errorf("%w: %w", ErrCommitUnknown, cause)
		} else {
			cause = ErrCommitUnknown
		}
	case class == Cancelled && (ctx.Err() == nil || errors.Is(u.err, ctx.Err())):
		return u.err
	case cause != nil:
	case class == Permanent, class == Offline && !u.policy.WaitOffline, u.policy.Backoff.Schedule == Off:
		return u.err
	default:
		cause = ErrAttemptsSpent
	}
	stopped := &StoppedError{Attempts: u.attempts, Cause: cause, Err: u.err}
	if u.asking != nil {
		stopped.Err = fmt.Errorf("%w; asking whether the unit was applied: %w", u.err, u.asking)
	}
	return stopped
}

// tell calls the hook, if there is something new.
func (u *unit) tell(again bool, pause time.Duration) {
	a := u.untold
	u.untold = nil
	if a == nil || u.policy.OnAttempt == nil {
		return
	}
	a.Again, a.Pause = again, pause
	defer func() { _ = recover() }()
	u.policy.OnAttempt(*a)
}

// ended is the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err { //nolint:errorlint // the same value
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

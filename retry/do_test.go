package retry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
)

var (
	errLost     = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errDeadlock = &pgconn.PgError{Code: "40P01"}
)

// script is a unit that fails with the errors in turn and then succeeds.
func script(attempts *[]int, failures ...error) func(context.Context, int) error {
	return func(ctx context.Context, attempt int) error {
		if n := retry.AttemptNumber(ctx); n != attempt {
			attempt = -n
		}
		*attempts = append(*attempts, attempt)
		if len(*attempts) <= len(failures) {
			return failures[len(*attempts)-1]
		}
		return nil
	}
}

// RTRY-07, RTRY-09: what is repeated, and what comes back.
func TestDo(t *testing.T) {
	t.Parallel()
	own := errors.New("insufficient funds")
	twice := func(err error) []error { return []error{err, err} }
	for _, c := range []struct {
		name     string
		policy   retry.Policy
		failures []error
		attempts int
		want     error // to match; nil: success
		same     bool  // and to be the very error
	}{
		{"success", retry.Policy{}, nil, 1, nil, true},
		{"default: third attempt", retry.Policy{}, twice(errTransient), 3, nil, true},
		{"none: one attempt", retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}, twice(errTransient), 1, errTransient, true},
		{"none, however many attempts", retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}, MaxAttempts: -1}, twice(errTransient), 1, errTransient, true},
		{"one attempt", retry.Policy{MaxAttempts: 1}, twice(errTransient), 1, retry.ErrAttemptsSpent, false},
		{"two attempts", retry.Policy{MaxAttempts: 2}, []error{errTransient, errDeadlock}, 2, errDeadlock, false},
		{"own error", retry.Policy{}, twice(own), 1, own, true},
		{"own error, own classifier", retry.Policy{Transient: func(err error) bool { return errors.Is(err, own) }}, twice(own), 3, nil, true},
		{"own classifier has no say in what is transient", retry.Policy{Transient: func(error) bool { return false }}, twice(errTransient), 3, nil, true},
		{"own classifier has no say in doubt", retry.Policy{Transient: func(error) bool { return true }}, twice(errLost), 1, retry.ErrCommitUnknown, false},
		{"own classifier has no say in a cancel", retry.Policy{Transient: func(error) bool { return true }}, twice(context.Canceled), 1, context.Canceled, true},
		{"own error after a transient one", retry.Policy{}, []error{errTransient, own}, 2, own, true},
		{"cancelled inside", retry.Policy{}, twice(context.Canceled), 1, context.Canceled, true},
		{"lost answer of a statement", retry.Policy{}, twice(errLost), 1, retry.ErrCommitUnknown, false},
		{"lost answer of a statement: cause", retry.Policy{}, twice(errLost), 1, errLost, false},
		{"lost in a transaction", retry.Policy{}, twice(retry.Uncommitted(errLost)), 3, nil, true},
		{"lost answer of a commit", retry.Policy{}, twice(retry.Committing(errLost)), 1, retry.ErrCommitUnknown, false},
		{"lost answer of a commit, repeating off", retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}, twice(retry.Committing(errLost)), 1, retry.ErrCommitUnknown, false},
		{"commit refused", retry.Policy{}, twice(retry.Committing(errDeadlock)), 3, nil, true},
		{"idempotent", retry.Policy{Applied: retry.Idempotent}, twice(errLost), 3, nil, true},
		{"offline", retry.Policy{}, twice(shardway.ErrMappingOffline), 1, shardway.ErrMappingOffline, true},
		{"offline, waiting", retry.Policy{WaitOffline: true}, twice(shardway.ErrMappingOffline), 3, nil, true},
		{"offline too long", retry.Policy{WaitOffline: true, MaxAttempts: 2}, twice(shardway.ErrMappingOffline), 2, shardway.ErrMappingOffline, false},
		{"nested", retry.Policy{}, twice(&retry.StoppedError{Attempts: 2, Cause: retry.ErrAttemptsSpent, Err: errTransient}), 1, retry.ErrAttemptsSpent, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var attempts []int
				err := retry.Do(t.Context(), c.policy, script(&attempts, c.failures...))
				if !errors.Is(err, c.want) || c.same && err != c.want { //nolint:errorlint // unchanged, not wrapped
					t.Errorf("Do returned %v, want %v", err, c.want)
				}
				if len(attempts) != c.attempts {
					t.Errorf("%d attempts, want %d", len(attempts), c.attempts)
				}
				for i, n := range attempts {
					if n != i+1 {
						t.Errorf("attempts are numbered %v", attempts)
					}
				}
			})
		})
	}
}

func TestStoppedError(t *testing.T) {
	t.Parallel()
	var attempts []int
	err := retry.Do(t.Context(), retry.Policy{MaxAttempts: 2}, script(&attempts, errTransient, errDeadlock))
	var stopped *retry.StoppedError
	if !errors.As(err, &stopped) || stopped.Attempts != 2 || !errors.Is(stopped.Err, errDeadlock) || errors.Is(err, errTransient) {
		t.Fatalf("Do returned %#v", err)
	}
	if want := "giving up after 2 attempts: no attempts left: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q does not begin with %q", err, want)
	}
	if retry.Classify(err) != retry.Permanent {
		t.Error("an outer Do would repeat it once more")
	}
}

// RTRY-09: the commit's answer is lost, and somebody can be asked.
func TestApplied(t *testing.T) {
	t.Parallel()
	type answer struct {
		applied bool
		err     error
	}
	no, yes := answer{}, answer{applied: true}
	fails := func(err error) answer { return answer{true, err} }
	inDoubt := retry.Committing(errLost)
	off := retry.Backoff{Schedule: retry.Off}
	for _, c := range []struct {
		name     string
		policy   retry.Policy
		failures []error
		answers  []answer
		want     []string // what happened, and when
		err      error
	}{
		{"applied", retry.Policy{}, []error{inDoubt}, []answer{yes}, []string{"0s run", "1s ask"}, nil},
		{"not applied", retry.Policy{}, []error{inDoubt}, []answer{no}, []string{"0s run", "1s ask", "1s run"}, nil},
		{"twice", retry.Policy{}, []error{inDoubt, inDoubt}, []answer{no, yes}, []string{"0s run", "1s ask", "1s run", "2s ask"}, nil},
		{"asking fails, then applied", retry.Policy{}, []error{inDoubt}, []answer{fails(errTransient), yes}, []string{"0s run", "1s ask", "2s ask"}, nil},
		{"asking is lost, then not applied", retry.Policy{}, []error{inDoubt}, []answer{fails(errLost), no}, []string{"0s run", "1s ask", "2s ask", "2s run"}, nil},
		{"asking fails for good", retry.Policy{}, []error{inDoubt}, []answer{fails(errors.New("no rights"))}, []string{"0s run", "1s ask"}, retry.ErrCommitUnknown},
		{"asking fails too often", retry.Policy{MaxAttempts: 3}, []error{inDoubt}, []answer{fails(errTransient), fails(errTransient)}, []string{"0s run", "1s ask", "2s ask"}, retry.ErrCommitUnknown},
		{"no second attempt, applied", retry.Policy{Backoff: off}, []error{inDoubt}, []answer{yes}, []string{"0s run", "0s ask"}, nil},
		{"no second attempt, not applied", retry.Policy{MaxAttempts: 1}, []error{inDoubt}, []answer{no}, []string{"0s run", "0s ask"}, retry.ErrAttemptsSpent},
		{"no second attempt, asking fails", retry.Policy{Backoff: off}, []error{inDoubt}, []answer{fails(errTransient)}, []string{"0s run", "0s ask"}, retry.ErrCommitUnknown},
		{"no doubt, no question", retry.Policy{}, []error{errTransient}, nil, []string{"0s run", "0s run"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var happened []string
				c.policy.Applied = func(context.Context) (bool, error) {
					happened = append(happened, time.Since(begin).String()+" ask")
					a := c.answers[0]
					c.answers = c.answers[1:]
					return a.applied, a.err
				}
				if c.policy.Backoff.Schedule != retry.Off {
					c.policy.Backoff.Schedule = retry.Fixed
				}
				var attempts []int
				run := script(&attempts, c.failures...)
				err := retry.Do(t.Context(), c.policy, func(ctx context.Context, attempt int) error {
					happened = append(happened, time.Since(begin).String()+" run")
					return run(ctx, attempt)
				})
				if !errors.Is(err, c.err) {
					t.Errorf("Do returned %v, want %v", err, c.err)
				}
				if diff := cmp.Diff(c.want, happened); diff != "" {
					t.Errorf("what happened (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// hang waits for the end of an attempt, as a driver that connects does.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("connecting: %w: %w", shardway.ErrUnavailable, ctx.Err())
}

// RTRY-05: every attempt has a time-out of its own, within the whole.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	slow := func(ctx context.Context, attempt int) error {
		if attempt == 1 {
			return hang(ctx)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * ms):
			return nil
		}
	}
	bare := func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name    string
		total   time.Duration
		unit    func(context.Context, int) error
		want    error
		elapsed time.Duration
		runs    int
	}{
		{"second attempt in time", 1000 * ms, slow, nil, 160 * ms, 2}, // 100, a pause of 50, 10
		{"total is shorter", 50 * ms, slow, context.DeadlineExceeded, 50 * ms, 1},
		{"total ends before the pause", 120 * ms, slow, context.DeadlineExceeded, 100 * ms, 1},
		{"total ends the second attempt", 155 * ms, slow, context.DeadlineExceeded, 155 * ms, 2},
		{"outcome unknown", 1000 * ms, bare, retry.ErrCommitUnknown, 100 * ms, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin, runs := time.Now(), 0
				p := retry.Policy{
					AttemptTimeout: 100 * ms, MaxElapsed: c.total,
					Backoff: retry.Backoff{Schedule: retry.Fixed, Initial: 50 * ms},
				}
				err := retry.Do(t.Context(), p, func(ctx context.Context, attempt int) error {
					runs++
					if ctx.Err() != nil {
						t.Errorf("attempt %d starts after its end", attempt)
					}
					return c.unit(ctx, attempt)
				})
				if !errors.Is(err, c.want) || time.Since(begin) != c.elapsed || runs != c.runs {
					t.Errorf("%v after %v and %d attempts, want %v after %v and %d", err, time.Since(begin), runs, c.want, c.elapsed, c.runs)
				}
			})
		})
	}
}

// No pause that the deadline would end; the error tells both.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var attempts []int
		p := retry.Policy{Backoff: retry.Backoff{Schedule: retry.Fixed, Initial: 2 * time.Second}}
		err := retry.Do(ctx, p, script(&attempts, errTransient, errTransient, errTransient, errDeadlock, errTransient))
		if !errors.Is(err, errDeadlock) || !errors.Is(err, context.DeadlineExceeded) || len(attempts) != 4 {
			t.Errorf("%v after %d attempts", err, len(attempts))
		}
		if got := time.Since(begin); got != 4*time.Second {
			t.Errorf("gave up after %v, want 4s", got)
		}
	})
}

// RTRY-04: the caller's cancel is no fault: no second attempt, whatever the
// error looks like.
func TestCancelled(t *testing.T) {
	t.Parallel()
	why := errors.New("the client hung up")
	for _, failure := range []error{
		errTransient, errOverloaded, errDeadlock, errors.New("own"), shardway.ErrMappingOffline,
		retry.Uncommitted(errLost), context.Canceled, fmt.Errorf("x: %w", context.Canceled),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var budget retry.Budget
		runs := 0
		p := retry.Policy{
			WaitOffline: true, Budget: &budget, Transient: func(error) bool { return true },
			Applied: func(context.Context) (bool, error) { t.Error("asked after the end"); return false, nil },
		}
		err := retry.Do(ctx, p, func(context.Context, int) error { runs++; cancel(why); return failure })
		if runs != 1 || !errors.Is(err, failure) || !errors.Is(err, context.Canceled) || errors.Is(err, retry.ErrCommitUnknown) {
			t.Errorf("%v: %v after %d attempts", failure, err, runs)
		}
		if got := retry.Spent(&budget, nil); got != 0 {
			t.Errorf("%v: a cancel costs %d of the budget", failure, got)
		}
	}
}

// A doubt is a doubt after a cancel too.
func TestCancelledInDoubt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := retry.Do(ctx, retry.Policy{Applied: retry.Idempotent}, func(context.Context, int) error {
		cancel()
		return retry.Committing(ctx.Err())
	})
	if !errors.Is(err, retry.ErrCommitUnknown) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCancelledBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the client hung up")
	cancel(why)
	err := retry.Do(ctx, retry.Policy{}, func(context.Context, int) error { t.Error("the unit was run"); return nil })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestCancelledInPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(300*time.Millisecond, cancel)
		var attempts []int
		err := retry.Do(ctx, retry.Policy{}, script(&attempts, errOverloaded, errOverloaded))
		if !errors.Is(err, errOverloaded) || !errors.Is(err, context.Canceled) || len(attempts) != 1 {
			t.Errorf("%v after %d attempts", err, len(attempts))
		}
		if got := time.Since(begin); got != 300*time.Millisecond {
			t.Errorf("ended after %v", got)
		}
	})
}

func TestPanicPasses(t *testing.T) {
	t.Parallel()
	runs := 0
	defer func() {
		if r := recover(); r != "mine" || runs != 1 {
			t.Errorf("recovered %v after %d attempts", r, runs)
		}
	}()
	_ = retry.Do(t.Context(), retry.Policy{}, func(context.Context, int) error { runs++; panic("mine") })
	t.Error("the panic was swallowed")
}

// RTRY-07: an event for each attempt says what happens next.
func TestOnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []retry.Attempt
		p := retry.Policy{
			Backoff:   retry.Backoff{Schedule: retry.Incremental},
			OnAttempt: func(a retry.Attempt) { got = append(got, a) },
		}
		failures := []error{errTransient, errOverloaded, retry.Committing(errDeadlock)}
		err := retry.Do(t.Context(), p, func(_ context.Context, attempt int) error {
			time.Sleep(time.Duration(attempt) * time.Millisecond) // fake time
			if attempt <= len(failures) {
				return failures[attempt-1]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []retry.Attempt{
			{Number: 1, Err: failures[0], Class: retry.Transient, Elapsed: time.Millisecond, Again: true},
			{Number: 2, Err: failures[1], Class: retry.Overloaded, Elapsed: 2 * time.Millisecond, Again: true, Pause: 2 * time.Second},
			{Number: 3, Err: failures[2], Class: retry.Transient, Elapsed: 3 * time.Millisecond, Again: true, Pause: 3 * time.Second},
			{Number: 4, Elapsed: 4 * time.Millisecond},
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}

func TestOnAttemptPanics(t *testing.T) {
	t.Parallel()
	told := 0
	var attempts []int
	err := retry.Do(t.Context(), retry.Policy{OnAttempt: func(retry.Attempt) { told++; panic("hook") }}, script(&attempts, errTransient))
	if err != nil || told != 2 || len(attempts) != 2 {
		t.Errorf("%v, told %d times of %d attempts", err, told, len(attempts))
	}
}

// A hook that takes longer than there is time costs the unit its attempts left,
// and nothing else.
func TestOnAttemptSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts []int
		p := retry.Policy{
			MaxElapsed: time.Minute,
			OnAttempt:  func(retry.Attempt) { time.Sleep(time.Hour) }, // fake time
		}
		err := retry.Do(t.Context(), p, script(&attempts, errOverloaded, errOverloaded))
		if !errors.Is(err, errOverloaded) || !errors.Is(err, context.DeadlineExceeded) || len(attempts) != 1 {
			t.Errorf("%v after %d attempts", err, len(attempts))
		}
	})
}

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
)

var (
	errTransient  = fmt.Errorf("x: %w", shardway.ErrUnavailable)
	errOverloaded = fmt.Errorf("x: %w", shardway.ErrPoolExhausted)
)

// starts runs a unit that always fails and returns when its attempts began.
func starts(t *testing.T, p retry.Policy, failure error) (at []time.Duration) {
	t.Helper()
	begin := time.Now()
	err := retry.Do(t.Context(), p, func(context.Context, int) error {
		at = append(at, time.Since(begin))
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("Do returned %v, want %v", err, failure)
	}
	return at
}

// The formulas and defaults of the model.
func TestPauses(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name    string
		backoff retry.Backoff
		failure error
		want    []time.Duration // when attempts begin
	}{
		{"fixed", retry.Backoff{Schedule: retry.Fixed}, errTransient, []time.Duration{0, 0, s, 2 * s, 3 * s}},
		{"fixed, waiting first", retry.Backoff{Schedule: retry.Fixed, WaitFirst: true}, errTransient, []time.Duration{0, s, 2 * s, 3 * s, 4 * s}},
		{"fixed, overloaded", retry.Backoff{Schedule: retry.Fixed, Initial: 3 * s}, errOverloaded, []time.Duration{0, 3 * s, 6 * s, 9 * s, 12 * s}},
		{"incremental", retry.Backoff{Schedule: retry.Incremental}, errTransient, []time.Duration{0, 0, 2 * s, 5 * s, 9 * s}},
		{"incremental, waiting first", retry.Backoff{Schedule: retry.Incremental, WaitFirst: true}, errTransient, []time.Duration{0, s, 3 * s, 6 * s, 10 * s}},
		{"incremental, bounded", retry.Backoff{Schedule: retry.Incremental, Initial: s, Step: 5 * s, Max: 7 * s, WaitFirst: true}, errTransient, []time.Duration{0, s, 7 * s, 14 * s, 21 * s}},
		{"exponential, at its bound", retry.Backoff{Initial: s, Step: 100 * s, Max: 4 * s, WaitFirst: true}, errTransient, []time.Duration{0, s, 5 * s, 9 * s, 13 * s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := starts(t, retry.Policy{Backoff: c.backoff, MaxAttempts: 5}, c.failure)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("attempts begin at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The zero value: exponential, min 1 s, delta 10 s, max 30 s, 10 retries, the
// first at once.
func TestPausesExponential(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		different := map[time.Duration]bool{}
		for range 50 {
			at := starts(t, retry.Policy{}, errTransient)
			if len(at) != 11 {
				t.Fatalf("%d attempts, want 11", len(at))
			}
			for n := range 10 {
				pause := at[n+1] - at[n]
				low := min(time.Second+time.Duration(float64(int(1)<<n-1)*0.8*float64(10*time.Second)), 30*time.Second)
				high := min(time.Second+time.Duration(float64(int(1)<<n-1)*1.2*float64(10*time.Second)), 30*time.Second)
				if n == 0 {
					low, high = 0, 0
				}
				if pause < low || pause > high {
					t.Errorf("pause %d is %v, want %v to %v", n, pause, low, high)
				}
			}
			different[at[2]] = true
		}
		if len(different) < 40 {
			t.Errorf("50 units have only %d different pauses", len(different))
		}
	})
}

func TestPolicyRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policy   retry.Policy
		argument string
	}{
		{"without end", retry.Policy{MaxAttempts: -1}, "retry.Policy"},
		{"unknown schedule", retry.Policy{Backoff: retry.Backoff{Schedule: 7}}, "retry.Backoff.Schedule"},
		{"negative schedule", retry.Policy{Backoff: retry.Backoff{Schedule: -1}}, "retry.Backoff.Schedule"},
		{"negative pause", retry.Policy{Backoff: retry.Backoff{Initial: -1}}, "retry.Backoff.Initial"},
		{"negative step", retry.Policy{Backoff: retry.Backoff{Step: -1}}, "retry.Backoff.Step"},
		{"negative bound", retry.Policy{Backoff: retry.Backoff{Max: -1}}, "retry.Backoff.Max"},
		{"negative time", retry.Policy{MaxElapsed: -1}, "retry.Policy.MaxElapsed"},
		{"negative attempt", retry.Policy{AttemptTimeout: -1}, "retry.Policy.AttemptTimeout"},
		{"shard that cannot be compared", retry.Policy{Shard: []int{1}}, "retry.Policy.Shard"},
	} {
		err := retry.Do(t.Context(), c.policy, func(context.Context, int) error {
			t.Errorf("%s: the unit was run", c.name)
			return nil
		})
		var bad *shardway.ArgumentError
		if !errors.As(err, &bad) || bad.Argument != c.argument || !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("%s: %v, want an ArgumentError about %s", c.name, err, c.argument)
		}
	}
}

// A policy without a bound of its own is fine where something else ends it.
func TestPolicyEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policy   retry.Policy
		deadline time.Duration
		attempts int
	}{
		{"deadline", retry.Policy{MaxAttempts: -1}, 10500 * time.Millisecond, 12},
		{"MaxElapsed", retry.Policy{MaxAttempts: -1, MaxElapsed: 20500 * time.Millisecond}, 0, 22},
		{"MaxElapsed alone", retry.Policy{MaxElapsed: 20500 * time.Millisecond}, 0, 22},
		{"both bounds, attempts", retry.Policy{MaxAttempts: 3, MaxElapsed: time.Hour}, 0, 3},
		{"attempts of half an hour", retry.Policy{MaxAttempts: 1800}, 0, 1800},
		{"both bounds, time", retry.Policy{MaxAttempts: 300, MaxElapsed: 1500 * time.Millisecond}, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				c.policy.Backoff.Schedule = retry.Fixed
				attempts := 0
				err := retry.Do(ctx, c.policy, func(context.Context, int) error { attempts++; return errTransient })
				if attempts != c.attempts || !errors.Is(err, errTransient) {
					t.Errorf("%d attempts, want %d; %v", attempts, c.attempts, err)
				}
			})
		})
	}
}

// RTRY-06: no herd. 200 clients and a server that is overloaded for a minute.
func TestNoHerd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients = 200
		begin := time.Now()
		rounds := make([][]time.Duration, 11)
		record := make(chan func())
		done := make(chan error)
		for range clients {
			go func() {
				done <- retry.Do(t.Context(), retry.Policy{}, func(_ context.Context, attempt int) error {
					at := time.Since(begin)
					record <- func() { rounds[attempt-1] = append(rounds[attempt-1], at) }
					if at < time.Minute {
						return errOverloaded
					}
					return nil
				})
			}()
		}
		for finished := 0; finished < clients; {
			select {
			case f := <-record:
				f()
			case err := <-done:
				finished++
				if err != nil {
					t.Error(err)
				}
			}
		}
		total := 0
		for n, at := range rounds {
			total += len(at)
			if n < 2 || len(at) < clients {
				continue
			}
			early, late := at[0], at[0]
			for _, d := range at {
				early, late = min(early, d), max(late, d)
			}
			if late-early < 3*time.Second {
				t.Errorf("the attempts %d of all clients come within %v", n+1, late-early)
			}
		}
		// At 0 s, 1 s, about 11 s, about 40 s, about 70 s: five each.
		if total > 5*clients {
			t.Errorf("%d attempts of %d clients", total, clients)
		}
		if len(rounds[1]) != clients || rounds[1][0] < time.Second {
			t.Errorf("an overloaded server is asked again at once: %v", rounds[1][0])
		}
	})
}

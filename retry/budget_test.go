package retry_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/shardway/shardway/retry"
)

// In a full outage 1,000 units add less than 10 % load; without the budget they
// add 1,000 %.
func TestBudgetOutage(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]*retry.Budget{"budget": {}, "no budget": nil, "a large burst": {Burst: 99}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const units = 1000
				var attempts, refused atomic.Int64
				var all sync.WaitGroup
				for range units {
					all.Go(func() {
						err := retry.Do(t.Context(), retry.Policy{Budget: budget, Shard: "s1"}, func(context.Context, int) error {
							attempts.Add(1)
							return errTransient
						})
						if !errors.Is(err, errTransient) {
							t.Error(err)
						}
						if errors.Is(err, retry.ErrBudgetSpent) {
							refused.Add(1)
						}
					})
				}
				all.Wait()
				want := int64(units + 10)
				switch {
				case budget == nil:
					want = 11 * units
				case budget.Burst > 0:
					want = int64(units + budget.Burst)
				}
				if got := attempts.Load(); got != want {
					t.Errorf("%d attempts of %d units, want %d", got, units, want)
				}
				if budget != nil && (attempts.Load() >= units*110/100 || refused.Load() == 0) {
					t.Errorf("%d attempts of %d units, %d refused", attempts.Load(), units, refused.Load())
				}
			})
		})
	}
}

// While every other unit needs a second attempt, one for ten successes gets it.
func TestBudgetRatio(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	run := func(failures ...error) error {
		var attempts []int
		return retry.Do(t.Context(), retry.Policy{Budget: &budget, MaxAttempts: 2}, script(&attempts, failures...))
	}
	again := 0
	for range 1000 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
		if err := run(errTransient); err == nil {
			again++
		}
	}
	// 10 at first, then a tenth of the successes: of 1,000 units that succeed at
	// once and of those that got their second attempt.
	if again < 110 || again > 10+(1000+again)/10 {
		t.Errorf("%d of 2,000 units had a second attempt", again)
	}
}

// One shard's outage is not another's.
func TestBudgetPerShard(t *testing.T) {
	t.Parallel()
	type shard struct{ shardMap, name string }
	var budget retry.Budget
	fail := func(s shard) (attempts int) {
		_ = retry.Do(t.Context(), retry.Policy{Budget: &budget, Shard: s, MaxAttempts: 2}, func(context.Context, int) error {
			attempts++
			return errTransient
		})
		return attempts
	}
	for range 100 {
		fail(shard{"customers", "s1"})
	}
	if got := fail(shard{"customers", "s1"}); got != 1 {
		t.Errorf("%d attempts on the shard that is down", got)
	}
	if got := fail(shard{"customers", "s2"}); got != 2 {
		t.Errorf("%d attempts on another shard", got)
	}
	for i := range 10 {
		if got := fail(shard{"customers", "s1"}); got != 1 {
			t.Errorf("%d attempts after %d successes", got, i)
		}
		if err := retry.Do(t.Context(), retry.Policy{Budget: &budget, Shard: shard{"customers", "s1"}}, func(context.Context, int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := fail(shard{"customers", "s1"}); got != 2 {
		t.Errorf("%d attempts after 10 successes", got)
	}
}

// A shard that is well again leaves nothing behind.
func TestBudgetForgets(t *testing.T) {
	t.Parallel()
	var budget retry.Budget
	p := retry.Policy{Budget: &budget, Shard: 7}
	var attempts []int
	if err := retry.Do(t.Context(), p, script(&attempts, errTransient)); err != nil {
		t.Fatal(err)
	}
	if got := retry.Spent(&budget, 7); got != 9 { // ten for the attempt, one back for success
		t.Errorf("%d tenths are spent, want 9", got)
	}
	for range 20 {
		if err := retry.Do(t.Context(), p, func(context.Context, int) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := retry.Shards(&budget); got != 0 {
		t.Errorf("%d shards are remembered", got)
	}
}

// Attempts and successes of many goroutines are all counted.
func TestBudgetConcurrent(t *testing.T) {
	t.Parallel()
	budget := retry.Budget{Burst: 1000}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				var attempts []int
				if err := retry.Do(t.Context(), retry.Policy{Budget: &budget, Shard: i % 2}, script(&attempts, errTransient)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for shard := range 2 {
		if got := retry.Spent(&budget, shard); got != 400*9 {
			t.Errorf("shard %d: %d tenths are spent, want %d", shard, got, 400*9)
		}
	}
}

package retry_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
)

// conn is what adapters give out for a key.
type conn interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Close() error
}

type adapter interface {
	OpenConnectionForKey(ctx context.Context, key int64) (conn, error)
}

// A transaction by hand: what failed before the commit was not kept, what
// failed in it may have been.
func Example() {
	visit := func(ctx context.Context, db adapter, policy retry.Policy, customerID int64) error {
		return retry.Do(ctx, policy, func(ctx context.Context, attempt int) error {
			conn, err := db.OpenConnectionForKey(ctx, customerID)
			if err != nil {
				return err
			}
			defer conn.Close()
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return retry.Uncommitted(err)
			}
			defer tx.Rollback()
			if _, err = tx.ExecContext(ctx, `UPDATE customer SET visits = visits + 1 WHERE id = $1`, customerID); err != nil {
				return retry.Uncommitted(err)
			}
			return retry.Committing(tx.Commit())
		})
	}
	_ = visit
}

// One policy for a program, completed for each call.
func ExamplePolicy() {
	var budget retry.Budget
	policy := retry.Policy{
		Backoff:        retry.Backoff{Schedule: retry.Exponential, Initial: 100 * time.Millisecond, Step: time.Second, Max: 10 * time.Second},
		MaxElapsed:     time.Minute,
		AttemptTimeout: 5 * time.Second,
		Budget:         &budget,
	}
	forReads := func(route shardway.Route) retry.Policy {
		p := policy
		p.Shard = route.Shard.ID
		p.Applied = retry.Idempotent // reading twice does no harm
		return p
	}
	_ = forReads
}

package replicaset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardway/shardway"
)

// The errors between finding a pool and using a session of it.
var (
	// ErrClosed is of places that were closed. It matches [shardway.ErrUnavailable].
	ErrClosed = fmt.Errorf("adapter is closed: %w", shardway.ErrUnavailable)
	// ErrRetired is a pool, or a set, that was closed because its shard is elsewhere now.
	ErrRetired = errors.New("pool is closed")
	// ErrNotPrimary is a server that has stopped being primary between the choice
	// and the session.
	ErrNotPrimary = errors.New("server is not primary any more")
)

// Over reports whether ctx has ended. Drivers notice that its deadline has
// passed a moment before ctx itself does.
func Over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// Ended is the error of something that the end of ctx broke off. Time that ran
// out means that the server did not answer in time; a caller who gave up does
// not say anything about it.
func Ended(ctx context.Context, doing string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w: %w", doing, context.Cause(ctx), err)
	}
	return fmt.Errorf("%s: %w: %w: %w", doing, shardway.ErrUnavailable, cmp.Or(context.Cause(ctx), context.DeadlineExceeded), err)
}

// Connecting gives an error of taking or opening a session its meaning.
func Connecting(ctx context.Context, err error) error {
	const doing = "connecting"
	switch {
	case errors.Is(err, shardway.ErrPoolExhausted):
		return err
	case Over(ctx):
		return Ended(ctx, doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
}

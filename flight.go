package shardway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// flights lets those who want the same answer at the same time share one
// question. A flight ends when its work is done, its time is up, or nobody
// waits for it any more; never because the one who began it gave up. The
// answer of a flight that is kept is wanted even if nobody waits.
type flights[K comparable, V any] struct {
	timeout time.Duration // of one flight; 0 is none

	mu     sync.Mutex // guards the fields below
	calls  map[K]*flight[V]
	closed bool
	wg     sync.WaitGroup
}

type flight[V any] struct {
	done    chan struct{} // closed when value and err are set
	value   V
	err     error
	cancel  context.CancelCauseFunc
	waiters int // guarded by flights.mu
}

// do returns what work returns, and whether another caller began it. The
// context of work has the values of the first caller's, but not its end.
func (g *flights[K, V]) do(ctx context.Context, key K, keep bool, work func(context.Context) (V, error)) (v V, joined bool, err error) {
	f, joined, err := g.join(ctx, key, keep, work)
	if err != nil {
		return v, false, err
	}
	select {
	case <-f.done:
		g.leave(key, f)
		return f.value, joined, f.err
	case <-ctx.Done():
		g.leave(key, f)
		return v, joined, waitError(ctx)
	}
}

func (g *flights[K, V]) join(ctx context.Context, key K, keep bool, work func(context.Context) (V, error)) (*flight[V], bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, false, errClosed
	}
	if ctx.Err() != nil && !keep {
		return nil, false, waitError(ctx)
	}
	if f := g.calls[key]; f != nil {
		f.waiters++
		return f, true, nil
	}
	fctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight[V]{done: make(chan struct{}), cancel: cancel, waiters: 1}
	if keep {
		f.waiters++
	}
	if g.calls == nil {
		g.calls = map[K]*flight[V]{}
	}
	g.calls[key] = f
	g.wg.Go(func() {
		f.value, f.err = g.run(fctx, work)
		cancel(nil)
		g.mu.Lock()
		if g.calls[key] == f {
			delete(g.calls, key)
		}
		g.mu.Unlock()
		close(f.done)
	})
	return f, false, nil
}

func (g *flights[K, V]) run(ctx context.Context, work func(context.Context) (V, error)) (V, error) {
	if g.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.timeout)
		defer cancel()
	}
	v, err := work(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnavailable) {
		err = waitError(ctx)
	}
	return v, err
}

// leave ends a flight that nobody waits for.
func (g *flights[K, V]) leave(key K, f *flight[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel(context.Canceled)
	if g.calls[key] == f {
		delete(g.calls, key) // the next caller does not want a cancelled answer
	}
}

// close cancels all flights, refuses new ones and waits for their end.
func (g *flights[K, V]) close() {
	g.mu.Lock()
	g.closed = true
	for _, f := range g.calls {
		f.cancel(errClosed)
	}
	g.mu.Unlock()
	g.wg.Wait()
}

var errClosed = fmt.Errorf("router is closed: %w", ErrUnavailable)

// waitError is the error of waiting for a store until the end of ctx. Time
// that ran out means that the store cannot be reached; a caller who gave up
// does not.
func waitError(ctx context.Context) error {
	err := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("waiting for the store: %w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("waiting for the store: %w", err)
}

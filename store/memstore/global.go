// Package memstore keeps a global store and local stores in memory. It is the
// reference: each sentence of package store's contracts is written down here
// in the plainest way, and the other stores are compared with it. Tests of the
// packages above use it as their store. Nothing is ever written to disk.
//
// What the contracts leave open is decided as follows. A Publish, Abort or
// Lease of an operation that is not pending is [store.ErrLostLease], and so is
// one with an older epoch than the operation has. A Lock of a mapping that is
// not there is [shardway.ErrStale]. An id, or the name of a shard map, that is
// taken is [shardway.ErrExists]. Before Deploy every method returns
// [shardway.ErrNoStore].
package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Global is a global store in memory. It is safe for concurrent use. The zero
// value is usable and, like that of [NewGlobal], not deployed.
type Global struct {
	// Now is the store's clock, read once in every Update and cut to
	// microseconds. Nil is time.Now. Set it before the first use.
	Now func() time.Time

	updates sync.Mutex            // serialises Update and Deploy
	current atomic.Pointer[state] // nil: not deployed; a state never changes once it is here
}

var (
	_ store.Global   = (*Global)(nil)
	_ store.Deployer = (*Global)(nil)
)

// NewGlobal returns a global store that is not deployed.
func NewGlobal() *Global { return &Global{} }

// Deploy creates the store, see [store.Deployer].
func (g *Global) Deploy(ctx context.Context, replace bool) (store.Description, error) {
	if err := ctx.Err(); err != nil {
		return store.Description{}, fmt.Errorf("deploying the global store: %w", err)
	}
	g.updates.Lock()
	defer g.updates.Unlock()
	if g.current.Load() != nil && !replace {
		return store.Description{}, fmt.Errorf("deploying the global store: %w", shardway.ErrExists)
	}
	s := newState(fmt.Sprintf("%016x", store.NewID()))
	g.current.Store(s)
	return s.describe(), nil
}

// Describe returns id and version, or ErrNoStore.
func (g *Global) Describe(ctx context.Context) (store.Description, error) {
	s, err := g.read(ctx)
	if err != nil {
		return store.Description{}, fmt.Errorf("describing the global store: %w", err)
	}
	return s.describe(), nil
}

// View calls fn with the state of this moment; later updates do not show in it.
func (g *Global) View(ctx context.Context, fn func(tx store.Reader) error) error {
	s, err := g.read(ctx)
	if err != nil {
		return fmt.Errorf("viewing the global store: %w", err)
	}
	return fn(reader{s})
}

// Update calls fn and applies its Delta, see [store.Global]. Updates of all
// maps run one after the other; fn must not call Update or Deploy.
func (g *Global) Update(ctx context.Context, m shardway.MapID, fn func(tx store.Reader, now time.Time) (store.Delta, error)) error {
	g.updates.Lock()
	defer g.updates.Unlock()
	s, err := g.read(ctx)
	if err != nil {
		return fmt.Errorf("updating the global store: %w", err)
	}
	if _, ok := s.maps[m]; m != 0 && !ok {
		return fmt.Errorf("updating shard map %d: %w", m, shardway.ErrMapNotFound)
	}
	d, err := fn(reader{s}, g.now())
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("updating the global store: %w", err)
	}
	next := s.clone()
	if err := next.apply(&d); err != nil {
		return fmt.Errorf("updating the global store: %w", err)
	}
	g.current.Store(next)
	return nil
}

// Close does nothing: the store stays usable, so that several users can share it.
func (g *Global) Close() error { return nil }

func (g *Global) now() time.Time {
	now := time.Now
	if g.Now != nil {
		now = g.Now
	}
	return now().UTC().Truncate(time.Microsecond)
}

func (g *Global) read(ctx context.Context) (*state, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := g.current.Load()
	if s == nil {
		return nil, shardway.ErrNoStore
	}
	return s, nil
}

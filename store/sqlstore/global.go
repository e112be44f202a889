package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Global is the global store in a SQL database. It implements [store.Global],
// [store.Deployer] and [shardway.Source]. It is safe for concurrent use.
type Global struct {
	b       *database
	checked atomic.Bool // the store's version is one we know
}

var (
	_ store.Global    = (*Global)(nil)
	_ store.Deployer  = (*Global)(nil)
	_ shardway.Source = (*Global)(nil)
)

// Names of the locks of engines that need them.
const (
	globalRoot = "shardway global store"
	localRoot  = "shardway local store"
)

func mapLeaf(m shardway.MapID) string { return globalRoot + " map " + strconv.FormatInt(int64(m), 10) }

// Close closes the pool.
func (g *Global) Close() error { return g.b.close() }

// Describe returns id and version of the store.
func (g *Global) Describe(ctx context.Context) (store.Description, error) {
	var d store.Description
	err := g.b.glance(ctx, func(t *transaction) error {
		var err error
		d, err = describe(ctx, t, "global", "store")
		return err
	})
	if err != nil {
		return store.Description{}, fmt.Errorf("describing global store: %w", err)
	}
	g.checked.Store(true)
	return d, nil
}

// describe reads the one row that makes tables a store, and checks its version.
// Its columns are those that a store of every version has.
func describe(ctx context.Context, t *transaction, kind, table string) (store.Description, error) {
	var d store.Description
	forgotten := `forgotten_seq`
	if kind == string(dialect.Global) {
		forgotten = `0`
	}
	found, err := t.one(ctx, `SELECT store_id, major, minor, `+forgotten+` FROM {`+table+`} WHERE one_row = 1`, nil,
		&d.ID, &d.Version.Major, &d.Version.Minor, &d.Forgotten)
	if err != nil {
		return store.Description{}, err
	}
	if !found {
		return store.Description{}, shardway.ErrNoStore
	}
	return d, d.Version.CheckRead(kind)
}

// ready checks the store's version once.
func (g *Global) ready(ctx context.Context) error {
	if g.checked.Load() {
		return nil
	}
	_, err := g.Describe(ctx)
	return err
}

// View calls fn with one consistent, read-only state.
func (g *Global) View(ctx context.Context, fn func(tx store.Reader) error) error {
	if err := g.ready(ctx); err != nil {
		return err
	}
	return g.b.read(ctx, func(t *transaction) error {
		if err := t.lock(ctx, globalRoot, dialect.Shared, globalRoot+" view", dialect.Shared); err != nil {
			return err
		}
		return fn(&reader{t: t})
	})
}

// Update runs a change. A cancelled context ends it before the commit, never
// during it: then it waits up to 15 s for the acknowledgement.
func (g *Global) Update(ctx context.Context, m shardway.MapID, fn func(tx store.Reader, now time.Time) (store.Delta, error)) error {
	if err := g.ready(ctx); err != nil {
		return err
	}
	return g.b.write(ctx, func(t *transaction) error {
		now, err := lockGlobal(ctx, t, m)
		if err != nil {
			return err
		}
		delta, err := fn(&reader{t: t}, now)
		if err != nil {
			return err
		}
		return (&writer{t: t}).write(ctx, delta)
	})
}

// lockGlobal waits until no other Update works on the map (0: on the set of
// maps), checks the store's version and returns the store's clock.
func lockGlobal(ctx context.Context, t *transaction, m shardway.MapID) (time.Time, error) {
	if err := t.lock(ctx, globalRoot, dialect.Intent, mapLeaf(m), dialect.Exclusive); err != nil {
		return time.Time{}, err
	}
	var locked int64
	text, args := `SELECT one_row FROM {store} WHERE one_row = 1 {update}`, []any(nil)
	if m != 0 {
		text, args = `SELECT map_id FROM {shard_maps} WHERE map_id = ? {update}`, []any{int64(m)}
	}
	found, err := t.one(ctx, text, args, &locked)
	if err != nil {
		return time.Time{}, fmt.Errorf("locking shard map: %w", err)
	}
	if !found && m != 0 {
		return time.Time{}, fmt.Errorf("locking shard map %d: %w", m, shardway.ErrMapNotFound)
	}
	var now int64
	var major, minor int
	found, err = t.one(ctx, `SELECT {now}, major, minor FROM {store} WHERE one_row = 1`, nil, &now, &major, &minor)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the clock of the global store: %w", err)
	}
	if !found {
		return time.Time{}, fmt.Errorf("reading the clock of the global store: %w", shardway.ErrNoStore)
	}
	return instant(now), checkVersion("global", major, minor)
}

// instant reads a stored instant: microseconds since 1970 in UTC, 0 for none.
func instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// micros is the inverse of instant.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

package pgxshard

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shardway/shardway"
)

// places finds the pool for a shard. Looking up one that is known takes no lock.
type places struct {
	cfg    *Config
	placed atomic.Pointer[map[shardway.ShardID]placed] // never nil, never changed

	watching sync.WaitGroup // the goroutines of replica sets

	mu     sync.Mutex // guards the fields below and serialises changes of placed
	pools  map[poolKey]*pool
	hosts  map[string]*host // by address
	closed bool
}

// placed is where a shard was last seen.
type placed struct {
	shard      *shardway.Shard
	generation int64       // of the route it came with
	pool       *pool       // of the one server; nil where none was needed yet
	set        *replicaSet // nil as long as there was nothing to choose
}

// poolKey is what makes two databases two. Credentials are the same for all
// pools of a DB.
type poolKey struct{ address, database string }

func newPlaces(cfg *Config) *places {
	pl := &places{cfg: cfg, pools: map[poolKey]*pool{}, hosts: map[string]*host{}}
	pl.placed.Store(&map[shardway.ShardID]placed{})
	return pl
}

// of returns the pool of the one server for a route. Shards with several
// servers have theirs in a replica set, see watched.
func (pl *places) of(r *shardway.Route) (p *pool, err error) {
	if k := (*pl.placed.Load())[r.Shard.ID]; k.pool != nil && k.serves(r) {
		return k.pool, nil
	}
	err = pl.change(r, func(k *placed) error {
		if k.pool == nil {
			if k.pool, err = pl.open(keyOf(k.shard.Location, 0)); err != nil {
				return err
			}
		}
		p = k.pool
		return nil
	})
	return p, err
}

// serves reports whether what is placed is good for a route: it is of the same
// state of the shard, or of a newer one than a route that was looked up before.
func (k placed) serves(r *shardway.Route) bool {
	return k.shard == r.Shard || k.shard.Version == r.Shard.Version || k.generation > r.Generation
}

// watched returns the replica set for a route.
func (pl *places) watched(r *shardway.Route) (rs *replicaSet, err error) {
	if k := (*pl.placed.Load())[r.Shard.ID]; k.set != nil && k.serves(r) {
		return k.set, nil
	}
	err = pl.change(r, func(k *placed) error {
		if k.set == nil {
			if k.set, err = pl.watch(k.shard); err != nil {
				return err
			}
		}
		rs = k.set
		return nil
	})
	return rs, err
}

// change changes what is placed for the shard of a route, and closes what no
// shard needs any more.
func (pl *places) change(r *shardway.Route, f func(k *placed) error) error {
	if engine := r.Shard.Location.Engine; engine != engineName {
		return &shardway.ArgumentError{Argument: "Engine", Value: engine, Reason: "is that of the shard's database: this package is for " + engineName}
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed {
		return errClosed
	}
	old := *pl.placed.Load()
	k, ok := old[r.Shard.ID]
	before := k.set
	if !ok || !k.serves(r) {
		k = placed{shard: r.Shard, generation: r.Generation}
		if before != nil && sameLocation(before.location, r.Shard.Location) {
			k.set = before
		}
	}
	if err := f(&k); err != nil {
		return err
	}
	pl.store(r.Shard.ID, k)
	if before != nil && before != k.set {
		before.stop()
	}
	pl.retireUnused()
	return nil
}

// store publishes what is placed for a shard. pl.mu is held.
func (pl *places) store(id shardway.ShardID, k placed) {
	next := maps.Clone(*pl.placed.Load())
	next[id] = k
	pl.placed.Store(&next)
}

func sameLocation(a, b shardway.Location) bool {
	return a.Engine == b.Engine && a.Database == b.Database && slices.EqualFunc(a.Servers, b.Servers, func(a, b shardway.Server) bool {
		return a.Address == b.Address && maps.Equal(a.Tags, b.Tags)
	})
}

// dismiss ends a replica set unless it was used again. It reports whether the
// set has ended.
func (pl *places) dismiss(rs *replicaSet) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if rs.used.Load() && !rs.ended.Load() {
		return false
	}
	for id, k := range *pl.placed.Load() {
		if k.set == rs {
			k.set = nil
			pl.store(id, k)
		}
	}
	rs.stop()
	return true
}

func keyOf(l shardway.Location, server int) poolKey {
	return poolKey{l.Servers[server].Address, l.Database}
}

// open returns the pool of a key. pl.mu is held.
func (pl *places) open(key poolKey) (*pool, error) {
	if p := pl.pools[key]; p != nil {
		return p, nil
	}
	h := pl.hosts[key.address]
	if h == nil {
		h = newHost(pl.cfg.MaxOpenPerServer)
		pl.hosts[key.address] = h
	}
	p, err := newPool(pl.cfg, h, key.address, key.database)
	if err != nil {
		return nil, fmt.Errorf("opening a pool: %w", err)
	}
	pl.pools[key] = p
	return p, nil
}

// retireUnused closes the pools of databases where no shard is any more. pl.mu
// is held.
func (pl *places) retireUnused() {
	used := map[poolKey]bool{}
	for _, k := range *pl.placed.Load() {
		for i := range k.shard.Location.Servers {
			used[keyOf(k.shard.Location, i)] = true
		}
	}
	for key, p := range pl.pools {
		if !used[key] {
			delete(pl.pools, key)
			p.retire()
			pl.cfg.Logger.Info("closing the pool of a database that no shard uses any more", "server", key.address, "database", key.database)
		}
	}
}

// close retires all pools and ends all replica sets, for which it waits.
func (pl *places) close() {
	pl.mu.Lock()
	pl.closed = true
	for _, k := range *pl.placed.Load() {
		if k.set != nil {
			k.set.stop()
		}
	}
	pl.placed.Store(&map[shardway.ShardID]placed{})
	for _, p := range pl.pools {
		p.retire()
	}
	clear(pl.pools)
	pl.mu.Unlock()
	pl.watching.Wait()
}

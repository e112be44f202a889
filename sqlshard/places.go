package sqlshard

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
	cfg     *Config
	engines map[string]engine
	placed  atomic.Pointer[map[shardway.ShardID]placed] // never nil, never changed

	watching sync.WaitGroup // the goroutines of replica sets

	mu     sync.Mutex // guards the fields below and serialises changes of placed
	pools  map[poolKey]*pool
	hosts  map[poolKey]*host // their key has no database
	closed bool
}

// placed is where a shard was last seen.
type placed struct {
	shard      *shardway.Shard
	generation int64       // of the route it came with
	pools      []*pool     // by index of the server; nil where none was needed yet
	set        *replicaSet // nil as long as there was nothing to choose
}

// poolKey is what makes two databases two: everything that leads to another
// one. Credentials are the same for all pools of a DB.
type poolKey struct{ engine, address, database string }

func newPlaces(cfg *Config, engines map[string]engine) *places {
	pl := &places{cfg: cfg, engines: engines, pools: map[poolKey]*pool{}, hosts: map[poolKey]*host{}}
	pl.placed.Store(&map[shardway.ShardID]placed{})
	return pl
}

// of returns the pool of a server for a route. Shards with several servers
// have theirs in a replica set, see watched.
func (pl *places) of(r *shardway.Route, server int) (*pool, error) {
	if p := (*pl.placed.Load())[r.Shard.ID].pool(r, server); p != nil {
		return p, nil
	}
	return pl.place(r, server)
}

// pool returns the pool of a server for a route, or nil when there is none.
func (k placed) pool(r *shardway.Route, server int) *pool {
	if server >= len(k.pools) || !k.serves(r) {
		return nil
	}
	return k.pools[server]
}

// serves reports whether what is placed is good for a route: it is of the same
// state of the shard, or of a newer one than a route that was looked up before.
func (k placed) serves(r *shardway.Route) bool {
	return k.shard == r.Shard || k.shard.Version == r.Shard.Version || k.generation > r.Generation
}

// place opens a pool for a server of a shard.
func (pl *places) place(r *shardway.Route, server int) (p *pool, err error) {
	err = pl.change(r, func(k *placed) error {
		if p = k.pool(r, server); p != nil {
			return nil
		}
		if server >= len(k.pools) {
			return &shardway.ArgumentError{Argument: "location", Value: k.shard.Location.String(), Reason: "has too few servers"}
		}
		if p, err = pl.open(keyOf(k.shard.Location, server)); err != nil {
			return err
		}
		k.pools = slices.Clone(k.pools)
		k.pools[server] = p
		return nil
	})
	return p, err
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
	var unused []*pool
	defer func() { retire(unused) }() // after unlocking: it may talk to servers
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed {
		return errClosed
	}
	old := *pl.placed.Load()
	k, ok := old[r.Shard.ID]
	before := k.set
	if !ok || !k.serves(r) {
		k = placed{shard: r.Shard, generation: r.Generation, pools: make([]*pool, len(r.Shard.Location.Servers))}
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
	unused = pl.unused(*pl.placed.Load())
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
	return poolKey{l.Engine, l.Servers[server].Address, l.Database}
}

func (pl *places) engine(name string) (engine, error) {
	e, ok := pl.engines[name]
	if !ok && name == "mongodb" {
		return engine{}, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is not for SQL: the map has a shard on MongoDB, which mongoshard.For connects to"}
	}
	if !ok {
		return engine{}, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is missing: a shard's database is of that engine"}
	}
	return e, nil
}

// open returns the pool of a key. pl.mu is held.
func (pl *places) open(key poolKey) (*pool, error) {
	if p := pl.pools[key]; p != nil {
		return p, nil
	}
	e, err := pl.engine(key.engine)
	if err != nil {
		return nil, err
	}
	server := poolKey{engine: key.engine, address: key.address}
	h := pl.hosts[server]
	if h == nil {
		h = &host{limit: pl.cfg.MaxOpenPerServer}
		pl.hosts[server] = h
	}
	p, err := newPool(pl.cfg, e, h, key.address, key.database)
	if err != nil {
		return nil, fmt.Errorf("opening a pool: %w", err)
	}
	pl.pools[key] = p
	return p, nil
}

// unused takes out the pools of databases where no shard is any more.
func (pl *places) unused(all map[shardway.ShardID]placed) (pools []*pool) {
	used := map[poolKey]bool{}
	for _, k := range all {
		for i := range k.shard.Location.Servers {
			used[keyOf(k.shard.Location, i)] = true
		}
	}
	for key, p := range pl.pools {
		if !used[key] {
			delete(pl.pools, key)
			pools = append(pools, p)
			pl.cfg.Logger.Info("closing the pool of a database that no shard uses any more", "engine", key.engine, "server", key.address, "database", key.database)
		}
	}
	return pools
}

func retire(pools []*pool) {
	for _, p := range pools {
		p.retire()
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
	pools := slices.Collect(maps.Values(pl.pools))
	clear(pl.pools)
	pl.mu.Unlock()
	retire(pools)
	pl.watching.Wait()
}

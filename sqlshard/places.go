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

	mu     sync.Mutex // guards the fields below and serialises changes of placed
	pools  map[poolKey]*pool
	hosts  map[poolKey]*host // their key has no database
	closed bool
}

// placed is where a shard was last seen.
type placed struct {
	shard      *shardway.Shard
	generation int64   // of the route it came with
	pools      []*pool // by index of the server; nil where none was needed yet
}

// poolKey is what makes two databases two: everything that leads to another
// one. Credentials are the same for all pools of a DB.
type poolKey struct{ engine, address, database string }

func newPlaces(cfg *Config, engines map[string]engine) *places {
	pl := &places{cfg: cfg, engines: engines, pools: map[poolKey]*pool{}, hosts: map[poolKey]*host{}}
	pl.placed.Store(&map[shardway.ShardID]placed{})
	return pl
}

// choose returns which of a shard's servers to use.
func choose(*shardway.Shard) (server int) { return 0 }

// of returns the pool for a route.
func (pl *places) of(r *shardway.Route) (*pool, error) {
	server := choose(r.Shard)
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

// place opens a pool for a server of a shard and closes those that no shard
// needs any more.
func (pl *places) place(r *shardway.Route, server int) (*pool, error) {
	var unused []*pool
	defer func() { retire(unused) }() // after unlocking: it may talk to servers
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed {
		return nil, errClosed
	}
	old := *pl.placed.Load()
	k, ok := old[r.Shard.ID]
	if p := k.pool(r, server); p != nil {
		return p, nil
	}
	if !ok || !k.serves(r) {
		k = placed{shard: r.Shard, generation: r.Generation, pools: make([]*pool, len(r.Shard.Location.Servers))}
	}
	if server >= len(k.pools) {
		return nil, &shardway.ArgumentError{Argument: "location", Value: k.shard.Location.String(), Reason: "has too few servers"}
	}
	p, err := pl.open(keyOf(k.shard.Location, server))
	if err != nil {
		return nil, err
	}
	k.pools = slices.Clone(k.pools)
	k.pools[server] = p
	next := maps.Clone(old)
	next[r.Shard.ID] = k
	pl.placed.Store(&next)
	unused = pl.unused(next)
	return p, nil
}

func keyOf(l shardway.Location, server int) poolKey {
	return poolKey{l.Engine, l.Servers[server].Address, l.Database}
}

// open returns the pool of a key. pl.mu is held.
func (pl *places) open(key poolKey) (*pool, error) {
	if p := pl.pools[key]; p != nil {
		return p, nil
	}
	e, ok := pl.engines[key.engine]
	if !ok {
		return nil, &shardway.ArgumentError{Argument: "Engines", Value: key.engine, Reason: "is missing: a shard's database is of that engine"}
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

// close retires all pools.
func (pl *places) close() {
	pl.mu.Lock()
	pl.closed = true
	pl.placed.Store(&map[shardway.ShardID]placed{})
	pools := slices.Collect(maps.Values(pl.pools))
	clear(pl.pools)
	pl.mu.Unlock()
	retire(pools)
}

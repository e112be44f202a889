package replicaset

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
)

// Place is what makes two databases two: everything that leads to another one.
// Credentials are the same for all pools of an adapter.
type Place struct{ Engine, Address, Database string }

func placeOf(l shardway.Location, server int) Place {
	return Place{l.Engine, l.Servers[server].Address, l.Database}
}

// PlacesConfig says what pools of sessions are to an adapter. All functions but
// Demoted are required.
type PlacesConfig[P any] struct {
	// Open opens a pool and Prober a prober of the servers of a location. Neither
	// does I/O; they are called one at a time.
	Open   func(Place) (*P, error)
	Prober func(shardway.Location) (topology.Prober, error)
	// Suspect has the sessions opened so far closed, at the latest when they are
	// about to be used or given back. Demoted, which may be nil, closes those
	// that are idle, after Suspect and at leisure.
	Suspect, Demoted func(*P)
	// Retire closes a pool, and waits for no session in use.
	Retire func(*P)
	// Answered reports whether an error on a server of an engine shows that the
	// server answers, so that it may speak for itself.
	Answered func(engine string, err error) bool

	Heartbeat, LocalThreshold, SelectionTimeout time.Duration // see Config
	IdleTime                                    time.Duration // that servers are watched for nobody; 0 or less is for ever
	Logger                                      *slog.Logger
}

// Places knows where the shards of one map are: the pool of a shard's one
// server, or the watched set of several. Pools are opened when they are first
// needed, and retired when no shard uses their database any more. It is safe for
// concurrent use; looking up what is known takes no lock.
type Places[P any] struct {
	cfg    PlacesConfig[P]
	placed atomic.Pointer[map[shardway.ShardID]placed[P]] // never nil, never changed

	watching sync.WaitGroup // the goroutines of sets

	mu     sync.Mutex // guards the fields below and serialises changes of placed
	pools  map[Place]*opened[P]
	closed bool
}

// placed is where a shard was last seen.
type placed[P any] struct {
	shard      *shardway.Shard
	generation int64   // of the route it came with
	pool       *P      // of the one server; nil where none was needed yet
	set        *Set[P] // nil as long as there was nothing to choose
}

// opened is a pool and what it was told of its server.
type opened[P any] struct {
	pool   *P
	heeded atomic.Pointer[heeded[P]]
}

// NewPlaces returns places without any shard.
func NewPlaces[P any](cfg PlacesConfig[P]) *Places[P] {
	pl := &Places[P]{cfg: cfg, pools: map[Place]*opened[P]{}}
	pl.placed.Store(&map[shardway.ShardID]placed[P]{})
	return pl
}

// Pool returns the pool of the one server of a route's shard.
func (pl *Places[P]) Pool(r *shardway.Route) (p *P, err error) {
	if k := (*pl.placed.Load())[r.Shard.ID]; k.pool != nil && k.serves(r) {
		return k.pool, nil
	}
	err = pl.change(r, func(k *placed[P]) error {
		if k.pool == nil {
			o, err := pl.open(placeOf(k.shard.Location, 0))
			if err != nil {
				return err
			}
			k.pool = o.pool
		}
		p = k.pool
		return nil
	})
	return p, err
}

// Set returns the watched servers of a route's shard.
func (pl *Places[P]) Set(r *shardway.Route) (s *Set[P], err error) {
	if k := (*pl.placed.Load())[r.Shard.ID]; k.set != nil && k.serves(r) {
		return k.set, nil
	}
	err = pl.change(r, func(k *placed[P]) error {
		if k.set == nil {
			if k.set, err = pl.watch(k.shard); err != nil {
				return err
			}
		}
		s = k.set
		return nil
	})
	return s, err
}

// serves reports whether what is placed is good for a route: it is of the same
// state of the shard, or of a newer one than a route that was looked up before.
func (k placed[P]) serves(r *shardway.Route) bool {
	return k.shard == r.Shard || k.shard.Version == r.Shard.Version || k.generation > r.Generation
}

// change changes what is placed for the shard of a route, and retires what no
// shard needs any more.
func (pl *Places[P]) change(r *shardway.Route, f func(k *placed[P]) error) error {
	var unused map[Place]*P
	defer func() { pl.retire(unused) }() // after unlocking: it may talk to servers, and a log to the places
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed {
		return ErrClosed
	}
	k, ok := (*pl.placed.Load())[r.Shard.ID]
	before := k.set
	if !ok || !k.serves(r) {
		k = placed[P]{shard: r.Shard, generation: r.Generation}
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
	unused = pl.unused()
	return nil
}

// store publishes what is placed for a shard. pl.mu is held.
func (pl *Places[P]) store(id shardway.ShardID, k placed[P]) {
	next := maps.Clone(*pl.placed.Load())
	next[id] = k
	pl.placed.Store(&next)
}

func sameLocation(a, b shardway.Location) bool {
	return a.Engine == b.Engine && a.Database == b.Database && slices.EqualFunc(a.Servers, b.Servers, func(a, b shardway.Server) bool {
		return a.Address == b.Address && maps.Equal(a.Tags, b.Tags)
	})
}

// open returns the pool of a place. pl.mu is held.
func (pl *Places[P]) open(at Place) (*opened[P], error) {
	if o := pl.pools[at]; o != nil {
		return o, nil
	}
	p, err := pl.cfg.Open(at)
	if err != nil {
		return nil, err
	}
	o := &opened[P]{pool: p}
	pl.pools[at] = o
	return o, nil
}

// shards are the names of the shards by each place that leads to one. pl.mu is held.
func (pl *Places[P]) shards() map[Place]string {
	names := map[Place]string{}
	for _, k := range *pl.placed.Load() {
		for i := range k.shard.Location.Servers {
			names[placeOf(k.shard.Location, i)] = k.shard.Name
		}
	}
	return names
}

// unused takes out the pools of databases where no shard is any more. pl.mu is
// held.
func (pl *Places[P]) unused() map[Place]*P {
	used, pools := pl.shards(), map[Place]*P{}
	for at, o := range pl.pools {
		if _, ok := used[at]; !ok {
			delete(pl.pools, at)
			pools[at] = o.pool
		}
	}
	return pools
}

func (pl *Places[P]) retire(unused map[Place]*P) {
	for at, p := range unused {
		pl.cfg.Retire(p)
		pl.cfg.Logger.Info("closed the pool of a database that no shard uses any more", "engine", at.Engine, "server", at.Address, "database", at.Database)
	}
}

// Each calls f for every pool and the name of a shard that it serves. f must not
// use the places.
func (pl *Places[P]) Each(f func(shard string, p *P)) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	names := pl.shards()
	for at, o := range pl.pools {
		f(names[at], o.pool)
	}
}

// Close retires all pools and ends all sets, for which it waits. It is
// idempotent. Nothing is placed afterwards: see [ErrClosed].
func (pl *Places[P]) Close() {
	pl.mu.Lock()
	pl.closed = true
	for _, k := range *pl.placed.Load() {
		if k.set != nil {
			k.set.stop()
		}
	}
	pl.placed.Store(&map[shardway.ShardID]placed[P]{})
	pools := pl.pools
	pl.pools = nil // nothing is placed any more
	pl.mu.Unlock()
	for _, o := range pools {
		pl.cfg.Retire(o.pool)
	}
	pl.watching.Wait()
}

package sqlshard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/retry"
)

// opener opens connections for the keys and shards of one shard map. It knows
// nothing of Go types of keys.
type opener struct {
	m      *shardway.Map
	cfg    Config
	places *replicaset.Places[pool]

	mu     sync.Mutex // guards the fields below
	shards map[string]*shardway.Shard
	budget retry.Budget // of units of work
	asOf   int64        // generation of the map when shards were read
}

// forKey routes a key and opens a connection.
func (o *opener) forKey(ctx context.Context, key shardway.Key, want want) (*Conn, error) {
	return o.open(ctx, key, opening{want: want})
}

// open is forKey for a connection of a special kind.
func (o *opener) open(ctx context.Context, key shardway.Key, w opening) (*Conn, error) {
	var route shardway.Route
	var err error
	if w.route != nil {
		route = *w.route
	} else if route, err = o.m.Lookup(ctx, key, shardway.CacheAndStore); err != nil {
		return nil, err
	}
	conn, err := o.connect(ctx, route, &w)
	if err != nil {
		if conn, err = o.tryAgain(ctx, key, &route, &w, err); err != nil {
			return nil, o.failure(key, route, &w, err)
		}
	}
	o.m.Reached(route)
	return conn, nil
}

// tryAgain decides what becomes of a first attempt that failed: the one new
// lookup and the one more attempt that there are. route is left as tried last.
func (o *opener) tryAgain(ctx context.Context, key shardway.Key, route *shardway.Route, w *opening, failed error) (*Conn, error) {
	var fresh shardway.Route
	var err error
	switch {
	case errors.Is(failed, errNotHere), errors.Is(failed, shardway.ErrNoStore) && route.FromCache:
		if fresh, err = o.m.Refresh(ctx, key, *route); err != nil {
			return nil, err
		}
	case errors.Is(failed, shardway.ErrUnavailable) && !errors.Is(failed, replicaset.ErrClosed):
		var retry bool
		fresh, retry, err = o.m.Unreachable(ctx, key, *route)
		switch {
		case replicaset.Over(ctx): // the answer is for those who come next
			return nil, failed
		case err != nil:
			return nil, fmt.Errorf("%w; asking where the key is now: %w", failed, err)
		case !retry:
			return nil, failed
		}
	default:
		return nil, failed
	}
	*route = fresh
	conn, err := o.connect(ctx, fresh, w)
	if errors.Is(err, errNotHere) {
		err = fmt.Errorf("%w, neither before nor after asking the store again: %w", err, shardway.ErrStale)
	}
	return conn, err
}

// connect opens a session where a route leads and validates it there.
func (o *opener) connect(ctx context.Context, route shardway.Route, w *opening) (*Conn, error) {
	checked := o.cfg.Validation == Validate || w.fence != nil || w.holds
	if checked && route.MappingID != 0 && !route.FromCache && route.Status == shardway.Offline {
		return nil, shardway.ErrMappingOffline
	}
	if err := w.suits(route.Shard.Location.Engine); err != nil {
		return nil, err
	}
	if !w.writes || len(route.Shard.Location.Servers) > 1 {
		w.Unit = unitOf(ctx)
		return o.choose(ctx, route, w)
	}
	w.Server = route.Shard.Location.Servers[0].Address
	conn := &Conn{opener: o, route: route, fence: w.fence, holds: w.holds, asks: w.asks}
	if err := o.places.OnPool(ctx, &route, func(p *pool) error { return o.occupy(ctx, ctx, p, conn) }); err != nil {
		return nil, err
	}
	return conn, nil
}

// occupy takes a session of a pool for a Conn and validates it. The wait for a
// free session is bounded by ctx, all else by limited.
func (o *opener) occupy(ctx, limited context.Context, p *pool, conn *Conn) error {
	for broken := 0; ; {
		s, err := p.checkout(ctx, limited)
		switch {
		case errors.Is(err, replicaset.ErrRetired):
			return err
		case err != nil:
			return replicaset.Connecting(limited, err)
		}
		s.seat = seat{}
		conn.session, conn.sc = s, s.sc
		if err = conn.admit(limited); !errors.Is(err, errBroken) {
			return err
		}
		if broken++; broken == maxBroken {
			p.suspect() // the next one is new
		}
		o.cfg.Logger.Debug("dropping a broken session", "shard", conn.Shard(), "server", p.address, "error", err)
	}
}

// maxBroken bounds the broken idle sessions, before all of them are given up.
const maxBroken = 2

// failure adds to an error where it happened.
func (o *opener) failure(key shardway.Key, route shardway.Route, w *opening, err error) error {
	e := &shardway.LookupError{Map: o.m.ShardMap().Name, Server: w.Server, Err: err}
	if !key.IsZero() {
		e.Key = key.String()
	}
	var known *shardway.LookupError
	if errors.As(err, &known) && known == err { //nolint:errorlint // itself, not wrapped: the router says it all
		return err
	}
	if route.Shard != nil {
		e.Shard = route.Shard.Name
	}
	return e
}

// forShard opens a connection for a shard by its name.
func (o *opener) forShard(ctx context.Context, name string, want want) (*Conn, error) {
	route, err := o.shardRoute(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	w := opening{want: want}
	conn, err := o.connect(ctx, route, &w)
	again := route.FromCache && (errors.Is(err, errNotHere) || errors.Is(err, shardway.ErrStale) ||
		errors.Is(err, shardway.ErrNoStore) || errors.Is(err, shardway.ErrUnavailable) && !replicaset.Over(ctx))
	if again && !errors.Is(err, replicaset.ErrClosed) {
		fresh, readErr := o.shardRoute(ctx, name, route.Shard)
		if readErr != nil {
			return nil, o.failure(shardway.Key{}, route, &w, fmt.Errorf("%w; reading the shard again: %w", err, readErr))
		}
		route = fresh
		conn, err = o.connect(ctx, route, &w)
	}
	if errors.Is(err, errNotHere) {
		err = fmt.Errorf("the database is not this shard: %w", shardway.ErrStale)
	}
	if err != nil {
		return nil, o.failure(shardway.Key{}, route, &w, err)
	}
	return conn, nil
}

// shardRoute returns the route to a shard, from what was read before unless
// that is stale.
func (o *opener) shardRoute(ctx context.Context, name string, stale *shardway.Shard) (shardway.Route, error) {
	o.mu.Lock()
	known, asOf := o.shards[name], o.asOf
	o.mu.Unlock()
	if known != nil && known != stale {
		return shardway.Route{Shard: known, Generation: asOf, FromCache: true}, nil
	}
	asOf = o.m.ShardMap().Generation
	all, err := o.m.Shards(ctx)
	if err != nil {
		return shardway.Route{}, &shardway.LookupError{Map: o.m.ShardMap().Name, Shard: name, Err: err}
	}
	byName := make(map[string]*shardway.Shard, len(all))
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	o.mu.Lock()
	o.shards, o.asOf = byName, asOf
	o.mu.Unlock()
	if byName[name] == nil {
		return shardway.Route{}, &shardway.LookupError{Map: o.m.ShardMap().Name, Shard: name, Err: shardway.ErrShardNotFound}
	}
	return shardway.Route{Shard: byName[name], Generation: asOf}, nil
}

// suits refuses a connection that the engine of a route cannot give.
func (w *opening) suits(engine string) error {
	if w.fence != nil {
		return w.fence.checkOptions(engine)
	}
	if w.holds {
		return checkHold(engine)
	}
	return nil
}

// abandon gives the session of a connection back that nobody gets.
func (c *Conn) abandon() {
	if c.fence != nil {
		_ = c.fence.tx.Rollback() // or the session is closed
	}
	c.session.pool.checkin(c.session, c.fence != nil)
}

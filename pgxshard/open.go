package pgxshard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/selection"
)

// opener finds sessions for the keys of one shard map. It knows nothing of Go
// types of keys.
type opener struct {
	m      *shardway.Map
	cfg    Config
	places *replicaset.Places[pool]
}

// visit is a session in use for a route.
type visit struct {
	o      *opener
	route  shardway.Route
	pool   *pool
	conn   *pgxpool.Conn
	state  *state
	choice selection.Choice // of the server; none where there was nothing to choose
	seat   seat
	unit   *replicaset.Unit
	reads  bool // it is for reads
	reused bool // the session was used before
	dirty  bool // the session must not be used again
	untags bool // the session loses its tag, if what was sent with that succeeds
}

// release gives the session back.
func (v *visit) release() {
	v.choice.Release()
	v.pool.checkin(v.conn, v.dirty)
}

// work validates the route of a visit and does something there. opening bounds
// what is done before the validation has answered, where that can be told. On
// success the visit belongs to the work. Its errors are errNotHere,
// ErrMappingOffline, errBroken, those of checkFailed, or a statementError, after
// which nothing is tried again.
type work func(ctx, opening context.Context, v *visit) error

// forKey routes a key and does work there. When the shard does not have the
// mapping, or cannot be reached, it is routed and done once more.
func (o *opener) forKey(ctx context.Context, key shardway.Key, w *opening, work work) error {
	var route shardway.Route
	var err error
	if w.route != nil {
		route = *w.route
	} else if route, err = o.m.Lookup(ctx, key, shardway.CacheAndStore); err != nil {
		return err
	}
	if err = o.connect(ctx, route, w, work); err != nil {
		err = o.tryAgain(ctx, key, &route, w, work, err)
	}
	var said *statementError
	switch {
	case err == nil:
		o.m.Reached(route)
		return nil
	case errors.As(err, &said):
		o.m.Reached(route)
		return said.err
	}
	return o.failure(key, route, w, err)
}

// tryAgain decides what becomes of a first attempt that failed: the one new
// lookup and the one more attempt that there are. route is left as tried last.
func (o *opener) tryAgain(ctx context.Context, key shardway.Key, route *shardway.Route, w *opening, work work, failed error) error {
	var fresh shardway.Route
	var err error
	switch {
	case errors.As(failed, new(*statementError)):
		return failed
	case errors.Is(failed, errNotHere), errors.Is(failed, shardway.ErrNoStore) && route.FromCache:
		if fresh, err = o.m.Refresh(ctx, key, *route); err != nil {
			return err
		}
	case errors.Is(failed, shardway.ErrUnavailable) && !errors.Is(failed, replicaset.ErrClosed):
		var retry bool
		fresh, retry, err = o.m.Unreachable(ctx, key, *route)
		switch {
		case replicaset.Over(ctx): // the answer is for those who come next
			return failed
		case err != nil:
			return fmt.Errorf("%w; asking where the key is now: %w", failed, err)
		case !retry:
			return failed
		}
	default:
		return failed
	}
	*route = fresh
	err = o.connect(ctx, fresh, w, work)
	if errors.Is(err, errNotHere) {
		err = fmt.Errorf("%w, neither before nor after asking the store again: %w", err, shardway.ErrStale)
	}
	return err
}

// connect does work where a route leads.
func (o *opener) connect(ctx context.Context, route shardway.Route, w *opening, work work) error {
	if o.cfg.Validation == Validate && !route.FromCache && route.Status == shardway.Offline {
		return shardway.ErrMappingOffline
	}
	if !w.writes || len(route.Shard.Location.Servers) > 1 {
		return o.choose(ctx, route, w, work)
	}
	w.Server = route.Shard.Location.Servers[0].Address
	return o.places.OnPool(ctx, &route, func(p *pool) error {
		return o.occupy(ctx, ctx, p, &visit{o: o, route: route}, work)
	})
}

// occupy takes a session of a pool for a visit and does the work on it. The wait
// for a free session is bounded by ctx, connecting by limited.
func (o *opener) occupy(ctx, limited context.Context, p *pool, v *visit, work work) error {
	for broken := 0; ; {
		conn, err := p.checkout(ctx, limited)
		switch {
		case errors.Is(err, replicaset.ErrRetired):
			return err
		case err != nil:
			return replicaset.Connecting(limited, err)
		}
		v.pool, v.conn, v.dirty, v.untags = p, conn, false, false
		v.state, v.reused = stateOf(conn.Conn())
		if v.seat.set != nil && !v.reads && !v.seat.primary() {
			p.checkin(conn, false)
			return replicaset.ErrNotPrimary
		}
		err = v.run(ctx, limited, work)
		if !errors.Is(err, errBroken) && !errors.Is(err, errAgain) || replicaset.Over(ctx) {
			return err
		}
		if broken++; broken > maxBroken {
			return err
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if broken == maxBroken {
			p.suspect() // the next one is new
		}
		o.cfg.Logger.Debug("dropping a broken session", "shard", v.route.Shard.Name, "server", p.address, "error", err)
	}
}

// run does the work and gives the session back if that fails.
func (v *visit) run(ctx, limited context.Context, work work) (err error) {
	returned := false
	defer func() {
		if returned && err == nil {
			return
		}
		v.dirty = v.dirty || !returned || errors.Is(err, errBroken) // a tracer or a type may have panicked
		v.pool.checkin(v.conn, v.dirty)
	}()
	err = work(ctx, limited, v)
	returned = true
	return err
}

// maxBroken bounds the broken idle sessions, before all of them are given up, and
// the conflicts.
const maxBroken = 2

// failure adds to an error where it happened.
func (o *opener) failure(key shardway.Key, route shardway.Route, w *opening, err error) error {
	var known *shardway.LookupError
	if errors.As(err, &known) && known == err { //nolint:errorlint // itself, not wrapped: the router says it all
		return err
	}
	e := &shardway.LookupError{Map: o.m.ShardMap().Name, Server: w.Server, Err: err}
	if !key.IsZero() {
		e.Key = key.String()
	}
	if route.Shard != nil {
		e.Shard = route.Shard.Name
	}
	return e
}

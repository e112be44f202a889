package mongoshard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/selection"
)

// shardOpener leads to the shards of one map. It knows nothing of Go types of
// keys.
type shardOpener struct {
	m   *shardway.Map
	cfg ShardConfig

	mu      sync.Mutex                  // guards the fields below
	clients map[clientKey]*mongo.Client // of deployments; nil after close
}

// clientKey finds the client for criteria on a deployment. Those of the zero
// criteria are the ones that the others are made from.
type clientKey struct {
	servers  string
	criteria selection.Criteria
}

// visit does something on the shard that a route leads to. An error is one of
// those that decide what is tried next, see again.
type visit func(ctx context.Context, route shardway.Route) error

// each runs do on the shard of a key, and once more if the route turns out to be
// stale.
func (o *shardOpener) each(ctx context.Context, key shardway.Key, do visit) error {
	route, err := o.m.Lookup(ctx, key, shardway.CacheAndStore)
	if err != nil {
		return err
	}
	if err = do(ctx, route); err != nil {
		if err = o.again(ctx, key, &route, do, err); err != nil {
			return o.failure(key, route, err)
		}
	}
	o.m.Reached(route)
	return nil
}

// again decides what becomes of a first attempt that failed: the one new lookup
// and the one more attempt that there are. route is left as tried last.
func (o *shardOpener) again(ctx context.Context, key shardway.Key, route *shardway.Route, do visit, failed error) error {
	var fresh shardway.Route
	var err error
	switch {
	case errors.Is(failed, errNotHere), errors.Is(failed, shardway.ErrNoStore) && route.FromCache:
		if fresh, err = o.m.Refresh(ctx, key, *route); err != nil {
			return err
		}
	case errors.Is(failed, shardway.ErrUnavailable) && !errors.Is(failed, errShardsClosed):
		var retry bool
		fresh, retry, err = o.m.Unreachable(ctx, key, *route)
		switch {
		case ctx.Err() != nil: // the answer is for those who come next
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
	err = do(ctx, fresh)
	if errors.Is(err, errNotHere) {
		err = fmt.Errorf("%w, neither before nor after asking the store again: %w", err, shardway.ErrStale)
	}
	return err
}

// failure adds to an error where it happened.
func (o *shardOpener) failure(key shardway.Key, route shardway.Route, err error) error {
	var known *shardway.LookupError
	if errors.As(err, &known) && known == err { //nolint:errorlint // itself, not wrapped: the router says it all
		return err
	}
	e := &shardway.LookupError{Map: o.m.ShardMap().Name, Err: err}
	if !key.IsZero() {
		e.Key = key.String()
	}
	if route.Shard != nil {
		e.Shard = route.Shard.Name
	}
	return e
}

// database finds the database of a key and checks that the shard has it.
func (o *shardOpener) database(ctx context.Context, key shardway.Key, criteria selection.Criteria) (db *mongo.Database, err error) {
	err = o.each(ctx, key, func(ctx context.Context, route shardway.Route) error {
		if !o.cfg.Unchecked {
			if err := o.validate(ctx, route); err != nil {
				return err
			}
		}
		client, err := o.client(ctx, route.Shard, criteria)
		if err == nil {
			db = client.Database(route.Shard.Location.Database)
		}
		return err
	})
	return db, err
}

// validate asks the shard's primary whether the route still stands.
func (o *shardOpener) validate(ctx context.Context, route shardway.Route) error {
	client, err := o.client(ctx, route.Shard, selection.Criteria{})
	if err != nil {
		return err
	}
	strict := options.Database().SetReadConcern(readconcern.Majority())
	answer, err := mongomap.Ask(ctx, client.Database(route.Shard.Location.Database, strict), route.MappingID)
	if err != nil {
		return fmt.Errorf("validating the mapping: %w", o.fault(ctx, err))
	}
	return judge(answer)
}

// judge says what the answer of a shard means.
func judge(a mongomap.Answer) error {
	switch {
	case !a.Owned:
		return errNotHere
	case a.Status != shardway.Online:
		return shardway.ErrMappingOffline
	}
	return nil
}

// fault gives an error of the driver, or of selecting a server, its meaning.
func (o *shardOpener) fault(ctx context.Context, err error) error {
	var refused *Error
	if errors.As(err, &refused) && ctx.Err() == nil && errors.Is(err, selection.ErrTimeout) {
		return fmt.Errorf("%w: %w", shardway.ErrUnavailable, err)
	}
	return mongomap.Fault(ctx, err)
}

// client returns the client for a shard's deployment and criteria, and makes it
// if it is the first one.
func (o *shardOpener) client(ctx context.Context, s *shardway.Shard, criteria selection.Criteria) (*mongo.Client, error) {
	if s.Location.Engine != o.cfg.Engine.Name() {
		return nil, &EngineError{Shard: s.Name, Engine: s.Location.Engine, mixed: o.cfg.Mixed}
	}
	if err := criteria.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", shardway.ErrInvalid, err)
	}
	addresses := make([]string, len(s.Location.Servers))
	for i, server := range s.Location.Servers {
		addresses[i] = server.Address
	}
	key := clientKey{servers: strings.Join(addresses, ",")}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.clients == nil {
		return nil, errShardsClosed
	}
	plain := o.clients[key]
	if plain == nil {
		opts, err := o.cfg.Engine.ClientOptions(ctx, s.Location, o.cfg.Credentials)
		if err != nil {
			return nil, err
		}
		if plain, err = Connect(ctx, opts, Config{MongosForWrites: o.cfg.MongosForWrites, Logger: o.cfg.Logger}); err != nil {
			return nil, err
		}
		o.clients[key] = plain
	}
	if key.criteria = criteria; o.clients[key] != nil {
		return o.clients[key], nil
	}
	client, err := With(plain, criteria)
	if err == nil {
		o.clients[key] = client
	}
	return client, err
}

// servers explains the choice among the servers of a shard.
func (o *shardOpener) servers(ctx context.Context, name string, criteria selection.Criteria) (selection.Explanation, error) {
	s, err := o.m.Shard(ctx, name)
	if err != nil {
		return selection.Explanation{}, err
	}
	explanation, err := o.explain(ctx, &s, criteria)
	if err != nil {
		return explanation, o.failure(shardway.Key{}, shardway.Route{Shard: &s}, err)
	}
	return explanation, nil
}

func (o *shardOpener) explain(ctx context.Context, s *shardway.Shard, criteria selection.Criteria) (selection.Explanation, error) {
	client, err := o.client(ctx, s, criteria)
	if err != nil {
		return selection.Explanation{}, err
	}
	h, err := handleOf(client)
	if err != nil {
		return selection.Explanation{}, err
	}
	for {
		v, changed, err := h.deployment.look()
		if err != nil {
			return selection.Explanation{}, h.deployment.failed(err)
		}
		waiting := v.set.Len() == 0
		for _, server := range v.set.Servers() {
			waiting = waiting || !server.Role.Available() && server.Err == nil
		}
		if waiting {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				if errors.Is(ctx.Err(), context.Canceled) {
					return selection.Explanation{}, fmt.Errorf("checking servers: %w", context.Cause(ctx))
				}
			}
		}
		return selection.Explain(v.set, selection.Request{Criteria: criteria, LocalThreshold: localThreshold(h.deployment.options)})
	}
}

func (o *shardOpener) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	clients := o.clients
	o.clients = nil
	return mongomap.Disconnect(maps.Values(clients))
}

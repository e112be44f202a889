package shardway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Map routes the keys of one shard map, of whatever kind. It is what the
// adapters work with; programs have the typed [ListShardMap] and
// [RangeShardMap]. It is safe for concurrent use.
//
// An adapter that connects to the shard of a route tells the map how that
// went: Reached after success, Refresh when the shard says it does not own the
// key, Unreachable when there is no connection.
type Map struct {
	router    *Router
	described ShardMap
	cache     *cache
	pauses    backoff
	questions flights[question, Route]
	stop      context.CancelFunc // ends the feed; nil when there is none
	loadTook  time.Duration      // how long the latest reading of the whole map took; for whoever reads it next
	feedError atomic.Pointer[error]

	hits    stripes
	misses  atomic.Uint64
	lookups atomic.Uint64
}

// question is what the store is asked about: a key that is not cached, or
// whatever has become of a mapping that does not work any more.
type question struct {
	key   Key
	stale MappingID
}

func newMap(r *Router, described ShardMap) *Map {
	m := &Map{router: r, described: described, cache: newCache(described)}
	m.questions.timeout = r.cfg.StoreTimeout
	return m
}

// ShardMap describes the map. Its Generation is the newest one the router knows of.
func (m *Map) ShardMap() ShardMap {
	described := m.described
	described.Generation = max(described.Generation, m.cache.snapshot.Load().generation)
	return described
}

// Lookup returns the route for a key. Its errors are a [*LookupError] around
// [ErrKeyNotMapped], [ErrKeyRequired], [ErrWrongType], [ErrMapNotFound], or
// [ErrUnavailable] when only the store could know and it cannot be reached.
//
// Callers that miss the same key at the same time share one read of the store,
// its error included; each of them may give up by its own context. That a key
// is not mapped is not remembered.
func (m *Map) Lookup(ctx context.Context, key Key, mode LookupMode) (Route, error) {
	if mode != StoreOnly && key.kind == m.described.KeyKind {
		s := m.cache.snapshot.Load()
		if v, ok := s.find(key); ok {
			m.hits.add()
			return s.route(v), nil
		}
	}
	return m.miss(ctx, key, mode)
}

func (m *Map) miss(ctx context.Context, key Key, mode LookupMode) (Route, error) {
	if err := m.check(key); err != nil {
		return Route{}, m.failure(key, err)
	}
	switch mode {
	case CacheAndStore:
		m.misses.Add(1)
		route, err := m.fetch(ctx, key)
		return route, m.failure(key, err)
	case CacheOnly:
		m.misses.Add(1)
		return Route{}, m.failure(key, ErrKeyNotMapped)
	case StoreOnly:
		if m.router.isClosed() {
			return Route{}, m.failure(key, errClosed)
		}
		ctx, cancel := context.WithTimeout(ctx, m.router.cfg.StoreTimeout)
		defer cancel()
		route, err := m.ask(ctx, key)
		return route, m.failure(key, err)
	}
	return Route{}, m.failure(key, &ArgumentError{Argument: "mode", Value: fmt.Sprint(uint8(mode)), Reason: "is not a lookup mode"})
}

func (m *Map) check(key Key) error {
	if key.IsZero() {
		return ErrKeyRequired
	}
	if key.kind != m.described.KeyKind {
		return fmt.Errorf("a %s key in a map of %s keys: %w", key.kind, m.described.KeyKind, ErrWrongType)
	}
	return nil
}

// failure adds map and key to an error; nil stays nil.
func (m *Map) failure(key Key, err error) error {
	if err == nil {
		return nil
	}
	return &LookupError{Map: m.described.Name, Key: key.String(), Err: err}
}

// fetch asks the store for a key, together with all who miss it now.
func (m *Map) fetch(ctx context.Context, key Key) (Route, error) {
	route, _, err := m.questions.do(ctx, question{key: key}, false, func(ctx context.Context) (Route, error) {
		if err := m.wait(ctx); err != nil {
			return Route{}, err
		}
		defer m.release()
		// While this one waited, an answer for a neighbour may have brought it.
		if route, ok := m.cache.snapshot.Load().lookup(key); ok {
			return route, nil
		}
		return m.read(ctx, key)
	})
	return route, err
}

// ask asks the store for a key, whatever is cached.
func (m *Map) ask(ctx context.Context, key Key) (Route, error) {
	if err := m.wait(ctx); err != nil {
		return Route{}, err
	}
	defer m.release()
	return m.read(ctx, key)
}

func (m *Map) wait(ctx context.Context) error {
	select {
	case m.router.reads <- struct{}{}:
		return nil
	case <-ctx.Done():
		return waitError(ctx)
	}
}

func (m *Map) release() { <-m.router.reads }

// read reads a key from the store and learns the answer.
func (m *Map) read(ctx context.Context, key Key) (Route, error) {
	m.lookups.Add(1)
	a, err := m.router.src.Lookup(ctx, m.described, key)
	if err != nil {
		return Route{}, m.storeError(ctx, err)
	}
	m.cache.learn(key, a)
	if !a.Found {
		return Route{}, ErrKeyNotMapped
	}
	route := Route{MappingID: a.Mapping.ID, Shard: &a.Shard, Generation: a.Generation, Status: a.Mapping.Status}
	if known, ok := m.cache.snapshot.Load().lookup(key); ok && known.sameTarget(route) {
		route.Shard = known.Shard // one copy is enough
	}
	return route, nil
}

// storeError is what callers are told about an error of the store. A map that
// is gone is forgotten.
func (m *Map) storeError(ctx context.Context, err error) error {
	if errors.Is(err, ErrMapNotFound) {
		m.cache.clear()
		m.router.drop(m)
		if m.stop != nil {
			m.stop()
		}
		return err
	}
	if ctx.Err() != nil && !errors.Is(err, ErrUnavailable) {
		return waitError(ctx)
	}
	return err
}

// Shards reads all shards of the map from the store.
func (m *Map) Shards(ctx context.Context) ([]Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, m.router.cfg.StoreTimeout)
	defer cancel()
	state, err := m.router.src.Load(ctx, m.described, smallest(m.described.KeyKind), func(MappingRow) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("reading the shards of shard map %q: %w", m.described.Name, m.storeError(ctx, err))
	}
	m.cache.refresh(state)
	return state.Shards, nil
}

// Shard reads the shard with the given name from the store.
func (m *Map) Shard(ctx context.Context, name string) (Shard, error) {
	shards, err := m.Shards(ctx)
	if err != nil {
		return Shard{}, err
	}
	for _, s := range shards {
		if s.Name == name {
			return s, nil
		}
	}
	return Shard{}, &LookupError{Map: m.described.Name, Shard: name, Err: ErrShardNotFound}
}

func (m *Map) close() {
	if m.stop != nil {
		m.stop()
	}
	m.questions.close()
}

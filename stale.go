package shardway

import (
	"context"
	"errors"
)

// sameTarget reports whether two routes lead to the same place.
func (r Route) sameTarget(other Route) bool {
	return r.MappingID == other.MappingID && r.Shard.ID == other.Shard.ID && r.Shard.Version == other.Shard.Version
}

// Refresh is for a route whose shard said that it does not own the key: the
// mapping is forgotten and the store asked once. The new route may be the old
// one, when the map is just being changed. Callers that refresh the same
// mapping at the same time share the question.
func (m *Map) Refresh(ctx context.Context, key Key, stale Route) (Route, error) {
	if err := m.check(key); err != nil {
		return Route{}, m.failure(key, err)
	}
	if route, ok := m.cache.snapshot.Load().lookup(key); ok && route.MappingID != stale.MappingID {
		return route, nil // another caller was faster
	}
	m.Evict(key, stale)
	route, joined, err := m.renew(ctx, key, stale, nil)
	if joined && err == nil && route.MappingID == stale.MappingID {
		// The other caller may have asked before the change that made our
		// route stale.
		route, _, err = m.renew(ctx, key, stale, nil)
	}
	return route, m.failure(key, err)
}

// Evict forgets the mapping of a route when it is still what is cached for the
// key. It reports whether it was.
func (m *Map) Evict(key Key, stale Route) bool {
	return m.check(key) == nil && m.cache.evict(key, stale.MappingID)
}

// Unreachable is for a route whose shard could not be connected to. It reports
// whether to try again, with the route it returns: when the route came from
// the cache, the store is asked whether it still stands. To spare the store
// this happens at once the first time, then after pauses of 5, 10, 20 and 30 s
// for each mapping, until [Map.Reached]. err is that of asking the store; the
// question is not lost when ctx ends.
func (m *Map) Unreachable(ctx context.Context, key Key, failed Route) (route Route, retry bool, err error) {
	if err := m.check(key); err != nil {
		return Route{}, false, m.failure(key, err)
	}
	if !failed.FromCache {
		return failed, false, nil
	}
	if known, ok := m.cache.snapshot.Load().lookup(key); ok && !known.sameTarget(failed) {
		return known, true, nil
	}
	seen, over := m.pauses.current(failed.MappingID)
	if !over {
		return failed, false, nil
	}
	pause := func(fresh Route, err error) {
		if err != nil || fresh.sameTarget(failed) {
			m.pauses.extend(failed.MappingID, seen)
		}
	}
	route, _, err = m.renew(ctx, key, failed, pause)
	return route, err == nil, m.failure(key, err)
}

// renew asks the store what has become of a mapping, together with all who
// want to know that now: joined says that another caller began. after sees the
// answer once, before anybody can ask again.
func (m *Map) renew(ctx context.Context, key Key, stale Route, after func(Route, error)) (route Route, joined bool, err error) {
	ask := func(ctx context.Context) (Route, error) {
		route, err := m.ask(ctx, key)
		if after != nil {
			after(route, err)
		}
		return route, err
	}
	route, joined, err = m.questions.do(ctx, question{stale: stale.MappingID}, true, ask)
	if !joined || err != nil && !errors.Is(err, ErrKeyNotMapped) {
		return route, joined, err
	}
	// The answer was for another caller's key of the same mapping.
	if route, ok := m.cache.snapshot.Load().lookup(key); ok {
		return route, true, nil
	}
	route, err = m.fetch(ctx, key)
	return route, true, err
}

// Reached is for a route whose shard was connected to: it ends the pauses of
// [Map.Unreachable].
func (m *Map) Reached(route Route) { m.pauses.reset(route.MappingID) }

package shardway

import (
	"context"
	"fmt"
)

// ListShardMap routes the keys of a list map by their Go type. It is a cheap
// view of the router's [Map], safe for concurrent use.
type ListShardMap[K KeyType] struct{ typed[K] }

// RangeShardMap routes the keys of a range map by their Go type. It is a cheap
// view of the router's [Map], safe for concurrent use.
type RangeShardMap[K KeyType] struct{ typed[K] }

// OpenListShardMap opens a list map with keys of type K. It returns
// [ErrMapNotFound], or [ErrWrongType] when the map is no list map of such keys.
func OpenListShardMap[K KeyType](ctx context.Context, r *Router, name string) (*ListShardMap[K], error) {
	t, err := openTyped[K](ctx, r, name, ListMap)
	if err != nil {
		return nil, err
	}
	return &ListShardMap[K]{t}, nil
}

// OpenRangeShardMap opens a range map with keys of type K. It returns
// [ErrMapNotFound], or [ErrWrongType] when the map is no range map of such keys.
func OpenRangeShardMap[K KeyType](ctx context.Context, r *Router, name string) (*RangeShardMap[K], error) {
	t, err := openTyped[K](ctx, r, name, RangeMap)
	if err != nil {
		return nil, err
	}
	return &RangeShardMap[K]{t}, nil
}

func openTyped[K KeyType](ctx context.Context, r *Router, name string, kind MapKind) (typed[K], error) {
	if r == nil {
		return typed[K]{}, &ArgumentError{Argument: "router", Reason: "is missing"}
	}
	m, err := r.Map(ctx, name)
	if err != nil {
		return typed[K]{}, err
	}
	if d := m.described; d.Kind != kind || d.KeyKind != KindOf[K]() {
		return typed[K]{}, fmt.Errorf("opening shard map %q as a %s map of %s keys: it is a %s map of %s keys: %w",
			name, kind, KindOf[K](), d.Kind, d.KeyKind, ErrWrongType)
	}
	return typed[K]{m}, nil
}

// typed is what list and range maps have in common.
type typed[K KeyType] struct{ m *Map }

// Map returns the untyped handle.
func (t typed[K]) Map() *Map { return t.m }

// Key returns the key for a value, see [KeyOf].
func (t typed[K]) Key(k K) (Key, error) { return KeyOf(k) }

// Lookup returns the route for a key, from the cache or else from the store.
// It allocates nothing when the key is cached, but for a copy of bytes keys.
// See [Map.Lookup] for its errors.
func (t typed[K]) Lookup(ctx context.Context, k K) (Route, error) {
	return t.LookupIn(ctx, k, CacheAndStore)
}

// LookupIn is Lookup with a choice of where to look.
func (t typed[K]) LookupIn(ctx context.Context, k K, mode LookupMode) (Route, error) {
	if mode != StoreOnly {
		s := t.m.cache.snapshot.Load()
		if v, ok := findValue(s, k); ok {
			t.m.hits.add()
			return s.route(v), nil
		}
	}
	key, err := KeyOf(k)
	if err != nil {
		return Route{}, &LookupError{Map: t.m.described.Name, Err: err}
	}
	return t.m.Lookup(ctx, key, mode)
}

package shardway

import (
	"context"
)

type contextKey struct{}

// WithKey returns a context that carries a sharding key, for code that cannot
// pass it along: generated queries, ORMs, middleware. A request has one key:
// setting the same key again is fine, another one is an [ArgumentError]. Use
// [ReplaceKey] where that is meant.
func WithKey[K KeyType](ctx context.Context, k K) (context.Context, error) {
	key, err := KeyOf(k)
	if err != nil {
		return nil, err
	}
	if old, ok := KeyFromContext(ctx); ok {
		if old == key {
			return ctx, nil
		}
		return nil, &ArgumentError{
			Argument: "key", Value: key.String(),
			Reason: "differs from key " + old.quoted() + ", which the context carries already; ReplaceKey changes it",
		}
	}
	return context.WithValue(ctx, contextKey{}, key), nil
}

// ReplaceKey returns a context that carries the key instead of any other.
func ReplaceKey[K KeyType](ctx context.Context, k K) (context.Context, error) {
	key, err := KeyOf(k)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, contextKey{}, key), nil
}

// KeyFromContext returns the key that the context carries, and whether it does.
func KeyFromContext(ctx context.Context) (Key, bool) {
	key, ok := ctx.Value(contextKey{}).(Key)
	return key, ok
}

package sqlshard

import (
	"context"

	"github.com/shardway/shardway/internal/replicaset"
)

type unitKey struct{}

// WithUnit returns a context for one unit of work that may be repeated as a
// whole, as package retry does. Servers that fail in it, while a connection is
// opened with the context or used, are chosen by its later attempts only if no
// other server suits.
//
//	err := retry.Do(sqlshard.WithUnit(ctx), policy, func(ctx context.Context, attempt int) error { … })
func WithUnit(ctx context.Context) context.Context {
	return context.WithValue(ctx, unitKey{}, &replicaset.Unit{})
}

func unitOf(ctx context.Context) *replicaset.Unit {
	u, _ := ctx.Value(unitKey{}).(*replicaset.Unit)
	return u
}

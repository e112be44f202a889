package catalog

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Adopt makes the local store at a location, which belongs to the global store
// with the id from, one of this catalog's global store. Its local maps stay as
// they are, and routes validated by them stay valid. One that belongs to a
// third is [shardway.ErrForeignStore]. It is idempotent. See [store.Adopter].
func (c *Catalog) Adopt(ctx context.Context, l shardway.Location, from string) error {
	wrap := func(err error) error { return fmt.Errorf("adopting local store at %s: %w", l, err) }
	global, err := c.global.Describe(ctx)
	if err != nil {
		return fmt.Errorf("reading global store: %w", err)
	}
	local, err := c.locals.Open(ctx, l)
	if err != nil {
		return wrap(err)
	}
	adopter, ok := local.(store.Adopter)
	if !ok {
		return wrap(&shardway.ArgumentError{Argument: "local store", Value: l.String(), Reason: "cannot change its owner"})
	}
	if err := retry(ctx, func() error { return adopter.Adopt(ctx, from, global.ID) }); err != nil {
		return wrap(err)
	}
	return nil
}

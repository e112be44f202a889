package sqlstore

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

var _ store.Adopter = (*Local)(nil)

// Adopt gives the store to another global store, see [store.Adopter].
func (l *Local) Adopt(ctx context.Context, from, to string) error {
	if to == "" {
		return &shardway.ArgumentError{Argument: "global store id", Reason: "is empty"}
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	err := l.b.write(ctx, func(t *transaction) error {
		if _, err := lockLocal(ctx, t); err != nil {
			return err
		}
		there, err := describe(ctx, t, "local", "local_store")
		if err != nil {
			return err
		}
		if there.ID != from && there.ID != to {
			return checkOwner(there, from)
		}
		_, err = t.exec(ctx, `UPDATE {local_store} SET store_id = ? WHERE one_row = 1`, to)
		return err
	})
	if err != nil {
		return fmt.Errorf("adopting local store: %w", err)
	}
	return nil
}

package memstore

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

var _ store.Adopter = (*Local)(nil)

// Adopt gives the store to another global store, see [store.Adopter].
func (l *Local) Adopt(ctx context.Context, from, to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.usable(ctx)
	switch {
	case err != nil:
	case to == "":
		return &shardway.ArgumentError{Argument: "global store id", Reason: "is empty"}
	case l.globalID != from && l.globalID != to:
		err = shardway.ErrForeignStore
	}
	if err != nil {
		return fmt.Errorf("adopting the local store: %w", err)
	}
	l.globalID = to
	return nil
}

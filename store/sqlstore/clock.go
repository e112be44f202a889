package sqlstore

import (
	"context"
	"fmt"
	"time"
)

// Now returns the clock of the global store's server, in UTC: the one by which
// leases and locks run out.
func (g *Global) Now(ctx context.Context) (time.Time, error) { return g.b.now(ctx) }

// Now returns the clock of the local store's server, in UTC. Nothing depends on
// it: it is there to be compared.
func (l *Local) Now(ctx context.Context) (time.Time, error) { return l.b.now(ctx) }

func (b *database) now(ctx context.Context) (time.Time, error) {
	var now int64
	err := b.glance(ctx, func(t *transaction) error {
		_, err := t.one(ctx, `SELECT {now}`, nil, &now)
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the store's clock: %w", err)
	}
	return instant(now), nil
}

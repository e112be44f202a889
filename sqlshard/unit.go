package sqlshard

import (
	"context"
	"slices"
	"sync"
)

// unit remembers the servers that failed one unit of work. A nil unit remembers
// nothing.
type unit struct {
	mu     sync.Mutex // guards the field below
	failed []string   // addresses
}

type unitKey struct{}

// WithUnit returns a context for one unit of work that may be repeated as a
// whole, as package retry does. Servers that fail in it, while a connection is
// opened with the context or used, are chosen by its later attempts only if no
// other server suits.
//
//	err := retry.Do(sqlshard.WithUnit(ctx), policy, func(ctx context.Context, attempt int) error { … })
func WithUnit(ctx context.Context) context.Context {
	return context.WithValue(ctx, unitKey{}, &unit{})
}

func unitOf(ctx context.Context) *unit {
	u, _ := ctx.Value(unitKey{}).(*unit)
	return u
}

func (u *unit) add(address string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.failed, address) {
		u.failed = append(u.failed, address)
	}
}

func (u *unit) servers() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.failed)
}

package catalog

import (
	"context"
	"sync"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Selection says which pending operations to recover. The zero value stands
// for those of all maps whose owners are dead.
type Selection struct {
	Map       shardway.MapID // 0: of all maps
	OlderThan time.Duration  // started at least so long ago, by this machine's clock; the owner's lease counts all the same
	Force     bool           // also those whose owner still holds a lease
	Parallel  int            // how many at once; 0: 4
}

// RecoverSome is [Catalog.Recover] for some of the pending operations, several
// at once: one whose shard does not answer does not keep others waiting.
func (c *Catalog) RecoverSome(ctx context.Context, s Selection) ([]Recovered, error) {
	if s.OlderThan < 0 {
		return nil, &shardway.ArgumentError{Argument: "OlderThan", Value: s.OlderThan.String(), Reason: "is negative"}
	}
	ops, err := c.Pending(ctx, s)
	if err != nil {
		return nil, err
	}
	all := make([]Recovered, len(ops))
	for i, op := range ops {
		all[i] = Recovered{Operation: op, Outcome: store.Pending}
	}
	limit := s.Parallel
	if limit <= 0 {
		limit = 4
	}
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		if all[i].Err = ctx.Err(); all[i].Err != nil {
			<-slots
			continue
		}
		running.Go(func() {
			all[i] = c.recoverOne(ctx, all[i].Operation, s.Force, nil)
			<-slots
		})
	}
	running.Wait()
	return all, ctx.Err()
}

// Pending returns the pending operations that s selects, oldest first, those of
// owners at work included.
func (c *Catalog) Pending(ctx context.Context, s Selection) ([]store.Operation, error) {
	var ops []store.Operation
	err := c.view(ctx, func(tx store.Reader) (err error) {
		ops, err = tx.Operations(ctx, store.OperationQuery{Map: s.Map})
		return err
	})
	var old []store.Operation
	for _, op := range ops {
		if time.Since(op.Started) >= s.OlderThan {
			old = append(old, op)
		}
	}
	return old, err
}

// Watch sets up [Catalog.Watch]. The zero value works.
type Watch struct {
	Selection

	Every time.Duration // how long to pause between two looks; zero: 10 s
	// Look is called after every look with what was done, and with the error
	// of one that the global store did not answer. Nil: nobody is told, but for
	// Config.Logger.
	Look func([]Recovered, error)
}

// Watch recovers what dead clients leave behind until ctx ends, and then
// returns its error. Owners at work are left alone, and what cannot be ended
// yet is tried again at every look. Several processes may watch one store.
func (c *Catalog) Watch(ctx context.Context, w Watch) error {
	if w.Every == 0 {
		w.Every = 10 * time.Second
	}
	switch {
	case w.Every < 0:
		return &shardway.ArgumentError{Argument: "Every", Value: w.Every.String(), Reason: "is negative"}
	case w.OlderThan < 0:
		return &shardway.ArgumentError{Argument: "OlderThan", Value: w.OlderThan.String(), Reason: "is negative"}
	case w.Force:
		return &shardway.ArgumentError{Argument: "Force", Reason: "would take every operation away from its owner, again and again"}
	}
	for {
		all, err := c.RecoverSome(ctx, w.Selection)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if w.Look != nil {
			w.Look(all, err)
		}
		if err := sleep(ctx, w.Every); err != nil {
			return err
		}
	}
}

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// GiveUp says which pending operation to end without its shards.
type GiveUp struct {
	Operation store.OperationID
	Force     bool   // although its owner still holds a lease: it loses it
	Reason    string // for the history; may be empty
}

// giveUpTries bounds how often an operation is claimed anew because a local
// store remembers a higher epoch than a restored global store.
const giveUpTries = 64

// GiveUp ends a pending operation that [Catalog.Recover] cannot end, because a
// local map is not what the operation has left there: the global store, or a
// shard, was restored to another moment. No local map changes. Every local
// store of the operation is fenced first, so that nobody can go on with it, and
// must answer for that; one that is lost is created, empty. An operation that
// all of them have applied is published. Any other one is taken back in the
// global store alone: where a shard has applied it, package recovery finds the
// difference, and resolves it.
//
// An operation whose owner is at work is a [PendingError], unless Force is
// set. One that has ended is no error: the outcome tells how. It is idempotent.
func (c *Catalog) GiveUp(ctx context.Context, g GiveUp) (Recovered, error) {
	wrap := func(r Recovered, err error) (Recovered, error) {
		r.Outcome, r.Err = store.Pending, err
		return r, fmt.Errorf("giving up operation %s: %w", g.Operation, err)
	}
	if g.Operation == 0 {
		return wrap(Recovered{}, &shardway.ArgumentError{Argument: "operation", Value: g.Operation.String(), Reason: "is no id"})
	}
	ops, err := c.operation(ctx, g.Operation)
	if err != nil {
		return wrap(Recovered{}, err)
	}
	if len(ops) == 0 {
		return c.endedBefore(ctx, g.Operation)
	}
	r := Recovered{Operation: ops[0]}
	for try, force := 1, g.Force; ; try, force = try+1, false {
		op := ops[0]
		switch err := c.claim(ctx, &op, force); {
		case errors.Is(err, errEnded):
			return c.endedBefore(ctx, op.ID)
		case errors.Is(err, errAlive):
			return wrap(r, &PendingError{Operation: op.ID, Object: op.Summary, Owner: op.Owner, Err: err})
		case err != nil:
			return wrap(r, err)
		}
		r.Operation = op
		r.Outcome, err = c.giveUp(ctx, &op, g.Reason)
		if r.Outcome == store.Done || r.Outcome == store.Undone {
			c.noteRecovered(&op, r)
			return r, nil
		}
		c.release(ctx, &op)
		if !errors.Is(err, store.ErrLostLease) || try == giveUpTries {
			return wrap(r, err)
		}
	}
}

// operation returns the pending operation with an id, or none.
func (c *Catalog) operation(ctx context.Context, id store.OperationID) (ops []store.Operation, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		ops, err = tx.Operations(ctx, store.OperationQuery{ID: id})
		return err
	})
	return ops, err
}

// endedBefore is how an operation ended that is not pending any more.
func (c *Catalog) endedBefore(ctx context.Context, id store.OperationID) (Recovered, error) {
	o, err := c.Outcome(ctx, id)
	if err == nil && o == store.Unknown {
		err = &shardway.ArgumentError{Argument: "operation", Value: id.String(), Reason: "is not known to the global store"}
	}
	return Recovered{Operation: store.Operation{ID: id}, Outcome: o, Err: err}, err
}

// giveUp fences every local store of a claimed operation and ends it.
func (c *Catalog) giveUp(ctx context.Context, op *store.Operation, reason string) (store.Outcome, error) {
	steps, err := c.located(ctx, op)
	if err != nil {
		return store.Pending, err
	}
	complete := true
	for _, step := range steps {
		if step.GlobalOnly {
			continue
		}
		local, err := c.fenced(ctx, step)
		if err != nil {
			return store.Pending, err
		}
		found, err := c.step(ctx, op, local, step, store.StepSeen)
		if err != nil {
			return store.Pending, err
		}
		complete = complete && found == store.StepApplied
	}
	if complete {
		return c.settleClaimed(ctx, op, nil)
	}
	for _, why := range []string{"given up, local maps stay as they are", reason} {
		if op.Reason != "" && why != "" {
			op.Reason += "; "
		}
		op.Reason += why
	}
	return c.ended(ctx, op, store.Undone)
}

// fenced opens the local store of a step. One that is lost is created, so that
// it can remember that the step must not be taken.
func (c *Catalog) fenced(ctx context.Context, step store.Step) (store.Local, error) {
	local, err := c.local(ctx, step, true)
	if !errors.Is(err, shardway.ErrNoStore) {
		return local, err
	}
	added := step
	added.Before, added.After = nil, &step.Shard
	return c.local(ctx, added, true)
}

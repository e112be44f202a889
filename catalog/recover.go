package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Recovered is what [Catalog.Recover] did with one operation.
type Recovered struct {
	Operation store.Operation
	Outcome   store.Outcome // Done, Undone, or Pending
	Err       error         // why it is still pending
}

// Recover brings the pending operations of dead clients to an end: forward when
// every step has been applied, else backward. An operation whose lease still
// runs is left to its owner, unless force is set: then its owner loses it. An
// operation that cannot be finished, because a shard is unreachable, stays and
// blocks only its own mappings and shards.
func (c *Catalog) Recover(ctx context.Context, force bool) ([]Recovered, error) {
	ops, err := c.Operations(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Recovered, 0, len(ops))
	for _, op := range ops {
		all = append(all, c.recoverOne(ctx, op, force, nil))
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
	}
	return all, nil
}

// recoverOne brings one pending operation to an end, if its owner does not hold
// it. Steps in untouched need not be asked, see settleClaimed.
func (c *Catalog) recoverOne(ctx context.Context, op store.Operation, force bool, untouched map[int]bool) Recovered {
	r := Recovered{Operation: op, Outcome: store.Pending}
	if r.Err = c.claim(ctx, &op, force); r.Err == nil {
		if r.Outcome, r.Err = c.settleClaimed(ctx, &op, untouched); r.Outcome != store.Pending {
			r.Err = nil
		} else {
			c.release(ctx, &op)
		}
		c.noteRecovered(&op, r)
	} else if errors.Is(r.Err, errEnded) {
		r.Outcome, r.Err = c.Outcome(ctx, op.ID)
	}
	return r
}

func (c *Catalog) noteRecovered(op *store.Operation, r Recovered) {
	c.cfg.Logger.Info("recovered operation", "operation", op.ID.String(), "kind", op.Kind,
		"map", op.Map.Name, "outcome", r.Outcome.String(), "error", r.Err)
}

// clear deals with the operation that holds a row this client needs. It fills
// in the owner when that is still at work, and clears it when the operation
// has ended.
func (c *Catalog) clear(ctx context.Context, pending *PendingError) error {
	var ops []store.Operation
	err := c.view(ctx, func(tx store.Reader) (err error) {
		ops, err = tx.Operations(ctx, store.OperationQuery{ID: pending.Operation})
		return err
	})
	if err != nil {
		return err
	}
	pending.Owner = ""
	if len(ops) == 0 {
		return nil
	}
	op := ops[0]
	err = c.claim(ctx, &op, false)
	switch {
	case errors.Is(err, errEnded):
		return nil
	case errors.Is(err, errAlive):
		pending.Owner, pending.Age = op.Owner, time.Since(op.Started)
		return nil
	case err != nil:
		return err
	}
	o, err := c.settleClaimed(ctx, &op, nil)
	c.noteRecovered(&op, Recovered{Outcome: o, Err: err})
	if o == store.Pending || o == store.Unknown {
		c.release(ctx, &op)
		pending.Owner, pending.Age, pending.Err = op.Owner, time.Since(op.Started), err
		return pending
	}
	return nil
}

var (
	errAlive = errors.New("its owner is at work")
	errEnded = errors.New("operation has ended")
)

// claim takes an operation over: it raises the epoch, so that every step and
// every publication of the owner before is refused from now on.
func (c *Catalog) claim(ctx context.Context, op *store.Operation, force bool) error {
	var leased time.Time
	var tried int64 // epoch of a try whose acknowledgement was lost
	err := retry(ctx, func() error {
		leased = time.Now()
		return c.global.Update(ctx, op.Map.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
			ops, err := tx.Operations(ctx, store.OperationQuery{ID: op.ID})
			if err != nil {
				return store.Delta{}, err
			}
			if len(ops) == 0 {
				return store.Delta{}, errEnded
			}
			*op = ops[0]
			ours := op.Owner == c.owner && op.Epoch == tried
			if !force && !ours && now.Before(op.LeaseUntil) {
				return store.Delta{}, errAlive
			}
			op.Epoch++
			tried = op.Epoch
			op.Owner, op.LeaseUntil = c.owner, now.Add(c.cfg.Lease)
			return store.Delta{Lease: op}, nil
		})
	})
	if errors.Is(err, shardway.ErrMapNotFound) {
		return errEnded // maps are dropped only after their operations have ended
	}
	if err == nil {
		c.hold(op, leased)
	}
	return err
}

// hold notes when the lease ends by this machine's monotonic clock. leased is
// an instant before the store began to count.
func (c *Catalog) hold(op *store.Operation, leased time.Time) {
	op.LeaseUntil = leased.Add(c.cfg.Lease)
}

// renew prolongs the lease of an operation that this client holds, once half
// of it is over.
func (c *Catalog) renew(ctx context.Context, op *store.Operation) error {
	if time.Until(op.LeaseUntil) > c.cfg.Lease/2 {
		return nil
	}
	leased := time.Now()
	err := c.global.Update(ctx, op.Map.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
		row, err := c.mine(ctx, tx, op)
		row.LeaseUntil = now.Add(c.cfg.Lease)
		return store.Delta{Lease: &row}, err
	})
	if err == nil {
		c.hold(op, leased)
	}
	return err
}

// mine returns the stored operation, or ErrLostLease when it has ended or has
// another epoch.
func (c *Catalog) mine(ctx context.Context, tx store.Reader, op *store.Operation) (store.Operation, error) {
	ops, err := tx.Operations(ctx, store.OperationQuery{ID: op.ID})
	if err == nil && (len(ops) == 0 || ops[0].Epoch != op.Epoch) {
		err = store.ErrLostLease
	}
	if err != nil {
		return store.Operation{}, err
	}
	return ops[0], nil
}

// release lets others take the operation over at once. It is a courtesy: when
// it fails, they wait for the lease to end.
func (c *Catalog) release(ctx context.Context, op *store.Operation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.global.Update(ctx, op.Map.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
		row, err := c.mine(ctx, tx, op)
		row.LeaseUntil = now
		return store.Delta{Lease: &row}, err
	})
}

// settle brings an operation of this client, whose way forward has failed, to
// an end. It takes the operation over from itself first: what is still under
// way under the old epoch cannot write any more.
func (c *Catalog) settle(ctx context.Context, op *store.Operation, untouched map[int]bool, d *drain) (store.Outcome, error) {
	err := c.claim(ctx, op, true)
	if errors.Is(err, errEnded) {
		return c.Outcome(ctx, op.ID)
	}
	if err != nil {
		return store.Pending, err
	}
	return c.settleDraining(ctx, op, untouched, d)
}

// settleClaimed fences every local store of the operation, which also tells how
// far it has come, and then goes forward or backward. Steps in untouched are
// known not to have reached their store and need no fence.
//
// Invariant: between claim and end no other executor can write, so that the
// states found stay true.
func (c *Catalog) settleClaimed(ctx context.Context, op *store.Operation, untouched map[int]bool) (store.Outcome, error) {
	return c.settleDraining(ctx, op, untouched, c.drain(store.Drain{}))
}

func (c *Catalog) settleDraining(ctx context.Context, op *store.Operation, untouched map[int]bool, d *drain) (store.Outcome, error) {
	steps, err := c.located(ctx, op)
	if err != nil {
		return store.Pending, err
	}
	// An operation without steps has nothing to publish.
	complete, applied, behind := len(untouched) == 0 && len(steps) > 0, false, ""
	locals := make([]store.Local, len(steps))
	for i, step := range steps {
		if untouched[i] || step.GlobalOnly {
			continue
		}
		local, err := c.local(ctx, step, true)
		if err != nil {
			return store.Pending, err
		}
		found, err := c.step(ctx, op, local, step, store.StepSeen)
		if err != nil {
			return c.overtaken(ctx, op, err)
		}
		locals[i] = local
		complete, applied = complete && found == store.StepApplied, applied || found == store.StepApplied
		if found == store.StepUndone { // perhaps because it is forgotten, by now
			is, err := local.Describe(ctx)
			if err != nil {
				return store.Pending, fmt.Errorf("asking local store of shard %q what it has forgotten: %w", step.Shard.Name, err)
			}
			if op.Seq <= is.Forgotten {
				behind = step.Shard.Name
			}
		}
	}
	if complete {
		c.endLeft(ctx, op, locals, steps, d)
		return c.ended(ctx, op, store.Done)
	}
	if applied && behind != "" {
		// Unless somebody else has ended it, it had ended before the global store
		// was restored from a backup. Those who have not forgotten it are the only
		// ones who know how: it must not be undone there.
		return c.overtaken(ctx, op, fmt.Errorf("shard %q has forgotten it, others have applied it: %w", behind, store.ErrMapsDiffer))
	}
	for i, step := range slices.Backward(steps) {
		if locals[i] == nil {
			continue
		}
		if _, err := c.step(ctx, op, locals[i], step, store.StepUndone); err != nil {
			return c.overtaken(ctx, op, err)
		}
	}
	return c.ended(ctx, op, store.Undone)
}

// overtaken is how an operation ended that this client cannot end itself: when
// somebody else has taken it over, as that one says. Else it stays pending for
// the given cause, lost leases included: after the global store was restored, a
// shard may remember epochs that it has not given yet.
func (c *Catalog) overtaken(ctx context.Context, op *store.Operation, cause error) (store.Outcome, error) {
	err := c.view(ctx, func(tx store.Reader) error {
		_, err := c.mine(ctx, tx, op)
		return err
	})
	if errors.Is(err, store.ErrLostLease) {
		return c.await(ctx, op, cause)
	}
	return store.Pending, errors.Join(cause, err)
}

// located returns the steps of an operation with the locations where their
// shards are now: one may have been moved since, because its server is dead.
// A step that changes a shard knows best itself.
func (c *Catalog) located(ctx context.Context, op *store.Operation) ([]store.Step, error) {
	steps := slices.Clone(op.Steps)
	err := c.view(ctx, func(tx store.Reader) error {
		rows, err := tx.Shards(ctx, op.Map.ID)
		for _, row := range rows {
			for i := range steps {
				if step := &steps[i]; step.Shard.ID == row.ID && step.Before == nil && step.After == nil {
					step.Shard = row.Shard
				}
			}
		}
		return err
	})
	return steps, err
}

func (c *Catalog) ended(ctx context.Context, op *store.Operation, o store.Outcome) (store.Outcome, error) {
	err := c.end(ctx, op, o)
	if errors.Is(err, store.ErrLostLease) {
		return c.await(ctx, op, err)
	}
	if err != nil {
		return store.Pending, err
	}
	return o, nil
}

// end publishes or aborts the operation in the global store. ErrLostLease means
// that it has ended, perhaps by a try of this very call whose acknowledgement
// was lost, or that somebody else has taken it over.
func (c *Catalog) end(ctx context.Context, op *store.Operation, o store.Outcome) error {
	err := retry(ctx, func() error {
		return c.global.Update(ctx, op.Map.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
			if _, err := c.mine(ctx, tx, op); err != nil {
				return store.Delta{}, err
			}
			d := store.Delta{History: []store.Entry{entry(op, now, o)}}
			if o == store.Done {
				d.Publish = op
			} else {
				d.Abort = op
			}
			return d, nil
		})
	})
	if errors.Is(err, shardway.ErrMapNotFound) {
		return store.ErrLostLease // maps are dropped only after their operations have ended
	}
	if err != nil {
		return fmt.Errorf("ending operation %s in global store: %w", op.ID, err)
	}
	return nil
}

package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/shardway/shardway/store"
)

// drain is how one executor sees to those who use the mappings that an
// operation takes away, and whom it has met.
type drain struct {
	how store.Drain
	met store.Drained
}

// drain returns how to drain: as a change says, or else as the Catalog does.
// Who ends nobody waits as for other changes.
func (c *Catalog) drain(of store.Drain) *drain {
	if of == (store.Drain{}) {
		of = c.cfg.Drain
	}
	if of.Mode == store.DrainNobody && of.Limit == 0 {
		of.Limit = max(c.cfg.Wait, 1)
	}
	return &drain{how: of}
}

// apply applies a step. The wait for those who use what it takes away is cut
// into parts, each of which ends long before the lease does: between them the
// lease is renewed, and the shard is free for other changes.
func (c *Catalog) apply(ctx context.Context, op *store.Operation, local store.Local, step store.Step, d *drain) error {
	how := d.how
	asked := store.LocalStep{Map: op.Map, Step: step, Want: store.StepApplied}
	if len(asked.Leaving()) == 0 { // nobody has to go
		how = store.Drain{Mode: store.DrainNobody, Limit: max(c.cfg.Wait, 1)}
	}
	part := max(c.cfg.Lease/4, time.Millisecond)
	for deadline := time.Now().Add(how.Wait()); ; {
		now := how
		left := time.Until(deadline)
		last := how.Mode == store.DrainAtOnce || left <= part
		if !last && how.Mode == store.DrainThenEnd {
			now.Mode = store.DrainPart
		}
		if !last {
			now.Limit = part
		} else if how.Mode != store.DrainAtOnce {
			now.Limit = max(left, 1)
		}
		var met store.Drained
		_, err := c.stepDraining(ctx, op, local, step, store.StepApplied, now, &met)
		d.met.Waited = max(d.met.Waited, met.Waited) // the same ones, in every part
		d.met.Ended += met.Ended
		d.met.Left = met.Left
		if last || !errors.Is(err, store.ErrMappingBusy) {
			return err
		}
	}
}

// endLeft ends, once more, the sessions of the mappings that an operation has
// taken away. It is for operations whose steps have all been applied, by
// whomever: that one may not have come so far. Sessions that will not go do not
// hold the operation up.
func (c *Catalog) endLeft(ctx context.Context, op *store.Operation, locals []store.Local, steps []store.Step, d *drain) {
	for i, step := range steps {
		asked := store.LocalStep{Map: op.Map, Step: step, Want: store.StepApplied}
		if d.how.Mode == store.DrainNobody || locals[i] == nil || len(asked.Leaving()) == 0 {
			continue
		}
		if err := c.apply(ctx, op, locals[i], step, d); err != nil {
			c.cfg.Logger.Warn("ending sessions of mappings that have left", "operation", op.ID.String(),
				"shard", step.Shard.Name, "error", err)
		}
	}
}

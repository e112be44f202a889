package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// prepare plans the change once more, inside the transaction that writes it.
// An error with an operation means that this may have been written. The
// operation gets a Seq above forgotten, which the local stores it needs have
// forgotten: one of them would not apply it otherwise.
func (c *Catalog) prepare(ctx context.Context, ch Change, forgotten int64) (op *store.Operation, p *plan, err error) {
	id := store.OperationID(store.NewID())
	leased := time.Now()
	err = c.global.Update(ctx, ch.target(), func(tx store.Reader, now time.Time) (store.Delta, error) {
		op = nil // this may be another try
		if p, err = ch.plan(ctx, c.state(tx, now)); err != nil || p.nothing {
			return store.Delta{}, err
		}
		op = &store.Operation{
			ID: id, Seq: forgotten, Kind: p.kind, Map: p.m, Steps: p.steps, Who: c.cfg.Who, Reason: p.reason, Summary: p.summary,
			Started: now, Epoch: 1, Owner: c.owner, LeaseUntil: now.Add(c.cfg.Lease),
		}
		d := store.Delta{AddMap: p.addMap, DropMap: p.dropMap, Lock: p.locks}
		if len(p.steps) > 0 {
			d.Prepare = op
			return d, nil
		}
		d.History = []store.Entry{entry(op, now, store.Done)}
		return d, nil
	})
	lost := errors.Is(err, store.ErrUnknownOutcome)
	switch {
	case lost && op != nil:
		return c.prepared(ctx, op, p, err)
	case err != nil && (!lost || p == nil):
		return nil, nil, err
	case op != nil:
		c.hold(op, leased)
		c.noteBehind(op, forgotten)
	}
	return op, p, nil
}

// noteBehind says that an operation had to skip sequence numbers: those of a
// global store follow what its local stores have forgotten, unless it was
// restored from a backup, or has adopted a local store.
func (c *Catalog) noteBehind(op *store.Operation, forgotten int64) {
	if len(op.Steps) > 0 && forgotten > 0 && op.Seq == forgotten+1 {
		c.cfg.Logger.Warn("sequence numbers of the global store were behind those of a local store and have been raised",
			"operation", op.ID.String(), "map", op.Map.Name, "seq", op.Seq)
	}
}

// prepared finds out whether a transaction whose acknowledgement was lost has
// taken place. It asks inside an Update: that waits for the lost transaction.
func (c *Catalog) prepared(ctx context.Context, op *store.Operation, p *plan, cause error) (*store.Operation, *plan, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Lease)
	defer cancel()
	o := store.Unknown
	err := retry(ctx, func() error {
		return c.global.Update(ctx, lockOf(op), func(tx store.Reader, _ time.Time) (store.Delta, error) {
			ops, err := tx.Operations(ctx, store.OperationQuery{ID: op.ID})
			if len(ops) > 0 {
				*op = ops[0]
			}
			if err == nil {
				o, err = outcome(ctx, tx, op.ID)
			}
			return store.Delta{}, err
		})
	})
	if errors.Is(err, shardway.ErrMapNotFound) { // the lost transaction may have dropped it
		o, err = c.Outcome(ctx, op.ID)
	}
	switch {
	case err != nil:
		return op, p, fmt.Errorf("writing operation %s (%s): %w", op.ID, op.Kind, cause)
	case o == store.Unknown:
		return nil, p, fmt.Errorf("writing operation %s (%s): not done: %w: %s", op.ID, op.Kind, shardway.ErrUnavailable, cause.Error())
	}
	c.hold(op, time.Now().Add(-c.cfg.Lease/2))
	return op, p, nil
}

// lockOf returns the map by which changes to an operation are serialised.
func lockOf(op *store.Operation) shardway.MapID {
	if op.Kind == createShardMap {
		return 0
	}
	return op.Map.ID
}

func entry(op *store.Operation, now time.Time, o store.Outcome) store.Entry {
	e := store.Entry{
		Operation: op.ID, At: now, MapID: op.Map.ID, MapName: op.Map.Name, Kind: op.Kind,
		Outcome: o, Who: op.Who, Reason: op.Reason, Summary: op.Summary,
	}
	if o != store.Done || len(op.Steps) == 0 {
		return e
	}
	e.Ranges, e.ShardsOnly = changedRanges(op)
	return e
}

// maxRanges bounds how many ranges a history entry lists; beyond it routers
// load the whole map.
const maxRanges = 256

// changesShard reports whether a step changes the row of a shard that stays: one
// that comes or goes is in routers by its mappings only. A step that marks a
// shard has the same row before and after.
func changesShard(step store.Step) bool {
	return step.Before != nil && step.After != nil && step.Before.Version != step.After.Version
}

// changedRanges tells routers what to read again: ranges whose mappings the
// operation changes, the shards only, or neither, which is the whole map.
func changedRanges(op *store.Operation) (ranges []shardway.Range, shardsOnly bool) {
	shards, mappings := false, 0
	steps := op.GlobalSteps() // of local stores routers know nothing
	for _, step := range steps {
		shards = shards || changesShard(step)
		mappings += len(step.Remove) + len(step.Add)
	}
	if mappings == 0 {
		return nil, true
	}
	if shards || mappings > maxRanges {
		return nil, false
	}
	for _, step := range steps {
		for _, m := range step.Remove {
			ranges = append(ranges, m.Range)
		}
		for _, m := range step.Add {
			ranges = append(ranges, m.Range)
		}
	}
	return ranges, false
}

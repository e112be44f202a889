package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// relocation is what has to be known of two databases before a shard changes
// its location, and cannot be read in the global store.
type relocation struct {
	copied  bool                        // the new location is another database than the old one
	claimed map[store.OperationID]int64 // operations taken from dead clients, by epoch
}

// look finds out what a new location holds and whether the old one is another
// database. With dry, nothing is written anywhere and no operation is claimed.
func (ch UpdateShard) look(ctx context.Context, c *Catalog, dry bool) (Change, error) {
	if ch.Location == nil {
		return ch, nil
	}
	after := ch.Shard
	err := c.global.View(ctx, func(tx store.Reader) error {
		s := c.state(tx, time.Now())
		m, _, err := s.currentShard(ctx, ch.Shard)
		if err != nil {
			return err
		}
		after.Location = *ch.Location
		return s.checkShard(ctx, m, &after)
	})
	to := after.Location
	if err != nil || to.Overlaps(ch.Shard.Location) {
		return ch, nil // planning says what is wrong
	}
	fail := func(err error) (Change, error) {
		return nil, fmt.Errorf("moving shard %q from %s to %s: %w", ch.Shard.Name, ch.Shard.Location, to, err)
	}
	if ch.OldGone && !dry {
		if ch.move.claimed, err = c.claimOf(ctx, ch.Shard); err != nil {
			return fail(err)
		}
	}
	target, err := c.checkCopy(ctx, ch.Shard, to)
	if err != nil || ch.OldGone {
		if err != nil {
			return fail(err)
		}
		return ch, nil
	}
	source, err := c.local(ctx, store.Step{Shard: ch.Shard, Before: &ch.Shard}, false)
	if err != nil {
		return fail(fmt.Errorf("asking the old database, which must lose the shard's mappings unless it is gone: %w", err))
	}
	if dry {
		return ch, nil
	}
	if ch.move.copied, err = c.apart(ctx, ch.Shard, source, target); err != nil {
		return fail(err)
	}
	return ch, nil
}

// checkCopy returns the local store at a shard's new location. It must have
// the shard and exactly those of its mappings that the global store has.
func (c *Catalog) checkCopy(ctx context.Context, shard shardway.Shard, to shardway.Location) (store.Local, error) {
	moved := shard
	moved.Location = to
	local, err := c.local(ctx, store.Step{Shard: moved, Before: &shard}, false)
	if err != nil {
		return nil, err
	}
	held, err := local.Read(ctx, shard.MapID)
	if err != nil {
		return nil, err
	}
	if len(held) != 1 || held[0].Shard.ID != shard.ID {
		return nil, fmt.Errorf("the database at %s is not that of the shard: %w", to, store.ErrMapsDiffer)
	}
	there := statuses(held[0].Mappings)
	var here map[shardway.MappingID]shardway.MappingStatus
	err = c.view(ctx, func(tx store.Reader) error {
		rows, err := collect(tx.Mappings(ctx, store.MappingQuery{Map: held[0].Map, ShardID: shard.ID}))
		here = map[shardway.MappingID]shardway.MappingStatus{}
		for _, row := range rows {
			if row.Operation == 0 {
				here[row.ID] = row.Status
			}
		}
		if err != nil {
			return err
		}
		return forgetPending(ctx, tx, shard, there)
	})
	if err == nil && !maps.Equal(here, there) {
		err = fmt.Errorf("the local map at %s has other mappings than the shard: %w", to, store.ErrMapsDiffer)
	}
	return local, err
}

// forgetPending takes out the mappings of pending operations: a local store has
// them or has them not, as far as the operation has come.
func forgetPending(ctx context.Context, tx store.Reader, shard shardway.Shard, there map[shardway.MappingID]shardway.MappingStatus) error {
	ops, err := tx.Operations(ctx, store.OperationQuery{Map: shard.MapID})
	for _, op := range ops {
		for _, m := range append(op.Removed(), op.Added()...) {
			delete(there, m.ID)
		}
	}
	return err
}

func statuses(mappings []shardway.Mapping) map[shardway.MappingID]shardway.MappingStatus {
	all := make(map[shardway.MappingID]shardway.MappingStatus, len(mappings))
	for _, m := range mappings {
		all[m.ID] = m.Status
	}
	return all
}

// apart reports whether two local stores are two. It lets one of them note that
// an operation without steps is undone, which changes no map, and asks the
// other whether it knows.
func (c *Catalog) apart(ctx context.Context, shard shardway.Shard, source, target store.Local) (apart bool, err error) {
	var forgotten int64
	for _, local := range []store.Local{source, target} {
		d, err := local.Describe(ctx)
		if err != nil {
			return false, err
		}
		forgotten = max(forgotten, d.Forgotten)
	}
	op := &store.Operation{ID: store.OperationID(store.NewID()), Kind: "compare databases", Who: c.cfg.Who, Epoch: 1, Owner: c.owner}
	defer func() {
		if !op.Started.IsZero() { // it may have been written
			err = errors.Join(err, c.endComparison(ctx, shard, op))
		}
	}()
	err = retry(ctx, func() error {
		return c.global.Update(ctx, shard.MapID, func(tx store.Reader, now time.Time) (store.Delta, error) {
			known, err := tx.Operations(ctx, store.OperationQuery{ID: op.ID})
			if err != nil {
				return store.Delta{}, err
			}
			if len(known) > 0 { // by a try whose acknowledgement was lost
				op.Seq = known[0].Seq
				return store.Delta{}, nil
			}
			if op.Map, err = c.state(tx, now).mapByID(ctx, shard.MapID, "of shard "+shard.Name); err != nil {
				return store.Delta{}, err
			}
			op.Seq = forgotten // above it: what a store has forgotten it takes for undone
			op.Started, op.LeaseUntil = now, now.Add(c.cfg.Lease)
			return store.Delta{Prepare: op}, nil
		})
	})
	if err != nil {
		return false, err
	}
	probe := store.LocalStep{Operation: op.ID, Seq: op.Seq, Epoch: 1, Map: op.Map, Step: store.Step{Shard: shard}, Want: store.StepUndone}
	note := func(local store.Local) (found store.StepState, err error) {
		err = retry(ctx, func() error {
			found, err = local.Step(ctx, probe)
			return err
		})
		return found, err
	}
	if _, err := note(source); err != nil {
		return false, err
	}
	probe.Want = store.StepSeen
	found, err := note(target)
	return found != store.StepUndone, err
}

// endComparison takes back an operation of apart, if it was written at all. It
// is an error that somebody else has ended it: then stores may have forgotten
// it, and what they say of it proves nothing. Only that one left a trace in the
// history.
func (c *Catalog) endComparison(ctx context.Context, shard shardway.Shard, op *store.Operation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Lease)
	defer cancel()
	err := retry(ctx, func() error {
		return c.global.Update(ctx, shard.MapID, func(store.Reader, time.Time) (store.Delta, error) {
			return store.Delta{Abort: op}, nil
		})
	})
	if errors.Is(err, store.ErrLostLease) {
		if o, lost := c.Outcome(ctx, op.ID); lost == nil && o == store.Unknown {
			return nil
		}
	}
	return err
}

// claimOf takes over the operations of dead clients that work on a shard, so
// that none of them can go on at its old location.
func (c *Catalog) claimOf(ctx context.Context, shard shardway.Shard) (map[store.OperationID]int64, error) {
	var ops []store.Operation
	err := c.view(ctx, func(tx store.Reader) (err error) {
		ops, err = tx.Operations(ctx, store.OperationQuery{Map: shard.MapID})
		return err
	})
	claimed := map[store.OperationID]int64{}
	for _, op := range ops {
		if err != nil || !worksOn(op, shard.ID) {
			continue
		}
		switch err = c.claim(ctx, &op, false); {
		case err == nil:
			claimed[op.ID] = op.Epoch
			c.release(ctx, &op)
		case errors.Is(err, errAlive), errors.Is(err, errEnded): // planning will say so
			err = nil
		}
	}
	return claimed, err
}

func worksOn(op store.Operation, id shardway.ShardID) bool {
	for _, step := range op.Steps {
		if step.Shard.ID == id {
			return true
		}
	}
	return false
}

// pending returns the operations of a map. They are read once for a plan: each
// comes with all its mappings.
func (s *state) pending(ctx context.Context, m shardway.MapID) ([]store.Operation, error) {
	if s.operations == nil || s.of != m {
		ops, err := s.tx.Operations(ctx, store.OperationQuery{Map: m})
		if err != nil {
			return nil, err
		}
		s.of, s.operations = m, append([]store.Operation{}, ops...)
	}
	return s.operations, nil
}

// checkIdle reports an operation that works on the shard, where it is now. Those
// in claimed, with the epoch given there, cannot go on and do not count.
func (s *state) checkIdle(ctx context.Context, m shardway.ShardMap, shard shardway.Shard, claimed map[store.OperationID]int64) error {
	ops, err := s.pending(ctx, m.ID)
	if err != nil {
		return err
	}
	for _, op := range ops {
		if worksOn(op, shard.ID) && claimed[op.ID] != op.Epoch {
			return &PendingError{Operation: op.ID, Object: fmt.Sprintf("shard %q", shard.Name)}
		}
	}
	return nil
}

// emptyOld makes a plan that moves a shard to a copy of its database take the
// mappings away at the old location first. They get new ids, so that nothing
// that was routed by the old ones is valid anywhere.
func (s *state) emptyOld(ctx context.Context, p *plan) error {
	step := &p.steps[0]
	rows, err := collect(s.tx.Mappings(ctx, store.MappingQuery{Map: p.m, ShardID: step.Shard.ID}))
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Operation != 0 {
			return &PendingError{Operation: row.Operation, Object: "mapping " + row.Format(p.m.Kind)}
		}
		step.Remove = append(step.Remove, row.Mapping)
		row.Mapping.ID = newMappingID()
		step.Add = append(step.Add, row.Mapping)
	}
	old := store.Step{Shard: *step.Before, Before: step.Before, Remove: step.Remove, LocalOnly: true}
	p.steps = []store.Step{old, *step}
	return nil
}

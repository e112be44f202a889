package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// untouched is the state of an operation that the local store has not met.
const untouched store.StepState = 0

// Step brings the database to the wanted state of one step.
func (l *Local) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	if err := l.ready(ctx); err != nil {
		return untouched, err
	}
	d := l.b.newDraining(&s)
	state, err := d.run(ctx)
	d.report()
	if err != nil {
		return untouched, fmt.Errorf("changing local store of shard %q: %w", s.Step.Shard.Name, err)
	}
	return state, nil
}

// run takes the step, and sees to those who use what it takes away.
func (d *draining) run(ctx context.Context) (state store.StepState, err error) {
	if err := d.step.Drain.Check(); err != nil {
		return untouched, err
	}
	if len(d.taken) > 0 {
		release, err := d.start(ctx)
		if err != nil {
			return untouched, err
		}
		defer release()
	}
	err = d.write(ctx, func(t *transaction) error {
		if err := d.exclude(ctx, t); err != nil {
			return err
		}
		var changed bool
		if state, changed, err = step(ctx, t, *d.step); err != nil || !changed {
			return err
		}
		// What is not allowed shows now, while nothing has changed.
		return d.endSessions(ctx, 1)
	})
	if err == nil && d.step.Want == store.StepApplied {
		err = d.afterwards(d.endSessions(ctx, 2))
	}
	return state, err
}

// afterwards is the error of sessions that remain although the mapping has left.
func (d *draining) afterwards(err error) error {
	var busy *store.BusyError
	if !errors.As(err, &busy) {
		return err
	}
	d.left = busy.Users
	return fmt.Errorf("the mapping has left, sessions checked out for it remain: %s", busy.Error())
}

// step takes a step in its transaction and reports whether rows of the map have
// changed.
func step(ctx context.Context, t *transaction, s store.LocalStep) (next store.StepState, change bool, err error) {
	forgotten, err := lockLocal(ctx, t)
	if err != nil {
		return untouched, false, err
	}
	var epoch int64
	var state store.StepState
	known, err := t.one(ctx, `SELECT epoch, state FROM {local_operations} WHERE op_id = ?`, []any{int64(s.Operation)}, &epoch, &state)
	if err != nil {
		return untouched, false, err
	}
	if known && s.Epoch < epoch {
		return untouched, false, fmt.Errorf("operation %s has epoch %d here, not %d: %w", s.Operation, epoch, s.Epoch, store.ErrLostLease)
	}
	// What was forgotten has ended, or had changed nothing and never will.
	lost := !known && s.Seq <= forgotten
	if lost {
		state = store.StepUndone
	}
	next, change, err = decide(state, s.Want)
	if err != nil {
		return untouched, false, fmt.Errorf("operation %s: %w", s.Operation, err)
	}
	if change {
		if err := apply(ctx, t, s); err != nil {
			return untouched, false, fmt.Errorf("operation %s: %w", s.Operation, err)
		}
	}
	switch {
	case lost:
		return next, change, nil
	case known && next == state && s.Epoch == epoch:
		return next, change, nil
	case known:
		_, err = t.exec(ctx, `UPDATE {local_operations} SET epoch = ?, state = ? WHERE op_id = ?`, s.Epoch, int64(next), int64(s.Operation))
	default:
		_, err = t.exec(ctx, `INSERT INTO {local_operations} (op_id, seq, epoch, state) VALUES (?, ?, ?, ?)`,
			int64(s.Operation), s.Seq, s.Epoch, int64(next))
	}
	switch {
	case err != nil:
	case s.Horizon > 0:
		err = forgetBelow(ctx, t, min(s.Horizon, s.Seq), forgotten)
	case next != store.StepApplied:
		err = forget(ctx, t, forgotten)
	}
	return next, change, err
}

// lockLocal waits until no other step runs in this database, checks the
// store's version and returns the highest sequence number it has forgotten.
func lockLocal(ctx context.Context, t *transaction) (forgotten int64, err error) {
	if err := t.lock(ctx, localRoot, dialect.Intent, localRoot+" steps", dialect.Exclusive); err != nil {
		return 0, err
	}
	var major, minor int
	found, err := t.one(ctx, `SELECT major, minor, forgotten_seq FROM {local_store} WHERE one_row = 1 {update}`, nil, &major, &minor, &forgotten)
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, shardway.ErrNoStore
	}
	return forgotten, checkVersion("local", major, minor)
}

// decide returns the state after a step and whether rows change for it.
func decide(state, want store.StepState) (next store.StepState, change bool, err error) {
	switch want {
	case store.StepSeen:
		return max(state, store.StepSeen), false, nil
	case store.StepApplied:
		if state == store.StepUndone {
			return state, false, store.ErrLostLease
		}
		return want, state != store.StepApplied, nil
	case store.StepUndone:
		return want, state == store.StepApplied, nil
	}
	return state, false, &shardway.ArgumentError{Argument: "wanted state", Value: fmt.Sprint(want), Reason: "is no state of a step"}
}

// apply changes the rows forwards or, when the step is to be undone, backwards.
func apply(ctx context.Context, t *transaction, s store.LocalStep) error {
	before, after, remove, add := s.Step.Before, s.Step.After, s.Step.Remove, s.Step.Add
	if s.Want == store.StepUndone {
		before, after, remove, add = after, before, add, remove
	}
	removed, err := t.execAmong(ctx, t.b.d.DeleteMappings(), []any{int64(s.Map.ID)}, `mapping_id`, ids(remove))
	if err != nil {
		return err
	}
	if removed != int64(len(remove)) {
		return fmt.Errorf("%d of %d mappings are missing: %w", int64(len(remove))-removed, len(remove), store.ErrMapsDiffer)
	}
	if err := applyShard(ctx, t, before, after); err != nil {
		return err
	}
	if len(add) > 0 {
		if err := t.insert(ctx, "local_mappings", localMappingInsert(add, s.Map.ID)); err != nil {
			return there("mapping", err)
		}
	}
	return keepMap(ctx, t, s.Map)
}

func applyShard(ctx context.Context, t *transaction, before, after *shardway.Shard) error {
	if before != nil {
		n, err := t.exec(ctx, `DELETE FROM {local_shards} WHERE map_id = ? AND shard_id = ? AND version = ?`,
			int64(before.MapID), int64(before.ID), before.Version)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("shard %q is missing: %w", before.Name, store.ErrMapsDiffer)
		}
	}
	if after == nil {
		return nil
	}
	args, err := shardArgs(*after)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `INSERT INTO {local_shards} (shard_id, map_id, name, engine, database_name, servers, status, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, args...)
	return there("shard", err)
}

// there turns a key that is taken into a difference of the maps.
func there(what string, err error) error {
	if isClass(err, dialect.Duplicate) {
		return fmt.Errorf("%s to add is there already: %w", what, store.ErrMapsDiffer)
	}
	return err
}

// keepMap keeps a row for each map that has a shard here, and no other. A step
// that would leave mappings without a shard is refused.
func keepMap(ctx context.Context, t *transaction, m shardway.ShardMap) error {
	id := []any{int64(m.ID)}
	has := func(table string) (found bool, err error) {
		var used int64
		return t.one(ctx, `SELECT map_id FROM {`+table+`} WHERE map_id = ? ORDER BY map_id {first}`, id, &used)
	}
	known, err := has("local_shard_maps")
	if err != nil {
		return err
	}
	shard, err := has("local_shards")
	if err != nil || shard && known {
		return err
	}
	if shard {
		_, err = t.exec(ctx, `INSERT INTO {local_shard_maps} (map_id, name, kind, key_kind) VALUES (?, ?, ?, ?)`,
			int64(m.ID), m.Name, int64(m.Kind), int64(m.KeyKind))
		return err
	}
	mappings, err := has("local_mappings")
	if err != nil {
		return err
	}
	if mappings {
		return fmt.Errorf("mappings would be left without a shard: %w", store.ErrMapsDiffer)
	}
	_, err = t.exec(ctx, `DELETE FROM {local_shard_maps} WHERE map_id = ?`, int64(m.ID))
	return err
}

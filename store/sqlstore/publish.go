package sqlstore

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// publish makes an operation visible and returns the map's new generation.
func (w *writer) publish(ctx context.Context, o *store.Operation) (generation int64, err error) {
	o, err = w.endOperation(ctx, o)
	if err != nil {
		return 0, err
	}
	for _, s := range o.GlobalSteps() {
		if err := w.publishShard(ctx, o, s); err != nil {
			return 0, err
		}
	}
	removed, err := w.t.exec(ctx, `DELETE FROM {mappings} WHERE op_id = ? AND op_id > 0`, int64(o.ID))
	if err != nil {
		return 0, err
	}
	const columns = `mapping_id, map_id, low_key, high_key, shard_id, status, lock_token, lock_owner, lock_reason, lock_expires`
	added, err := w.t.exec(ctx, `INSERT INTO {mappings} (`+columns+`, op_id)
SELECT `+columns+`, 0 FROM {pending_mappings} WHERE map_id = ? AND op_id = ? ORDER BY low_key`, int64(o.Map.ID), int64(o.ID))
	if err != nil {
		return 0, err
	}
	if _, err := w.t.exec(ctx, `DELETE FROM {pending_mappings} WHERE map_id = ? AND op_id = ?`, int64(o.Map.ID), int64(o.ID)); err != nil {
		return 0, err
	}
	if err := checkCounts(o, removed, added); err != nil {
		return 0, err
	}
	if _, err := w.t.exec(ctx, `UPDATE {shard_maps} SET generation = generation + 1 WHERE map_id = ?`, int64(o.Map.ID)); err != nil {
		return 0, err
	}
	found, err := w.t.one(ctx, `SELECT generation FROM {shard_maps} WHERE map_id = ?`, []any{int64(o.Map.ID)}, &generation)
	if err == nil && !found {
		err = shardway.ErrMapNotFound
	}
	return generation, err
}

// checkCounts compares the rows that carried an operation's mark with those it
// names. They differ only when somebody else wrote to our tables.
func checkCounts(o *store.Operation, removed, added int64) error {
	if r, a := int64(len(o.Removed())), int64(len(o.Added())); removed != r || added != a {
		return fmt.Errorf("operation %s marks %d mappings to remove and %d to add, not %d and %d: %w", o.ID, removed, added, r, a, errDamaged)
	}
	return nil
}

func (w *writer) publishShard(ctx context.Context, o *store.Operation, s store.Step) (err error) {
	var changed int64
	switch {
	case s.After != nil:
		args, err := shardArgs(*s.After)
		if err != nil {
			return err
		}
		// In the order of shardColumns, behind id and map.
		changed, err = w.t.exec(ctx, `UPDATE {shards} SET name = ?, engine = ?, database_name = ?, servers = ?, status = ?, version = ?, op_id = 0, pending = 0
WHERE shard_id = ? AND map_id = ? AND op_id = ?`, append(args[2:], int64(s.After.ID), int64(s.After.MapID), int64(o.ID))...)
		if err != nil {
			return fmt.Errorf("shard %q: %w", s.After.Name, err)
		}
	case s.Before != nil:
		changed, err = w.t.exec(ctx, `DELETE FROM {shards} WHERE shard_id = ? AND map_id = ? AND op_id = ?`,
			int64(s.Before.ID), int64(s.Before.MapID), int64(o.ID))
		if err != nil {
			return fmt.Errorf("shard %q: %w", s.Before.Name, err)
		}
	default:
		return nil
	}
	if changed != 1 {
		return fmt.Errorf("operation %s does not mark shard %q: %w", o.ID, s.Shard.Name, errDamaged)
	}
	return nil
}

// abort takes an operation back.
func (w *writer) abort(ctx context.Context, o *store.Operation) error {
	o, err := w.endOperation(ctx, o)
	if err != nil {
		return err
	}
	added, err := w.t.exec(ctx, `DELETE FROM {pending_mappings} WHERE map_id = ? AND op_id = ?`, int64(o.Map.ID), int64(o.ID))
	if err != nil {
		return err
	}
	removed, err := w.t.exec(ctx, `UPDATE {mappings} SET op_id = 0 WHERE op_id = ? AND op_id > 0`, int64(o.ID))
	if err != nil {
		return err
	}
	if err := checkCounts(o, removed, added); err != nil {
		return err
	}
	for _, s := range o.GlobalSteps() {
		text, shard := `UPDATE {shards} SET op_id = 0 WHERE shard_id = ? AND op_id = ?`, s.Before
		if s.Before == nil {
			text, shard = `DELETE FROM {shards} WHERE shard_id = ? AND op_id = ? AND pending = 1`, s.After
		}
		if shard == nil {
			continue
		}
		if _, err := w.t.exec(ctx, text, int64(shard.ID), int64(o.ID)); err != nil {
			return fmt.Errorf("shard %q: %w", shard.Name, err)
		}
	}
	return nil
}

// endOperation deletes an operation if this executor still owns it, and returns
// it whole: one given without its steps is read before.
func (w *writer) endOperation(ctx context.Context, o *store.Operation) (*store.Operation, error) {
	if len(o.Steps) == 0 {
		stored, err := (&reader{t: w.t}).Operations(ctx, store.OperationQuery{ID: o.ID})
		if err != nil {
			return nil, err
		}
		if len(stored) == 1 {
			stored[0].Epoch = o.Epoch
			o = &stored[0]
		}
	}
	deleted, err := w.t.exec(ctx, `DELETE FROM {operations} WHERE op_id = ? AND epoch <= ?`, int64(o.ID), o.Epoch)
	if err == nil && deleted == 0 {
		err = fmt.Errorf("operation %s has ended or another epoch: %w", o.ID, store.ErrLostLease)
	}
	if err != nil {
		return nil, err
	}
	_, err = w.t.exec(ctx, `DELETE FROM {operation_parts} WHERE op_id = ?`, int64(o.ID))
	return o, err
}

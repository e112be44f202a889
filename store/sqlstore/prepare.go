package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// prepare marks what the operation removes and adds the rest as pending.
func (w *writer) prepare(ctx context.Context, o *store.Operation) error {
	for _, s := range o.GlobalSteps() {
		if err := w.markShard(ctx, o, s.Before); err != nil {
			return err
		}
	}
	removed := ids(o.Removed())
	marked, err := w.t.execAmong(ctx, `UPDATE {mappings} SET op_id = ? WHERE `+notByMap+`map_id = ? AND op_id = 0 AND `,
		[]any{int64(o.ID), int64(o.Map.ID)}, `mapping_id`, removed)
	if err != nil {
		return err
	}
	if marked != int64(len(removed)) {
		return fmt.Errorf("%d of %d mappings have changed: %w", int64(len(removed))-marked, len(removed), shardway.ErrStale)
	}
	for _, s := range o.GlobalSteps() {
		if s.Before == nil && s.After != nil {
			if err := w.addShard(ctx, o, *s.After); err != nil {
				return err
			}
		}
	}
	if err := w.addMappings(ctx, o); err != nil {
		return fmt.Errorf("adding mappings: %w", err)
	}
	return w.storeOperation(ctx, o)
}

// addMappings inserts pending mappings. Their table knows nothing of the
// visible ones, so that an id taken there is looked for.
func (w *writer) addMappings(ctx context.Context, o *store.Operation) error {
	added := o.Added()
	if len(added) == 0 {
		return nil
	}
	taken, err := w.count(ctx, "mappings", ids(added))
	if err != nil {
		return err
	}
	if taken > 0 {
		return fmt.Errorf("%d ids: %w", taken, shardway.ErrExists)
	}
	return w.t.insert(ctx, "pending_mappings", pendingInsert(added, o.Map.ID, o.ID))
}

func (w *writer) markShard(ctx context.Context, o *store.Operation, s *shardway.Shard) error {
	if s == nil {
		return nil
	}
	marked, err := w.t.exec(ctx, `UPDATE {shards} SET op_id = ? WHERE shard_id = ? AND map_id = ? AND version = ? AND pending = 0 AND op_id = 0`,
		int64(o.ID), int64(s.ID), int64(o.Map.ID), s.Version)
	if err == nil && marked != 1 {
		err = shardway.ErrStale
	}
	if err != nil {
		return fmt.Errorf("marking shard %q: %w", s.Name, err)
	}
	return nil
}

func (w *writer) addShard(ctx context.Context, o *store.Operation, s shardway.Shard) error {
	args, err := shardArgs(s)
	if err != nil {
		return err
	}
	_, err = w.t.exec(ctx, `INSERT INTO {shards} (shard_id, map_id, name, engine, database_name, servers, status, version, op_id, pending)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1)`, append(args, int64(o.ID))...)
	if err != nil {
		return fmt.Errorf("adding shard %q: %w", s.Name, err)
	}
	return nil
}

// storeOperation stores the operation under the next sequence number. The
// counter comes last: other maps wait for it from here to the commit only.
func (w *writer) storeOperation(ctx context.Context, o *store.Operation) error {
	body, err := encodeBody(o)
	if err != nil {
		return err
	}
	for i, part := range parts(body, partBytes) {
		if _, err := w.t.exec(ctx, `INSERT INTO {operation_parts} (op_id, part, body) VALUES (?, ?, ?)`, int64(o.ID), i, part); err != nil {
			return err
		}
	}
	if err := w.t.lock(ctx, globalRoot, dialect.Intent, globalRoot+" counters", dialect.Exclusive); err != nil {
		return err
	}
	above := o.Seq
	_, err = w.t.exec(ctx, `UPDATE {counters} SET operation_seq = CASE WHEN operation_seq < ? THEN ? ELSE operation_seq END + 1 WHERE one_row = 1`, above, above)
	if err != nil {
		return err
	}
	// From here on whatever has a lower Seq is committed, and pending or ended.
	var pending sql.NullInt64
	found, err := w.t.one(ctx, `SELECT operation_seq, (SELECT MIN(seq) FROM {operations}) FROM {counters} WHERE one_row = 1`, nil, &o.Seq, &pending)
	if err != nil {
		return err
	}
	if !found {
		return errDamaged
	}
	if o.Horizon = o.Seq; pending.Valid {
		o.Horizon = pending.Int64
	}
	_, err = w.t.exec(ctx, `INSERT INTO {operations} (op_id, seq, map_id, kind, who, reason, summary, started, epoch, owner, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(o.ID), o.Seq, int64(o.Map.ID), text(o.Kind), text(o.Who), text(o.Reason), text(o.Summary),
		micros(o.Started), o.Epoch, text(o.Owner), micros(o.LeaseUntil))
	return err
}

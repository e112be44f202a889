package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// writer writes deltas in a transaction that holds the map's lock.
type writer struct{ t *transaction }

// write writes the parts of a delta in their order.
func (w *writer) write(ctx context.Context, d store.Delta) error {
	generation := int64(0)
	for _, part := range []struct {
		name  string
		given bool
		do    func() error
	}{
		{"adding shard map", d.AddMap != nil, func() error { return w.addMap(ctx, d.AddMap) }},
		{"deleting shard map", d.DropMap != 0, func() error { return w.dropMap(ctx, d.DropMap) }},
		{"preparing operation", d.Prepare != nil, func() error { return w.prepare(ctx, d.Prepare) }},
		{"publishing operation", d.Publish != nil, func() (err error) {
			generation, err = w.publish(ctx, d.Publish)
			return err
		}},
		{"taking back operation", d.Abort != nil, func() error { return w.abort(ctx, d.Abort) }},
		{"leasing operation", d.Lease != nil, func() error { return w.lease(ctx, d.Lease) }},
		{"locking mappings", len(d.Lock) > 0, func() error { return w.lock(ctx, d.Lock) }},
		{"writing history", len(d.History) > 0, func() error { return w.history(ctx, d, generation) }},
	} {
		if !part.given {
			continue
		}
		if err := part.do(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func (w *writer) addMap(ctx context.Context, m *shardway.ShardMap) error {
	_, err := w.t.exec(ctx, `INSERT INTO {shard_maps} (`+mapColumns+`) VALUES (?, ?, ?, ?, 1)`,
		int64(m.ID), m.Name, int64(m.Kind), int64(m.KeyKind))
	if err != nil {
		return fmt.Errorf("%q: %w", m.Name, err)
	}
	return nil
}

// dropMap locks the map's row first: an Update of this map may be adding a shard.
func (w *writer) dropMap(ctx context.Context, m shardway.MapID) error {
	if err := w.t.lock(ctx, globalRoot, dialect.Intent, mapLeaf(m), dialect.Exclusive); err != nil {
		return err
	}
	var id int64
	found, err := w.t.one(ctx, `SELECT map_id FROM {shard_maps} WHERE map_id = ? {update}`, []any{int64(m)}, &id)
	if err != nil {
		return err
	}
	if !found {
		return shardway.ErrMapNotFound
	}
	for _, table := range []string{"shards", "mappings", "operations"} {
		used, err := w.t.one(ctx, `SELECT map_id FROM {`+table+`} WHERE map_id = ? ORDER BY map_id {first}`, []any{int64(m)}, &id)
		if err != nil {
			return err
		}
		if used {
			return fmt.Errorf("it has %s: %w", table, shardway.ErrInUse)
		}
	}
	_, err = w.t.exec(ctx, `DELETE FROM {shard_maps} WHERE map_id = ?`, int64(m))
	return err
}

// prepare marks what the operation removes and adds the rest as pending.
func (w *writer) prepare(ctx context.Context, o *store.Operation) error {
	for _, s := range o.Steps {
		if err := w.markShard(ctx, o, s.Before); err != nil {
			return err
		}
	}
	removed := ids(o.Removed())
	marked, err := w.t.execAmong(ctx, `UPDATE {mappings} SET op_id = ? WHERE map_id = ? AND op_id = 0 AND `,
		[]any{int64(o.ID), int64(o.Map.ID)}, `mapping_id`, removed)
	if err != nil {
		return err
	}
	if marked != int64(len(removed)) {
		return fmt.Errorf("%d of %d mappings have changed: %w", int64(len(removed))-marked, len(removed), shardway.ErrStale)
	}
	for _, s := range o.Steps {
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
	if _, err := w.t.exec(ctx, `UPDATE {counters} SET operation_seq = operation_seq + 1 WHERE one_row = 1`); err != nil {
		return err
	}
	found, err := w.t.one(ctx, `SELECT operation_seq FROM {counters} WHERE one_row = 1`, nil, &o.Seq)
	if err != nil {
		return err
	}
	if !found {
		return errDamaged
	}
	_, err = w.t.exec(ctx, `INSERT INTO {operations} (op_id, seq, map_id, kind, who, reason, summary, started, epoch, owner, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(o.ID), o.Seq, int64(o.Map.ID), text(o.Kind), text(o.Who), text(o.Reason), text(o.Summary),
		micros(o.Started), o.Epoch, text(o.Owner), micros(o.LeaseUntil))
	return err
}

// publish makes an operation visible and returns the map's new generation.
func (w *writer) publish(ctx context.Context, o *store.Operation) (generation int64, err error) {
	o, err = w.endOperation(ctx, o)
	if err != nil {
		return 0, err
	}
	for _, s := range o.Steps {
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
	for _, s := range o.Steps {
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

func (w *writer) lease(ctx context.Context, o *store.Operation) error {
	var epoch int64
	found, err := w.t.one(ctx, `SELECT epoch FROM {operations} WHERE op_id = ?`, []any{int64(o.ID)}, &epoch)
	if err == nil && (!found || epoch > o.Epoch) {
		err = fmt.Errorf("operation %s has ended or another epoch: %w", o.ID, store.ErrLostLease)
	}
	if err != nil {
		return err
	}
	_, err = w.t.exec(ctx, `UPDATE {operations} SET epoch = ?, owner = ?, lease_until = ? WHERE op_id = ?`,
		o.Epoch, text(o.Owner), micros(o.LeaseUntil), int64(o.ID))
	return err
}

// lock stores locks: one statement for mappings that get the same. Of two locks
// for one mapping the last counts.
func (w *writer) lock(ctx context.Context, mappings []shardway.Mapping) error {
	last := map[shardway.MappingID]shardway.Lock{}
	for _, m := range mappings {
		last[m.ID] = m.Lock
	}
	groups := map[shardway.Lock][]int64{}
	for id, lock := range last {
		groups[lock] = append(groups[lock], int64(id))
	}
	for lock, numbers := range groups {
		// An engine may count a row that gets what it has as unchanged, so the
		// rows are counted before.
		known := 0
		for _, table := range []string{"mappings", "pending_mappings"} {
			n, err := w.count(ctx, table, numbers)
			if err != nil {
				return err
			}
			if known += n; n == 0 {
				continue
			}
			_, err = w.t.execAmong(ctx, `UPDATE {`+table+`} SET lock_token = ?, lock_owner = ?, lock_reason = ?, lock_expires = ? WHERE `,
				[]any{tokenBytes(lock.Token), text(lock.Owner), text(lock.Reason), micros(lock.Expires)}, `mapping_id`, numbers)
			if err != nil {
				return err
			}
		}
		if known != len(numbers) {
			return fmt.Errorf("%d of %d mappings have changed: %w", len(numbers)-known, len(numbers), shardway.ErrStale)
		}
	}
	return nil
}

// count returns how many mappings with these ids a table has.
func (w *writer) count(ctx context.Context, table string, numbers []int64) (known int, err error) {
	for len(numbers) > 0 {
		n := min(len(numbers), dialect.MaxAmong)
		condition, args := w.t.b.d.Among(`mapping_id`, numbers[:n])
		var c int
		if _, err := w.t.one(ctx, `SELECT COUNT(*) FROM {`+table+`} WHERE `+condition, args, &c); err != nil {
			return 0, err
		}
		known += c
		numbers = numbers[n:]
	}
	return known, nil
}

// history appends the entries; those of a published operation get the new generation.
func (w *writer) history(ctx context.Context, d store.Delta, generation int64) error {
	for _, e := range d.History {
		if d.Publish != nil && e.Operation == d.Publish.ID {
			e.Generation = generation
		}
		_, err := w.t.exec(ctx, `INSERT INTO {history} (op_id, made_at, map_id, map_name, kind, outcome, who, reason, summary, generation, ranges)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(e.Operation), micros(e.At), int64(e.MapID), e.MapName, text(e.Kind), int64(e.Outcome),
			text(e.Who), text(e.Reason), text(e.Summary), e.Generation, encodeRanges(e.Ranges))
		if err != nil {
			return err
		}
	}
	return nil
}

var errDamaged = errors.New("rows of the global store were changed by somebody else")

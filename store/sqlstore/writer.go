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

func (w *writer) lease(ctx context.Context, o *store.Operation) error {
	var epoch, pending int64
	found, err := w.t.one(ctx, `SELECT epoch, (SELECT MIN(seq) FROM {operations}) FROM {operations} WHERE op_id = ?`,
		[]any{int64(o.ID)}, &epoch, &pending)
	if err == nil && (!found || epoch > o.Epoch) {
		err = fmt.Errorf("operation %s has ended or another epoch: %w", o.ID, store.ErrLostLease)
	}
	if err != nil {
		return err
	}
	o.Horizon = pending
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
			text(e.Who), text(e.Reason), text(e.Summary), e.Generation, encodeRanges(e.Ranges, e.ShardsOnly))
		if err != nil {
			return err
		}
	}
	return nil
}

var errDamaged = errors.New("rows of the global store were changed by somebody else")

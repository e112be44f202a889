package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// maxChanges is how many generations [Global.Changes] follows; who is further
// behind loads the whole map.
const maxChanges = 1000

// ShardMap returns the map with the given name.
func (g *Global) ShardMap(ctx context.Context, name string) (shardway.ShardMap, error) {
	if err := g.ready(ctx); err != nil {
		return shardway.ShardMap{}, err
	}
	var found *shardway.ShardMap
	// A name that no map can have is not asked for: engines refuse some bytes.
	if shardway.CheckName("name", name) == nil {
		err := g.b.glance(ctx, func(t *transaction) error {
			return t.query(ctx, `SELECT `+mapColumns+` FROM {shard_maps} WHERE name = ?`, []any{name}, func(rows *sql.Rows) error {
				m, err := scanMap(rows)
				if m.Name == name {
					found = &m
				}
				return err
			})
		})
		if err != nil {
			return shardway.ShardMap{}, fmt.Errorf("reading shard map %q: %w", name, err)
		}
	}
	if found == nil {
		return shardway.ShardMap{}, fmt.Errorf("reading shard map %q: %w", name, shardway.ErrMapNotFound)
	}
	return *found, nil
}

// lookup finds the mapping with the greatest low key up to a key. The
// map's row is there without a mapping too, and tells the generation.
const lookup = `SELECT g.generation, ` + mappingRowColumns + `, ` + shardColumns + `
FROM {shard_maps} g
LEFT JOIN {mappings} m ON m.map_id = g.map_id AND m.low_key = (
    SELECT f.low_key FROM {mappings} f WHERE f.map_id = ? AND f.low_key <= ? ORDER BY f.low_key DESC {first})
LEFT JOIN {shards} s ON s.shard_id = m.shard_id
WHERE g.map_id = ?`

// Lookup returns the mapping that holds the key.
func (g *Global) Lookup(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	switch {
	case key.IsZero():
		return shardway.Answer{}, shardway.ErrKeyRequired
	case key.Kind() != m.KeyKind:
		return shardway.Answer{}, fmt.Errorf("looking up a %s key in shard map %q of %s keys: %w", key.Kind(), m.Name, m.KeyKind, shardway.ErrWrongType)
	}
	if err := g.ready(ctx); err != nil {
		return shardway.Answer{}, err
	}
	var answer shardway.Answer
	ask := func(t *transaction) (err error) {
		answer, err = lookUp(ctx, t, m, key)
		return err
	}
	var err error
	if g.b.d.StatementSnapshot {
		err = g.b.glance(ctx, ask)
	} else {
		err = g.b.read(ctx, func(t *transaction) error {
			if err := t.lock(ctx, globalRoot, dialect.IntentShared, mapLeaf(m.ID), dialect.Shared); err != nil {
				return err
			}
			return ask(t)
		})
	}
	if err != nil {
		return shardway.Answer{}, &shardway.LookupError{Map: m.Name, Key: key.String(), Err: err}
	}
	return answer, nil
}

func lookUp(ctx context.Context, t *transaction, m shardway.ShardMap, key shardway.Key) (answer shardway.Answer, err error) {
	enc := key.Encoded()
	known := false
	err = t.query(ctx, lookup, []any{int64(m.ID), enc, int64(m.ID)}, func(rows *sql.Rows) error {
		known = true
		// Without a mapping, all columns but the first are NULL.
		var dest nullable
		if err := rows.Scan(append([]any{&answer.Generation}, dest.all()...)...); err != nil {
			return err
		}
		if !dest.mapping.id.Valid || !holds(m.Kind, dest.mapping.low, dest.mapping.high, enc) {
			return nil
		}
		answer.Found = true
		answer.Mapping, answer.Shard, err = dest.values(m)
		return err
	})
	if err == nil && !known {
		err = shardway.ErrMapNotFound
	}
	return answer, err
}

// holds reports whether the mapping with the greatest low key up to key holds it.
func holds(kind shardway.MapKind, low, high, key []byte) bool {
	if kind == shardway.ListMap {
		return bytes.Equal(low, key)
	}
	return high == nil || bytes.Compare(key, high) < 0
}

// Load calls each for the mappings within a range, in key order.
func (g *Global) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	if err := g.ready(ctx); err != nil {
		return shardway.MapState{}, err
	}
	var state shardway.MapState
	begun := false
	// Rows handed out cannot be taken back: once begun, it is not run again.
	err := g.b.session(ctx, func(t *transaction) error {
		return load(ctx, t, m, within, &state, func(row shardway.MappingRow) error {
			begun = true
			return each(row)
		})
	})
	if err != nil && !begun && worthAnother(err, 1) {
		err = g.b.session(ctx, func(t *transaction) error { return load(ctx, t, m, within, &state, each) })
	}
	if err != nil {
		return shardway.MapState{}, fmt.Errorf("loading shard map %q: %w", m.Name, err)
	}
	return state, nil
}

func load(ctx context.Context, t *transaction, m shardway.ShardMap, within shardway.Range, state *shardway.MapState, each func(shardway.MappingRow) error) error {
	if err := t.begin(ctx, dialect.Read); err != nil {
		return err
	}
	if t.b.d.Ordered != "" {
		if _, err := t.exec(ctx, t.b.d.Ordered); err != nil {
			return err
		}
	}
	if err := t.lock(ctx, globalRoot, dialect.IntentShared, mapLeaf(m.ID), dialect.Shared); err != nil {
		return err
	}
	found, err := t.one(ctx, `SELECT generation FROM {shard_maps} WHERE map_id = ?`, []any{int64(m.ID)}, &state.Generation)
	if err != nil {
		return err
	}
	if !found {
		return shardway.ErrMapNotFound
	}
	rows, err := (&reader{t: t}).shards(ctx, `s.map_id = ? AND s.pending = 0`, int64(m.ID))
	if err != nil {
		return err
	}
	state.Shards = nil
	for _, r := range rows {
		state.Shards = append(state.Shards, r.Shard)
	}
	sel, err := (&reader{t: t}).selection(ctx, store.MappingQuery{Map: m, Within: within})
	if err != nil {
		return err
	}
	return t.mappingRows(ctx, `SELECT `+mappingRowColumns+` FROM {mappings} m WHERE `+strings.Join(sel.conditions, ` AND `)+` ORDER BY m.low_key`, sel.args, each)
}

// mappingRows hands out rows of mappingRowColumns without copying keys.
func (t *transaction) mappingRows(ctx context.Context, text string, args []any, each func(shardway.MappingRow) error) error {
	if t.b.raw != nil {
		return t.rawMappingRows(ctx, text, args, each)
	}
	return t.query(ctx, text, args, func(rows *sql.Rows) error {
		var row shardway.MappingRow
		var low, high sql.RawBytes
		if err := rows.Scan(&row.ID, &low, &high, &row.ShardID, &row.Status); err != nil {
			return err
		}
		row.Low, row.High = low, high
		return each(row)
	})
}

// rawMappingRows is mappingRows for drivers that give their rows away unread.
func (t *transaction) rawMappingRows(ctx context.Context, text string, args []any, each func(shardway.MappingRow) error) error {
	var refused error // by each: it must not be taken for an error of the driver
	err := t.conn.Raw(func(conn any) error {
		return t.b.raw.ReadRaw(ctx, conn, t.b.d.SQL(text), args, func(v [][]byte) error {
			refused = each(shardway.MappingRow{
				ID:      shardway.MappingID(number(v[0])),
				Low:     v[1],
				High:    v[2],
				ShardID: shardway.ShardID(number(v[3])),
				Status:  shardway.MappingStatus(number(v[4])),
			})
			return refused
		})
	})
	if refused != nil {
		return refused
	}
	return t.b.fault(ctx, err)
}

// number reads a big-endian integer of two or eight bytes.
func number(b []byte) int64 {
	if len(b) == 8 {
		return int64(binary.BigEndian.Uint64(b))
	}
	return int64(int16(binary.BigEndian.Uint16(b)))
}

// Changes returns what changed after a generation. The history knows: every
// generation has an entry, so a missing one means that it was forgotten.
func (g *Global) Changes(ctx context.Context, m shardway.ShardMap, since int64) (shardway.Changes, error) {
	if err := g.ready(ctx); err != nil {
		return shardway.Changes{}, err
	}
	var changes shardway.Changes
	err := g.b.glance(ctx, func(t *transaction) error {
		var err error
		changes, err = readChanges(ctx, t, m, since)
		return err
	})
	if err != nil {
		return shardway.Changes{}, fmt.Errorf("reading the changes of shard map %q: %w", m.Name, err)
	}
	return changes, nil
}

func readChanges(ctx context.Context, t *transaction, m shardway.ShardMap, since int64) (shardway.Changes, error) {
	const text = `SELECT g.generation, h.generation, h.ranges FROM {shard_maps} g
LEFT JOIN {history} h ON h.map_id = g.map_id AND h.generation > ?
WHERE g.map_id = ? ORDER BY h.generation {limit}`
	var changes shardway.Changes
	known, whole := false, true // whole: nothing is missing so far
	seen := since               // the last generation with an entry, without a gap
	err := t.query(ctx, text, []any{since, int64(m.ID), maxChanges + 1}, func(rows *sql.Rows) error {
		known = true
		var generation sql.NullInt64
		var blob []byte
		if err := rows.Scan(&changes.Generation, &generation, &blob); err != nil {
			return err
		}
		if !generation.Valid || generation.Int64 > changes.Generation {
			return nil
		}
		ranges, only, err := decodeRanges(blob)
		if err != nil {
			return err
		}
		whole = whole && (only || len(ranges) > 0) && generation.Int64 <= seen+1
		seen = generation.Int64
		changes.Shards = changes.Shards || only
		changes.Ranges = append(changes.Ranges, ranges...)
		return nil
	})
	if err != nil {
		return shardway.Changes{}, err
	}
	if !known {
		return shardway.Changes{}, shardway.ErrMapNotFound
	}
	if !whole || seen != changes.Generation {
		return shardway.Changes{Generation: changes.Generation}, nil
	}
	changes.Complete = true
	return changes, nil
}

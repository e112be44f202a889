package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Local is the local store in a SQL database. It implements [store.Local] and
// is safe for concurrent use.
type Local struct {
	b       *database
	checked atomic.Bool // the store's version is one we know
}

var _ store.Local = (*Local)(nil)

// Close closes the pool.
func (l *Local) Close() error { return l.b.close() }

// Describe returns version and the id of the global store.
func (l *Local) Describe(ctx context.Context) (store.Description, error) {
	var d store.Description
	err := l.b.glance(ctx, func(t *transaction) error {
		var err error
		d, err = describe(ctx, t, "local", "local_store")
		return err
	})
	if err != nil {
		return store.Description{}, fmt.Errorf("describing local store: %w", err)
	}
	l.checked.Store(true)
	return d, nil
}

func (l *Local) ready(ctx context.Context) error {
	if l.checked.Load() {
		return nil
	}
	_, err := l.Describe(ctx)
	return err
}

// Deploy creates the tables when they are missing and binds them to a global store.
func (l *Local) Deploy(ctx context.Context, globalID string) error {
	if globalID == "" {
		return &shardway.ArgumentError{Argument: "global store id", Reason: "is empty"}
	}
	if err := l.deploy(ctx, globalID); err != nil {
		return fmt.Errorf("deploying local store: %w", err)
	}
	return nil
}

func (l *Local) deploy(ctx context.Context, globalID string) error {
	if err := l.b.create(); err != nil {
		return err
	}
	d, err := l.Describe(ctx)
	if err == nil || !errors.Is(err, shardway.ErrNoStore) {
		return cmp.Or(err, checkOwner(d, globalID))
	}
	return l.b.deploy(ctx, func(t *transaction) error {
		if err := t.each(ctx, t.b.d.Create(dialect.Local)); err != nil {
			return err
		}
		if err := t.finish(ctx, dialect.Local); err != nil {
			return err
		}
		there, err := describe(ctx, t, "local", "local_store")
		if err == nil || !errors.Is(err, shardway.ErrNoStore) {
			return cmp.Or(err, checkOwner(there, globalID))
		}
		_, err = t.exec(ctx, `INSERT INTO {local_store} (one_row, store_id, major, minor, forgotten_seq) VALUES (1, ?, ?, ?, 0)`,
			globalID, store.Current.Major, store.Current.Minor)
		return err
	})
}

func checkOwner(d store.Description, globalID string) error {
	if d.ID != globalID {
		return fmt.Errorf("database belongs to global store %s, not %s: %w", d.ID, globalID, shardway.ErrForeignStore)
	}
	return nil
}

// Read returns one consistent state, ordered by the bytes of the maps' names.
func (l *Local) Read(ctx context.Context, m shardway.MapID) ([]store.LocalMap, error) {
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	var maps []store.LocalMap
	err := l.b.read(ctx, func(t *transaction) error {
		if err := t.lock(ctx, localRoot, dialect.Shared, localRoot+" view", dialect.Shared); err != nil {
			return err
		}
		var err error
		maps, err = readLocal(ctx, t, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading local store: %w", err)
	}
	return maps, nil
}

func readLocal(ctx context.Context, t *transaction, m shardway.MapID) ([]store.LocalMap, error) {
	condition, args := `1 = 1`, []any(nil)
	if m != 0 {
		condition, args = `map_id = ?`, []any{int64(m)}
	}
	var maps []store.LocalMap
	err := t.query(ctx, `SELECT map_id, name, kind, key_kind FROM {local_shard_maps} WHERE `+condition, args, func(rows *sql.Rows) error {
		var v store.LocalMap
		err := rows.Scan(&v.Map.ID, &v.Map.Name, &v.Map.Kind, &v.Map.KeyKind)
		maps = append(maps, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(maps, func(a, b store.LocalMap) int { return strings.Compare(a.Map.Name, b.Map.Name) })
	for i := range maps {
		if err := readLocalMap(ctx, t, &maps[i]); err != nil {
			return nil, err
		}
	}
	return maps, nil
}

func readLocalMap(ctx context.Context, t *transaction, v *store.LocalMap) error {
	id := []any{int64(v.Map.ID)}
	err := t.query(ctx, `SELECT `+shardColumns+` FROM {local_shards} s WHERE s.map_id = ?`, id, func(rows *sql.Rows) error {
		var record shardRecord
		if err := rows.Scan(record.dest()...); err != nil {
			return err
		}
		var err error
		v.Shard, err = record.value()
		return err
	})
	if err != nil {
		return err
	}
	return t.query(ctx, `SELECT `+mappingRowColumns+` FROM {local_mappings} m WHERE m.map_id = ? ORDER BY m.low_key`, id, func(rows *sql.Rows) error {
		m := shardway.Mapping{MapID: v.Map.ID}
		var low, high sql.RawBytes
		if err := rows.Scan(&m.ID, &low, &high, &m.ShardID, &m.Status); err != nil {
			return err
		}
		var err error
		m.Range, err = decodeRange(v.Map.KeyKind, bytes.Clone(low), bytes.Clone(high))
		v.Mappings = append(v.Mappings, m)
		return err
	})
}

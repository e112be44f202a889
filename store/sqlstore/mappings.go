package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Mappings returns the mappings that q selects. Visible ones come in pages;
// pending ones, of which there are few, are read at once and merged in.
func (r *reader) Mappings(ctx context.Context, q store.MappingQuery) iter.Seq2[store.MappingRow, error] {
	return func(yield func(store.MappingRow, error) bool) {
		left := q.Limit
		for row, err := range r.merged(ctx, q) {
			if err != nil {
				yield(store.MappingRow{}, fmt.Errorf("reading mappings: %w", err))
				return
			}
			if !yield(row, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// merged merges visible and pending mappings, without the query's limit.
func (r *reader) merged(ctx context.Context, q store.MappingQuery) iter.Seq2[store.MappingRow, error] {
	return func(yield func(store.MappingRow, error) bool) {
		pending, err := r.pending(ctx, q)
		if err != nil {
			yield(store.MappingRow{}, err)
			return
		}
		for row, err := range r.visible(ctx, q) {
			for err == nil && len(pending) > 0 && pending[0].Range.Low.Compare(row.Range.Low) < 0 {
				if !yield(pending[0], nil) {
					return
				}
				pending = pending[1:]
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
		for _, row := range pending {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// pending returns the pending mappings that q selects, in key order.
func (r *reader) pending(ctx context.Context, q store.MappingQuery) ([]store.MappingRow, error) {
	s, err := newSelection(q)
	if err != nil {
		return nil, err
	}
	if !q.Within.Low.IsZero() {
		s.within(q.Within, nil) // of several operations, they may overlap
	}
	rows, err := r.rows(ctx, s, "pending_mappings", 0)
	for i := range rows {
		rows[i].Pending = true
	}
	return rows, err
}

// visible returns the visible mappings that q selects, in key order.
func (r *reader) visible(ctx context.Context, q store.MappingQuery) iter.Seq2[store.MappingRow, error] {
	return func(yield func(store.MappingRow, error) bool) {
		for {
			s, err := r.selection(ctx, q)
			size := r.pageSize(q.Limit)
			var page []store.MappingRow
			if err == nil {
				page, err = r.rows(ctx, s, "mappings", size)
			}
			if err != nil {
				yield(store.MappingRow{}, err)
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < size || len(q.IDs) > 0 {
				return
			}
			q.After = page[len(page)-1].Range.Low
		}
	}
}

// selection is a query as conditions on the table m. Ids are not among them.
type selection struct {
	m          shardway.ShardMap
	ids        []shardway.MappingID
	conditions []string
	args       []any
}

func (s *selection) add(condition string, args ...any) {
	s.conditions, s.args = append(s.conditions, condition), append(s.args, args...)
}

// newSelection turns all of a query but Within into conditions.
func newSelection(q store.MappingQuery) (*selection, error) {
	if q.Map.ID == 0 || !q.Map.KeyKind.Valid() {
		return nil, &shardway.ArgumentError{Argument: "map", Reason: "is missing"}
	}
	s := &selection{m: q.Map, ids: q.IDs}
	if len(q.IDs) > 0 || q.ShardID != 0 {
		s.add(notByMap+`m.map_id = ?`, int64(q.Map.ID))
	} else {
		s.add(`m.map_id = ?`, int64(q.Map.ID))
	}
	if q.ShardID != 0 {
		s.add(`m.shard_id = ?`, int64(q.ShardID))
	}
	if q.Status != nil {
		s.add(`m.status = ?`, int64(*q.Status))
	}
	if q.Token != "" {
		s.add(`m.lock_token = ?`, tokenBytes(q.Token))
	}
	if !q.After.IsZero() {
		s.add(`m.low_key > ?`, q.After.Encoded())
	}
	return s, nil
}

// notByMap stands before the map's column where mappings are found by their ids
// or by their shard. It takes that column from the planner: SQLite, which keeps
// no statistics, would rather read through all the map, once for every thousand
// ids, and PostgreSQL, as long as it has none of a map that was just filled, all
// of its index for every page of a shard.
const notByMap = `+`

// selection turns a query of visible mappings into conditions.
func (r *reader) selection(ctx context.Context, q store.MappingQuery) (*selection, error) {
	s, err := newSelection(q)
	if err != nil || q.Within.Low.IsZero() {
		return s, err
	}
	first := q.Within.Low.Encoded()
	if q.Map.Kind == shardway.RangeMap {
		first, err = r.before(ctx, q.Map.ID, first)
	}
	s.within(q.Within, first)
	return s, err
}

// before returns the low key of the last visible mapping that begins up to a
// key, or the key. In a range map only that one can reach into a range from
// before it, because they do not overlap: no scan from the map's beginning.
func (r *reader) before(ctx context.Context, m shardway.MapID, key []byte) ([]byte, error) {
	first := key
	_, err := r.t.one(ctx, `SELECT low_key FROM {mappings} WHERE map_id = ? AND low_key <= ? ORDER BY low_key DESC {first}`,
		[]any{int64(m), key}, &first)
	return first, err
}

// within restricts a selection to a range. In a range map first is where the
// first mapping may begin that reaches into it, nil when that is not known.
// Without it all the map before the range is read through: no index tells where
// ranges end.
func (s *selection) within(r shardway.Range, first []byte) {
	low := r.Low.Encoded()
	if !r.Open() {
		s.add(`m.low_key < ?`, r.High.Encoded())
	}
	if s.m.Kind == shardway.ListMap {
		s.add(`m.low_key >= ?`, low)
		return
	}
	s.add(`(m.high_key IS NULL OR m.high_key > ?)`, low)
	if first != nil {
		s.add(`m.low_key >= ?`, first)
	}
}

// rows reads at most size rows of a selection (0: all), in key order. One by
// ids is read whole, as many ids at a time as fit a statement.
func (r *reader) rows(ctx context.Context, s *selection, table string, size int) ([]store.MappingRow, error) {
	if len(s.ids) == 0 {
		return r.page(ctx, s, table, size)
	}
	var all []store.MappingRow
	for chunk := range slices.Chunk(s.ids, dialect.MaxAmong) {
		numbers := make([]int64, len(chunk))
		for i, id := range chunk {
			numbers[i] = int64(id)
		}
		condition, args := r.t.b.d.Among(`m.mapping_id`, numbers)
		some := *s
		some.conditions, some.args = slices.Clone(s.conditions), slices.Clone(s.args)
		some.add(condition, args...)
		page, err := r.page(ctx, &some, table, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	slices.SortFunc(all, func(a, b store.MappingRow) int { return a.Range.Low.Compare(b.Range.Low) })
	return slices.CompactFunc(all, func(a, b store.MappingRow) bool { return a.ID == b.ID }), nil // an id may be asked for twice
}

func (r *reader) page(ctx context.Context, s *selection, table string, size int) ([]store.MappingRow, error) {
	text := `SELECT ` + mappingColumns + `, m.op_id FROM {` + table + `} m WHERE ` + strings.Join(s.conditions, ` AND `) + ` ORDER BY m.low_key`
	args := s.args
	if size > 0 {
		text, args = text+` {limit}`, append(slices.Clone(args), size)
	}
	var page []store.MappingRow
	err := r.t.query(ctx, text, args, func(rows *sql.Rows) error {
		var record mappingRecord
		var row store.MappingRow
		if err := rows.Scan(append(record.dest(), &row.Operation)...); err != nil {
			return err
		}
		var err error
		row.Mapping, err = record.value(s.m)
		page = append(page, row)
		return err
	})
	return page, err
}

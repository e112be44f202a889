package sqlstore

import (
	"bytes"
	"cmp"
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

// Mappings returns the mappings that q selects, in pages.
func (r *reader) Mappings(ctx context.Context, q store.MappingQuery) iter.Seq2[store.MappingRow, error] {
	return func(yield func(store.MappingRow, error) bool) {
		fail := func(err error) { yield(store.MappingRow{}, fmt.Errorf("reading mappings: %w", err)) }
		if q.Map.ID == 0 || !q.Map.KeyKind.Valid() {
			fail(&shardway.ArgumentError{Argument: "map", Reason: "is missing"})
			return
		}
		s := selection{r: r, q: q}
		if err := s.prepare(ctx); err != nil {
			fail(err)
			return
		}
		for left := q.Limit; ; {
			size := pageSize(q.Limit, left)
			page, err := s.next(ctx, size)
			if err != nil {
				fail(err)
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			left -= len(page)
			if len(page) < size || q.Limit > 0 && left <= 0 {
				return
			}
		}
	}
}

// selection is a MappingQuery on its way through the pages.
type selection struct {
	r          *reader
	q          store.MappingQuery
	conditions []string
	args       []any
	// The last row handed out: the next page begins behind it.
	low     []byte
	pending int64
}

func (s *selection) add(condition string, args ...any) {
	s.conditions, s.args = append(s.conditions, condition), append(s.args, args...)
}

// prepare turns the query into conditions.
func (s *selection) prepare(ctx context.Context) error {
	q := &s.q
	s.add(`m.map_id = ?`, int64(q.Map.ID))
	if !q.Within.Low.IsZero() {
		if err := s.within(ctx); err != nil {
			return err
		}
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
	return nil
}

// within restricts to a range. In a range map, a mapping that begins before
// the range may reach into it; among the visible ones that can only be the
// last, because they do not overlap, so no scan from the map's beginning is
// needed. Pending ones are few and have an index.
func (s *selection) within(ctx context.Context) error {
	low, high := s.q.Within.Low.Encoded(), s.q.Within.High.Encoded()
	if high != nil {
		s.add(`m.low_key < ?`, high)
	}
	if s.q.Map.Kind == shardway.ListMap {
		s.add(`m.low_key >= ?`, low)
		return nil
	}
	first := low
	earlier := func(rows *sql.Rows) error {
		var begin []byte
		err := rows.Scan(&begin)
		if bytes.Compare(begin, first) < 0 {
			first = begin
		}
		return err
	}
	id := int64(s.q.Map.ID)
	err := s.r.t.query(ctx, `SELECT low_key FROM {mappings} WHERE map_id = ? AND low_key <= ? AND pending = 0 ORDER BY low_key DESC {first}`,
		[]any{id, low}, earlier)
	if err == nil {
		err = s.r.t.query(ctx, `SELECT low_key FROM {mappings} WHERE op_id > 0 AND map_id = ? AND pending = 1 AND low_key <= ? AND (high_key IS NULL OR high_key > ?)`,
			[]any{id, low, low}, earlier)
	}
	s.add(`m.low_key >= ? AND (m.high_key IS NULL OR m.high_key > ?)`, first, low)
	return err
}

// next reads at most size rows. A query by ids comes as one page when there
// are more ids than fit one statement.
func (s *selection) next(ctx context.Context, size int) ([]store.MappingRow, error) {
	if len(s.q.IDs) == 0 {
		return s.page(ctx, size, ``, nil)
	}
	var all []store.MappingRow
	for chunk := range slices.Chunk(s.q.IDs, dialect.MaxAmong) {
		numbers := make([]int64, len(chunk))
		for i, id := range chunk {
			numbers[i] = int64(id)
		}
		condition, args := s.r.t.b.d.Among(`m.mapping_id`, numbers)
		page, err := s.page(ctx, size, condition, args)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	slices.SortFunc(all, func(a, b store.MappingRow) int {
		return cmp.Or(a.Range.Low.Compare(b.Range.Low), compareBool(a.Pending, b.Pending))
	})
	if all = all[:min(len(all), size)]; len(all) > 0 {
		s.remember(all[len(all)-1])
	}
	return all, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (s *selection) remember(row store.MappingRow) {
	s.low, s.pending = row.Range.Low.Encoded(), 0
	if row.Pending {
		s.pending = 1
	}
}

func (s *selection) page(ctx context.Context, size int, condition string, more []any) ([]store.MappingRow, error) {
	conditions, args := slices.Clone(s.conditions), slices.Clone(s.args)
	if s.low != nil {
		conditions = append(conditions, `m.low_key >= ? AND (m.low_key > ? OR m.pending > ?)`)
		args = append(args, s.low, s.low, s.pending)
	}
	if condition != `` {
		conditions, args = append(conditions, condition), append(args, more...)
	}
	text := `SELECT ` + mappingColumns + `, m.op_id, m.pending FROM {mappings} m WHERE ` +
		strings.Join(conditions, ` AND `) + ` ORDER BY m.low_key, m.pending {limit}`
	var page []store.MappingRow
	err := s.r.t.query(ctx, text, append(args, size), func(rows *sql.Rows) error {
		var record mappingRecord
		var row store.MappingRow
		var pending int
		if err := rows.Scan(append(record.dest(), &row.Operation, &pending)...); err != nil {
			return err
		}
		mapping, err := record.value(s.q.Map)
		row.Mapping, row.Pending = mapping, pending != 0
		page = append(page, row)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(s.q.IDs) == 0 && len(page) > 0 {
		s.remember(page[len(page)-1])
	}
	return page, nil
}

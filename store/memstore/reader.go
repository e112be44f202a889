package memstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// reader is a [store.Reader] of one state.
type reader struct{ *state }

// ShardMaps returns all maps, ordered by name.
func (r reader) ShardMaps(ctx context.Context) ([]shardway.ShardMap, error) {
	var all []shardway.ShardMap
	for _, m := range r.maps {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b shardway.ShardMap) int { return strings.Compare(a.Name, b.Name) })
	return all, ctx.Err()
}

// Shards returns the shards of a map, or of all maps, ordered by name.
func (r reader) Shards(ctx context.Context, m shardway.MapID) ([]store.ShardRow, error) {
	var rows []store.ShardRow
	for _, row := range r.shards {
		if m == 0 || row.MapID == m {
			row.Shard = copyShard(row.Shard)
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b store.ShardRow) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return rows, ctx.Err()
}

// Mappings returns the mappings that q selects, ordered by low key; of two
// with the same low key the pending one comes last.
func (r reader) Mappings(ctx context.Context, q store.MappingQuery) iter.Seq2[store.MappingRow, error] {
	return func(yield func(store.MappingRow, error) bool) {
		rows := r.selectMappings(q)
		for i, row := range rows {
			if err := ctx.Err(); err != nil {
				yield(store.MappingRow{}, err)
				return
			}
			if q.Limit > 0 && i == q.Limit || !yield(row, nil) {
				return
			}
		}
	}
}

func (s *state) selectMappings(q store.MappingQuery) []store.MappingRow {
	ids := make(map[shardway.MappingID]bool, len(q.IDs))
	for _, id := range q.IDs {
		ids[id] = true
	}
	var rows []store.MappingRow
	for id, row := range s.mappings {
		if row.MapID == q.Map.ID && (len(ids) == 0 || ids[id]) && matches(&row, &q) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b store.MappingRow) int {
		return cmp.Or(a.Range.Low.Compare(b.Range.Low), compareBool(a.Pending, b.Pending), cmp.Compare(a.ID, b.ID))
	})
	return rows
}

// matches reports whether all but map, ids and limit of q hold for a row.
func matches(row *store.MappingRow, q *store.MappingQuery) bool {
	switch {
	case q.Within != shardway.Range{} && !within(row.Range, q.Within, q.Map.Kind):
	case q.ShardID != 0 && row.ShardID != q.ShardID:
	case q.Status != nil && row.Status != *q.Status:
	case q.Token != "" && row.Lock.Token != q.Token:
	case !q.After.IsZero() && row.Range.Low.Compare(q.After) <= 0:
	default:
		return true
	}
	return false
}

func within(r, window shardway.Range, kind shardway.MapKind) bool {
	if kind == shardway.ListMap {
		return window.Contains(r.Low)
	}
	return window.Intersects(r)
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

// Operations returns the pending operations that q selects, oldest first.
func (r reader) Operations(ctx context.Context, q store.OperationQuery) ([]store.Operation, error) {
	var all []store.Operation
	for _, o := range r.operations {
		if (q.ID == 0 || o.ID == q.ID) && (q.Map == 0 || o.Map.ID == q.Map) {
			all = append(all, copyOperation(o))
		}
	}
	slices.SortFunc(all, func(a, b store.Operation) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, ctx.Err()
}

// History returns the entries that q selects, newest first.
func (r reader) History(ctx context.Context, q store.HistoryQuery) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for _, e := range slices.Backward(r.history) {
			if err := ctx.Err(); err != nil {
				yield(store.Entry{}, err)
				return
			}
			if q.Operation != 0 && e.Operation != q.Operation || q.Map != 0 && e.MapID != q.Map {
				continue
			}
			if q.Limit > 0 && n == q.Limit || !yield(copyEntry(e), nil) {
				return
			}
			n++
		}
	}
}

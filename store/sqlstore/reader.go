package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// pageRows is how many rows are held in memory while an iterator hands them
// out. The session is free between two pages and during each, so that a loop
// body may read too.
const pageRows = 5000

// reader implements store.Reader on a transaction.
type reader struct{ t *transaction }

// ShardMaps returns all maps, ordered by the bytes of their names.
func (r *reader) ShardMaps(ctx context.Context) ([]shardway.ShardMap, error) {
	var maps []shardway.ShardMap
	err := r.t.query(ctx, `SELECT `+mapColumns+` FROM {shard_maps}`, nil, func(rows *sql.Rows) error {
		m, err := scanMap(rows)
		maps = append(maps, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading shard maps: %w", err)
	}
	slices.SortFunc(maps, func(a, b shardway.ShardMap) int { return strings.Compare(a.Name, b.Name) })
	return maps, nil
}

// Shards returns shards, ordered by the bytes of their names.
func (r *reader) Shards(ctx context.Context, m shardway.MapID) ([]store.ShardRow, error) {
	condition, args := `1 = 1`, []any(nil)
	if m != 0 {
		condition, args = `s.map_id = ?`, []any{int64(m)}
	}
	rows, err := r.shards(ctx, condition, args...)
	if err != nil {
		return nil, fmt.Errorf("reading shards: %w", err)
	}
	return rows, nil
}

func (r *reader) shards(ctx context.Context, condition string, args ...any) ([]store.ShardRow, error) {
	var shards []store.ShardRow
	err := r.t.query(ctx, `SELECT `+shardColumns+`, s.op_id, s.pending FROM {shards} s WHERE `+condition, args, func(rows *sql.Rows) error {
		var record shardRecord
		var row store.ShardRow
		var pending int
		if err := rows.Scan(append(record.dest(), &row.Operation, &pending)...); err != nil {
			return err
		}
		shard, err := record.value()
		row.Shard, row.Pending = shard, pending != 0
		shards = append(shards, row)
		return err
	})
	slices.SortFunc(shards, func(a, b store.ShardRow) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return shards, err
}

// Operations returns pending operations, oldest first.
func (r *reader) Operations(ctx context.Context, q store.OperationQuery) ([]store.Operation, error) {
	conditions, args := []string{`1 = 1`}, []any(nil)
	if q.ID != 0 {
		conditions, args = append(conditions, `op_id = ?`), append(args, int64(q.ID))
	}
	if q.Map != 0 {
		conditions, args = append(conditions, `map_id = ?`), append(args, int64(q.Map))
	}
	var operations []store.Operation
	err := r.t.query(ctx, `SELECT op_id, seq, kind, who, reason, summary, started, epoch, owner, lease_until FROM {operations} WHERE `+
		strings.Join(conditions, ` AND `)+` ORDER BY seq`, args, func(rows *sql.Rows) error {
		var o store.Operation
		var started, lease int64
		err := rows.Scan(&o.ID, &o.Seq, &o.Kind, &o.Who, &o.Reason, &o.Summary, &started, &o.Epoch, &o.Owner, &lease)
		o.Started, o.LeaseUntil = instant(started), instant(lease)
		operations = append(operations, o)
		return err
	})
	for i := range operations {
		if err == nil {
			err = r.body(ctx, &operations[i])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading operations: %w", err)
	}
	return operations, nil
}

// body reads an operation's map and steps.
func (r *reader) body(ctx context.Context, o *store.Operation) error {
	var body strings.Builder
	err := r.t.query(ctx, `SELECT body FROM {operation_parts} WHERE op_id = ? ORDER BY part`, []any{int64(o.ID)}, func(rows *sql.Rows) error {
		var part sql.RawBytes
		if err := rows.Scan(&part); err != nil {
			return err
		}
		body.Write(part)
		return nil
	})
	if err != nil {
		return err
	}
	return decodeBody(body.String(), o)
}

// History returns entries, newest first.
func (r *reader) History(ctx context.Context, q store.HistoryQuery) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		below, size := int64(0), r.pageSize(q.Limit)
		for left := q.Limit; ; {
			page, last, err := r.historyPage(ctx, q, below, size)
			if err != nil {
				yield(store.Entry{}, fmt.Errorf("reading history: %w", err))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) < size {
				return
			}
			below = last
		}
	}
}

// pageSize is how many rows to read at a time: limit 0 is no limit.
func (r *reader) pageSize(limit int) int {
	if limit <= 0 {
		return r.t.b.page
	}
	return min(limit, r.t.b.page)
}

func (r *reader) historyPage(ctx context.Context, q store.HistoryQuery, below int64, size int) (page []store.Entry, last int64, err error) {
	conditions, args := []string{`1 = 1`}, []any(nil)
	add := func(condition string, arg int64) {
		conditions, args = append(conditions, condition), append(args, arg)
	}
	if q.Operation != 0 {
		add(`op_id = ?`, int64(q.Operation))
	}
	if q.Map != 0 {
		add(`map_id = ?`, int64(q.Map))
	}
	if below != 0 {
		add(`entry_id < ?`, below)
	}
	text := `SELECT entry_id, op_id, made_at, map_id, map_name, kind, outcome, who, reason, summary, generation, ranges
FROM {history} WHERE ` + strings.Join(conditions, ` AND `) + ` ORDER BY entry_id DESC {limit}`
	err = r.t.query(ctx, text, append(args, size), func(rows *sql.Rows) error {
		var e store.Entry
		var at int64
		var ranges []byte
		err := rows.Scan(&last, &e.Operation, &at, &e.MapID, &e.MapName, &e.Kind, &e.Outcome, &e.Who, &e.Reason, &e.Summary, &e.Generation, &ranges)
		if err != nil {
			return err
		}
		e.At = instant(at)
		e.Ranges, e.ShardsOnly, err = decodeRanges(ranges)
		page = append(page, e)
		return err
	})
	return page, last, err
}

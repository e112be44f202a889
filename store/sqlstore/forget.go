package sqlstore

import (
	"context"
	"database/sql"
)

// A local store is this far behind the horizon of the steps that it takes
// before it forgets, so that most steps need not, and then forgets so many
// operations with one step at most.
const (
	forgetBehind = 64
	forgetAtOnce = 1000
)

// keepOperations is how many operations that changed nothing a local store
// remembers when steps come without a horizon. Those that changed rows are not
// forgotten by them: only the global store knows whether they have ended, and
// until then they may have to be taken back.
const keepOperations = 1000

// forgetBelow drops operations below the horizon, the oldest ones first, and
// remembers how far it went. None of them is ever applied again, those of which
// this store has never heard included.
func forgetBelow(ctx context.Context, t *transaction, horizon, forgotten int64) error {
	if horizon-1-forgotten < forgetBehind {
		return nil
	}
	var ended []int64
	upTo := forgotten
	err := t.query(ctx, `SELECT op_id, seq FROM {local_operations} WHERE seq < ? ORDER BY seq {limit}`, []any{horizon, forgetAtOnce}, func(rows *sql.Rows) error {
		var id, seq int64
		err := rows.Scan(&id, &seq)
		ended, upTo = append(ended, id), max(upTo, seq)
		return err
	})
	if err != nil {
		return err
	}
	if len(ended) < forgetAtOnce {
		upTo = horizon - 1
	}
	if _, err := t.execAmong(ctx, `DELETE FROM {local_operations} WHERE `, nil, `op_id`, ended); err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE {local_store} SET forgotten_seq = ? WHERE one_row = 1`, upTo)
	return err
}

// forget drops the oldest operations that changed nothing and remembers how
// far it went.
func forget(ctx context.Context, t *transaction, forgotten int64) error {
	var known, seq int64
	if _, err := t.one(ctx, `SELECT COUNT(*), COALESCE(MIN(seq), 0) FROM {local_operations} WHERE state <> 2`, nil, &known, &seq); err != nil {
		return err
	}
	if known <= keepOperations {
		return nil
	}
	if _, err := t.exec(ctx, `DELETE FROM {local_operations} WHERE state <> 2 AND seq <= ?`, seq); err != nil {
		return err
	}
	_, err := t.exec(ctx, `UPDATE {local_store} SET forgotten_seq = ? WHERE one_row = 1`, max(seq, forgotten))
	return err
}

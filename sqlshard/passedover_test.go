package sqlshard_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// A body that passes over a deadlock. MySQL and MariaDB have rolled back its
// transaction by then, and the fence with it, and would keep what follows at
// once: nothing more is sent, nothing is kept, and the unit is done again.
func TestPassedOverDeadlock(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EngineMySQL)
	db := r.open(sqlshard.Config{}).WithRetry(quick)
	pool := r.dbs["a"].Open(t)
	exec(t, pool, "INSERT INTO item (id, name) VALUES (1, 'x'), (2, 'x')")
	for _, prepared := range []bool{false, true} {
		attempts := 0
		err := db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
			if attempts++; attempts > 1 {
				return nil
			}
			after, err := tx.PrepareContext(ctx, "INSERT INTO item (id, name) VALUES (9, 'after')")
			if err != nil {
				return err
			}
			defer after.Close()
			loseDeadlock(t, pool, tx)
			if prepared {
				_, err = after.ExecContext(ctx)
			} else {
				_, err = tx.ExecContext(ctx, "INSERT INTO item (id, name) VALUES (9, 'after')")
			}
			if err == nil {
				t.Error("a statement was sent after the end of its transaction")
			}
			return nil
		})
		if err != nil || attempts != 2 || r.items("a") != 2 {
			t.Errorf("prepared %t: %v after %d attempts, %d rows, want 2", prepared, err, attempts, r.items("a"))
		}
		quiet(t, db)
	}
}

// loseDeadlock makes a transaction the one that a deadlock ends: the other one
// has written more.
func loseDeadlock(t *testing.T, pool *sql.DB, tx *sql.Tx) {
	t.Helper()
	other, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback() // that is what is meant
	for id := range 50 {
		exec(t, other, fmt.Sprintf("INSERT INTO item (id, name) VALUES (%d, 'heavy')", 5000+id))
	}
	exec(t, other, "UPDATE item SET name = 'other' WHERE id = 2")
	exec(t, tx, "UPDATE item SET name = 'mine' WHERE id = 1")
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), "UPDATE item SET name = 'other' WHERE id = 1")
		done <- err
	}()
	if _, err := tx.ExecContext(t.Context(), "UPDATE item SET name = 'mine' WHERE id = 2"); err == nil {
		t.Error("there was no deadlock")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

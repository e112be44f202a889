package pgxshard_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/store"
)

// Taking a mapping offline by force ends the transaction and the session given
// out for it, which learn why; a session of another mapping of the same database
// does not notice.
func TestDrained(t *testing.T) {
	t.Parallel()
	r := newEmptyRig(t)
	r.addShard("a")
	r.addRange("a", 0, 10)
	r.addRange("a", 10, 20)
	db := r.open(pgxshard.Config{Retry: quick})
	ctx := t.Context()
	mine, err := db.Acquire(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Release()
	other, err := db.Acquire(ctx, 15)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	runs := 0
	err = db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if runs++; runs == 1 {
			if _, err := tx.Exec(ctx, "UPDATE item SET n = n + 1"); err != nil {
				return err
			}
			offline := shardway.Offline
			r.do(catalog.UpdateMapping{Mapping: r.mapping(5), Status: &offline, Drain: store.Drain{Mode: store.DrainAtOnce}})
		}
		return second(tx.Exec(ctx, "UPDATE item SET n = n + 1"))
	})
	var moved *shardway.MovedError
	if !errors.As(err, &moved) || moved.Shard != "a" || !errors.Is(err, shardway.ErrStale) || retry.Classify(err) == retry.CommitUnknown || runs != 1 {
		t.Errorf("the transaction: %v after %d runs", err, runs)
	}
	if n := r.one("a", "SELECT n FROM item"); n != 0 {
		t.Errorf("%d writes are kept", n)
	}
	if _, err := mine.Exec(ctx, "SELECT 1"); !errors.As(err, &moved) {
		t.Errorf("the session given out: %v", err)
	}
	if _, err := other.Exec(ctx, "SELECT 1"); err != nil {
		t.Errorf("the session of another mapping: %v", err)
	}
}

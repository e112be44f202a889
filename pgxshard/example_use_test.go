package pgxshard_test

import (
	"testing"

	"github.com/shardway/shardway/pgxshard"
)

// What the documentation shows works.
func TestDocumented(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("a", "CREATE TABLE customer (id bigint PRIMARY KEY, name text, visits bigint NOT NULL DEFAULT 0, parent bigint)")
	r.exec("a", "CREATE TABLE purchase (id bigint PRIMARY KEY, amount bigint)")
	r.exec("a", "INSERT INTO customer (id, parent) VALUES (42, NULL), (43, 42)")
	db := r.open(pgxshard.Config{})
	ctx := t.Context()
	if err := rename(ctx, db, 42, "Anna"); err != nil {
		t.Error(err)
	}
	if err := rename(ctx, db, 44, "Bert"); err == nil {
		t.Error("a customer that is not there was renamed")
	}
	if n, err := visit(ctx, db, 42); err != nil || n != 1 {
		t.Errorf("%d visits, %v", n, err)
	}
	if n, err := imported(ctx, db, 42, [][]any{{1, 10}, {2, 20}}); err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := behindPgBouncer(r.handle(), r.login); err != nil {
		t.Error(err)
	}
	if _, err := openCustomers(r.handle(), "secret", nil); err != nil {
		t.Error(err)
	}
}

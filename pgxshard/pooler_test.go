package pgxshard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/retry"
)

// pooled is a rig whose shards are reached through PgBouncer in transaction mode,
// with fewer sessions than clients, so that each transaction may have another one.
func pooled(t *testing.T) *rig {
	t.Helper()
	p := dbtest.NewPgBouncer(t, dbtest.Postgres(t), dbtest.PgBouncerOptions{Settings: []string{"default_pool_size=2"}})
	r := newEmptyRig(t)
	r.source.at = func(l shardway.Location) shardway.Location { // the catalog's own way is direct
		l.Servers = []shardway.Server{{Address: p.Addr()}}
		return l
	}
	r.addShard("a")
	r.addShard("b")
	return r
}

// Behind a transaction pooler all kinds of statements and transactions keep
// their promises, in every exec mode that a pooler lets through.
func TestPooler(t *testing.T) { //nolint:tparallel // the kinds leave their traces in turn
	t.Parallel()
	r := pooled(t)
	key := int64(0)
	for _, mode := range []pgx.QueryExecMode{0, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} { //nolint:paralleltest // see above
		cfg := pgxshard.Config{Pooler: true}
		if mode != 0 {
			cfg.Configure = withMode(mode)
		}
		db := r.open(cfg)
		for name, run := range kinds {
			if name == "held" || name == "create index concurrently" && mode == 0 {
				continue
			}
			key += 10
			r.addRange("a", key, key+10)
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				testKind(t, r, db, key, func() error { return run(t.Context(), db, key) })
			})
		}
	}
}

// Many clients on two sessions each: transactions do not mix, and no write is
// lost. Sessions have no tags, which would stay with others.
func TestPoolerTransactions(t *testing.T) {
	t.Parallel()
	r := pooled(t)
	r.addRange("a", 0, 10)
	db := r.open(pgxshard.Config{Pooler: true})
	var all sync.WaitGroup
	const clients, each = 8, 20
	for range clients {
		all.Go(func() {
			for range each {
				err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
					var tag string
					if err := tx.QueryRow(ctx, "SELECT current_setting('application_name')").Scan(&tag); err != nil {
						return err
					}
					if strings.HasPrefix(tag, "shardway:") {
						t.Errorf("the session is tagged %q", tag)
					}
					return second(tx.Exec(ctx, "UPDATE item SET n = n + 1"))
				})
				if err == nil {
					_, err = db.Exec(t.Context(), 5, "UPDATE item SET n = n + $1", 1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := r.one("a", "SELECT n FROM item"); n != 2*clients*each {
		t.Errorf("%d writes, want %d", n, 2*clients*each)
	}
}

// A session cannot be held behind a transaction pooler, whether that is known
// from the configuration or not; directly it can.
func TestHoldBehindPooler(t *testing.T) {
	t.Parallel()
	r := pooled(t)
	r.addRange("a", 0, 10)
	for _, known := range []bool{true, false} {
		db := r.open(pgxshard.Config{Pooler: known, Configure: withMode(pgx.QueryExecModeExec)})
		conn, err := db.Hold(t.Context(), 5)
		if err == nil {
			conn.Release()
		}
		refused(t, err, shardway.ErrInvalid)
		if !strings.Contains(err.Error(), "pooler") {
			t.Errorf("known %v: %v", known, err)
		}
	}
	if n := r.one("a", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
		t.Errorf("%d locks of holders are left", n)
	}
}

// A pooler that loses its server while a write is on its way does not have the
// write done twice (RTRY-01).
func TestPoolerLosesServer(t *testing.T) {
	t.Parallel()
	r := pooled(t)
	r.addRange("a", 0, 10)
	db := r.open(pgxshard.Config{Pooler: true, Retry: retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}})
	acknowledged, unknown := int64(0), int64(0)
	for range 40 {
		_, err := db.Exec(t.Context(), 5, "UPDATE item SET n = n + 1 WHERE CASE WHEN random() < 0.3 THEN pg_terminate_backend(pg_backend_pid()) ELSE true END")
		switch {
		case err == nil:
			acknowledged++
		case retry.Classify(err) == retry.CommitUnknown, errors.Is(err, shardway.ErrUnavailable):
			unknown++
		default:
			t.Fatalf("%v is a %v", err, retry.Classify(err))
		}
	}
	n := r.one("a", "SELECT n FROM item")
	if n < acknowledged || n > acknowledged+unknown {
		t.Errorf("%d writes, %d acknowledged, %d unknown", n, acknowledged, unknown)
	}
}

package pgxshard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/retry"
)

// quick repeats without long pauses.
var quick = retry.Policy{Backoff: retry.Backoff{Initial: time.Millisecond, Step: time.Millisecond}, MaxAttempts: 5}

// proxied is a rig whose shards are reached through a proxy.
func proxied(t *testing.T) (*rig, *faultconn.Proxy) {
	t.Helper()
	proxy := faultconn.New(t, dbtest.Postgres(t).Addr())
	r := newRig(t)
	r.source.at = through(proxy)
	return r, proxy
}

// kill ends the sessions of a shard's database other than the administrator's,
// and waits until they are gone.
func (r *rig) kill(shard string) {
	r.t.Helper()
	const others = " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
	r.exec(shard, "SELECT pg_terminate_backend(pid)"+others)
	eventually(r.t, "sessions ended", func() bool { return r.one(shard, "SELECT count(*)"+others) == 0 })
}

// RTRY-02: a session that the server has closed while it was idle is found out
// before anything is sent on it.
func TestDeadIdleSession(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			db := r.open(pgxshard.Config{Configure: withMode(mode), Retry: retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}})
			for name, run := range kinds {
				for range 2 {
					if err := run(t.Context(), db, 5); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					r.kill("a")
				}
			}
		})
	}
}

// The connection breaks while a statement is on its way: it ran once or not at
// all, the error says that nobody knows, and nothing is sent twice (RTRY-01).
func TestCutDuringStatement(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	db := r.open(pgxshard.Config{})
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := db.Exec(t.Context(), 5, "UPDATE item SET n = n + 1 WHERE pg_sleep(0.2) IS NOT NULL")
		done <- err
	}()
	eventually(t, "the statement runs", func() bool {
		return r.one("a", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UPDATE item%' AND state = 'active'") == 1
	})
	proxy.Cut()
	err := <-done
	if retry.Classify(err) != retry.CommitUnknown {
		t.Errorf("%v is a %v, want unknown", err, retry.Classify(err))
	}
	eventually(t, "the statement ends", func() bool {
		return r.one("a", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UPDATE item%' AND state = 'active'") == 0
	})
	if n := r.one("a", "SELECT n FROM item"); n > 1 {
		t.Errorf("it ran %d times", n)
	}
	_, err = db.Exec(t.Context(), 5, "UPDATE item SET n = n + 1")
	refused(t, err, shardway.ErrUnavailable)
	proxy.Restore()
	if _, err = db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Errorf("after the proxy came back: %v", err)
	}
}

// A transaction whose connection breaks before its commit was sent is done again
// as a whole; the body learns the number of the attempt (RTRY-05).
func TestCutInTransaction(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	db := r.open(pgxshard.Config{Retry: quick})
	var attempts []int
	err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		attempts = append(attempts, retry.AttemptNumber(ctx))
		_, err := tx.Exec(ctx, "UPDATE item SET n = n + $1", 1)
		if err == nil && len(attempts) < 3 {
			proxy.Cut()
			proxy.Restore()
			_, err = tx.Exec(ctx, "SELECT 1")
		}
		return err
	})
	if err != nil || len(attempts) != 3 || attempts[2] != 3 {
		t.Errorf("%v after attempts %v", err, attempts)
	}
	if n := r.one("a", "SELECT n FROM item"); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

// RTRY-09: the answer to a commit is lost. The body is not run again, and the
// error says that the outcome is unknown, unless the caller can find out.
func TestCommitAnswerLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		applied func(ctx context.Context) (bool, error)
		want    error
	}{
		"nobody knows":  {nil, retry.ErrCommitUnknown},
		"it was":        {func(context.Context) (bool, error) { return true, nil }, nil},
		"the end of it": {func(context.Context) (bool, error) { return false, errors.New("no") }, retry.ErrCommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, proxy := proxied(t)
			policy := quick
			policy.Applied = c.applied
			db := r.open(pgxshard.Config{Retry: policy})
			runs := 0
			err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				runs++
				_, err := tx.Exec(ctx, "UPDATE item SET n = n + 1")
				proxy.BlackHole() // the commit does not arrive either
				time.AfterFunc(50*time.Millisecond, proxy.Cut)
				return err
			})
			if !errors.Is(err, c.want) || runs != 1 {
				t.Errorf("%v after %d runs, want %v after 1", err, runs, c.want)
			}
			if n := r.one("a", "SELECT n FROM item"); n > 1 {
				t.Errorf("%d writes", n)
			}
		})
	}
}

// Faults that take the transaction back are repeated as a whole: a deadlock, a
// serialization failure, a lock that was not had in time.
func TestTransientFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{Retry: quick})
	for _, code := range []string{"40P01", "40001", "55P03"} {
		runs := 0
		err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			if runs++; runs < 3 {
				_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '"+code+"'; END $$")
				return err
			}
			return second(tx.Exec(ctx, "UPDATE item SET n = n + 1"))
		})
		if err != nil || runs != 3 {
			t.Errorf("%s: %v after %d runs", code, err, runs)
		}
	}
	if n := r.one("a", "SELECT n FROM item"); n != 3 {
		t.Errorf("%d writes, want 3", n)
	}
	runs := 0
	err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		runs++
		return second(tx.Exec(ctx, "INSERT INTO item (id) VALUES (0)"))
	})
	if runs != 1 || err == nil || !strings.Contains(err.Error(), "23505") {
		t.Errorf("a fault that stays: %v after %d runs", err, runs)
	}
}

// A server that is away: the first attempt and those of the budget, and no more.
func TestOutageBudget(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	policy := quick
	policy.Budget = &retry.Budget{}
	tries := 0
	policy.OnAttempt = func(retry.Attempt) { tries++ }
	db := r.open(pgxshard.Config{Retry: policy})
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	const units = 200
	for range units {
		err := db.InTx(t.Context(), 5, pgx.TxOptions{}, func(context.Context, pgx.Tx) error { return nil })
		if !errors.Is(err, shardway.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if tries > units+units/10 {
		t.Errorf("%d attempts of %d units: more than a tenth on top", tries, units)
	}
}

// RTRY-04: a caller who gives up is no fault of the server.
func TestCancelledCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Exec(ctx, 5, "UPDATE item SET n = n + 1"); !errors.Is(err, context.Canceled) {
		t.Errorf("before: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := db.Exec(ctx, 5, "SELECT pg_sleep(60)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("meanwhile: %v", err)
	}
	runs := 0
	ctx, cancel = context.WithCancel(t.Context())
	err := db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(ctx, "UPDATE item SET n = n + 1")
		cancel()
		return err
	})
	if !errors.Is(err, context.Canceled) || runs != 1 {
		t.Errorf("before the commit: %v after %d runs", err, runs)
	}
	if n := r.one("a", "SELECT n FROM item"); n != 0 {
		t.Errorf("%d writes were committed", n)
	}
	if err := query(db.QueryRow(t.Context(), 5, "SELECT 1")); err != nil {
		t.Error(err)
	}
}

// A session that was closed while it was idle, without a word of the server's, is
// found out too: else nobody knew what became of a write sent on it.
func TestClosedIdleSession(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	db := r.open(pgxshard.Config{Retry: retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}})
	for name, run := range kinds {
		for range 2 {
			if err := run(t.Context(), db, 5); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			proxy.Cut()
			eventually(t, "sessions closed", func() bool { return proxy.Live() == 0 })
			proxy.Restore()
		}
	}
}

package sqlshard_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/sqlshard"
)

// quick is a policy for faults that end at once.
var quick = retry.Policy{Backoff: retry.Backoff{Schedule: retry.Fixed, Initial: 2 * time.Millisecond}, MaxAttempts: 20}

// has reports whether the row of a unit is there, as an administrator sees it.
func (r *rig) has(pool *sql.DB, id int64) (found bool) {
	r.t.Helper()
	var n int
	if err := pool.QueryRow("SELECT COUNT(*) FROM item WHERE id = "+r.placeholder(), id).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n == 1
}

// RTRY-01, RTRY-02, RTRY-09: the connection is cut before the transaction,
// within it, before its commit and after it. What was not asked to be kept is
// done again and once; of a commit without an answer nobody knows, unless the
// caller can find out.
func TestCutUnit(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		admin := r.dbs["a"].Open(t)
		db := r.open(sqlshard.Config{})
		_ = opened(t, db, 7, "a").Close()
		id := int64(0)
		for _, c := range []struct {
			name    string
			before  func()                                                // the unit
			within  func(ctx context.Context, tx *sql.Tx, id int64)       // after its statement, in the first attempt
			unknown bool                                                  // nobody can know the outcome
			kept    bool                                                  // after the first attempt
			again   func(ctx context.Context, tx *sql.Tx, id int64) error // a statement after the cut
		}{
			{name: "before BEGIN", before: func() { proxy.Cut(); proxy.Restore() }},
			{name: "within", within: func(context.Context, *sql.Tx, int64) { proxy.Cut() }, again: func(ctx context.Context, tx *sql.Tx, _ int64) error {
				_, err := tx.ExecContext(ctx, "UPDATE item SET name = 'x' WHERE id = -7")
				return err
			}},
			{name: "before COMMIT", within: func(context.Context, *sql.Tx, int64) { proxy.Cut() }, unknown: true},
			{name: "before the answer to COMMIT", within: func(ctx context.Context, _ *sql.Tx, id int64) {
				proxy.Delay(150 * time.Millisecond) // the answer leaves the server, and comes no further
				context.AfterFunc(ctx, proxy.Restore)
				go func() {
					eventually(t, "the commit takes place", func() bool { return r.has(admin, id) })
					proxy.Cut()
				}()
			}, unknown: true, kept: true},
		} {
			for _, asks := range []bool{false, true} {
				id++
				unit := id
				attempts := 0
				options := &sqlshard.TxOptions{}
				if asks {
					options.Applied = func(context.Context) (bool, error) { return r.has(admin, unit), nil }
				}
				policy := quick
				policy.OnAttempt = func(retry.Attempt) { proxy.Restore() }
				if c.before != nil {
					c.before()
				}
				err := db.WithRetry(policy).InTx(t.Context(), 7, options, func(ctx context.Context, tx *sql.Tx) error {
					if attempts++; attempts != retry.AttemptNumber(ctx) {
						t.Errorf("%s: attempt %d says it is %d", c.name, attempts, retry.AttemptNumber(ctx))
					}
					if err := r.adds(unit)(ctx, tx); err != nil {
						return err
					}
					if attempts == 1 && c.within != nil {
						c.within(ctx, tx, unit)
						if c.again != nil {
							return c.again(ctx, tx, unit)
						}
					}
					return nil
				})
				proxy.Restore()
				switch {
				case c.unknown && !asks && err == nil: // the driver saw that the commit was not sent
					if c.kept || attempts != 2 || !r.has(admin, unit) {
						t.Errorf("%s: %d attempts, kept %v", c.name, attempts, r.has(admin, unit))
					}
				case c.unknown && !asks:
					if !errors.Is(err, retry.ErrCommitUnknown) || attempts != 1 || r.has(admin, unit) != c.kept {
						t.Errorf("%s: %d attempts, kept %v: %v", c.name, attempts, r.has(admin, unit), err)
					}
				case err != nil || !r.has(admin, unit):
					t.Errorf("%s, asking %v: %d attempts, kept %v: %v", c.name, asks, attempts, r.has(admin, unit), err)
				case c.kept && attempts != 1:
					t.Errorf("%s: what was kept was done %d times", c.name, attempts)
				}
			}
		}
		quiet(t, db)
	})
}

// Two units that lock each other out are both done in the end, and once.
func TestDeadlockedUnits(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		exec(t, r.dbs["a"].Open(t), "CREATE TABLE counter (id bigint PRIMARY KEY, n bigint)")
		exec(t, r.dbs["a"].Open(t), "INSERT INTO counter (id, n) VALUES (1, 0), (2, 0)")
		db := r.open(sqlshard.Config{}).WithRetry(quick)
		var both, wg sync.WaitGroup
		both.Add(2)
		var attempts atomic.Int64
		for _, order := range [][2]int64{{1, 2}, {2, 1}} {
			wg.Go(func() {
				err := db.InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
					attempts.Add(1)
					for i, id := range order {
						if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = n + 1 WHERE id = "+r.placeholder(), id); err != nil {
							return err
						}
						if i == 0 && retry.AttemptNumber(ctx) == 1 {
							both.Done()
							both.Wait()
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var sum int
		if err := r.dbs["a"].Open(t).QueryRow("SELECT SUM(n) FROM counter").Scan(&sum); err != nil || sum != 4 || attempts.Load() < 3 {
			t.Errorf("counted to %d in %d attempts, %v", sum, attempts.Load(), err)
		}
		quiet(t, db)
	})
}

// A lock that was not granted in time is asked for again by the whole unit.
func TestLockTimeoutOfUnit(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		other, err := r.dbs["a"].Open(t).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback() // over by then
		exec(t, other, "UPDATE item SET name = 'locked' WHERE id = 0")
		policy := quick
		var classes []retry.Class
		policy.OnAttempt = func(a retry.Attempt) {
			classes = append(classes, a.Class)
			_ = other.Rollback()
		}
		db := r.open(sqlshard.Config{})
		err = db.WithRetry(policy).InTx(t.Context(), 7, nil, func(ctx context.Context, tx *sql.Tx) error {
			patience := map[dbtest.Engine]string{dbtest.EnginePostgres: "SET LOCAL lock_timeout = '20ms'", dbtest.EngineMySQL: "SET innodb_lock_wait_timeout = 0"}[e]
			if _, err := tx.ExecContext(ctx, patience); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE item SET name = 'mine' WHERE id = 0")
			return err
		})
		if err != nil || len(classes) != 2 || classes[0] != retry.Transient {
			t.Errorf("got %v after attempts of class %v", err, classes)
		}
		quiet(t, db)
	})
}

// RTRY-06, RTRY-07: in a full outage repeating adds less than a tenth to the
// load, by the policy that is the preset; turned off, it adds nothing.
func TestRepeatingInOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		off  bool
		most int64 // attempts of 300 units
	}{"preset": {false, 329}, "off": {true, 301}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var connects atomic.Int64
				f := &fakeEngine{connect: func(context.Context, string) error {
					connects.Add(1)
					return errDown
				}}
				db, closeAll := openFakeEngine(t, f, f, &fakeSource{shards: 1}, sqlshard.Config{})
				defer closeAll()
				if _, err := db.OpenConnectionForKey(t.Context(), 7); err == nil { // the shard is known, and known to be down
					t.Fatal("connected")
				}
				connects.Store(0)
				use := db
				if c.off {
					use = db.WithRetry(once)
				}
				for range 300 {
					err := use.InTx(t.Context(), 7, nil, func(context.Context, *sql.Tx) error { return nil })
					if !errors.Is(err, shardway.ErrUnavailable) {
						t.Errorf("in an outage: %v", err)
					}
				}
				if n := connects.Load(); n < 300 || n > c.most { // the store may send some a second time
					t.Errorf("300 units knocked %d times, want at most %d", n, c.most)
				}
			})
		})
	}
}

// POOL-03, RTRY-04: units whose callers give up leave no session behind and are
// not repeated.
func TestCancelledUnits(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		var repeated atomic.Int64
		policy := quick
		policy.OnAttempt = func(a retry.Attempt) {
			if a.Again {
				repeated.Add(1)
			}
		}
		db := r.open(sqlshard.Config{MaxOpenPerShard: 3}).WithRetry(policy)
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 0 {
					cancel()
				}
				err := db.InTx(ctx, 7, nil, func(ctx context.Context, tx *sql.Tx) error {
					cancel()
					_, err := tx.ExecContext(ctx, "UPDATE item SET name = name WHERE id = 0")
					return err
				})
				if !errors.Is(err, context.Canceled) || errors.Is(err, retry.ErrCommitUnknown) {
					t.Errorf("a caller who gave up got %v", err)
				}
			})
		}
		wg.Wait()
		if n := repeated.Load(); n != 0 {
			t.Errorf("%d units of callers who gave up were repeated", n)
		}
		eventually(t, "all sessions are given back", func() bool {
			return sum(db, func(p sqlshard.PoolStats) int { return p.InUse + p.Waiting }) == 0
		})
	})
}

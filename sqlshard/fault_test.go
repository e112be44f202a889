package sqlshard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/sqlshard"
)

// newProxiedRig is newRig with both shards behind one TCP proxy.
func newProxiedRig(t *testing.T, e dbtest.Engine) (*rig, *faultconn.Proxy) {
	t.Helper()
	proxy := faultconn.New(t, e.Server(t).Addr())
	r := newEmptyRig(t, e)
	r.at = func(l shardway.Location) shardway.Location {
		l.Servers = []shardway.Server{{Address: proxy.Addr()}}
		return l
	}
	r.addShard("a")
	r.addShard("b")
	r.addRange("a", 0, 100)
	r.addRange("b", 100, 200)
	return r, proxy
}

// T1 and T3 on real servers: while a shard's server is gone, ten opens ask the
// store once; when it is back, so are connections, and sessions that broke
// meanwhile are not noticed. OBS-02: the error names the address.
func TestServerGone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		db := r.open(sqlshard.Config{})
		var conns []*sqlshard.Conn
		for range 4 {
			conns = append(conns, opened(t, db, 7, "a"))
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		for range 2 {
			proxy.Cut()
			asked := r.source.lookups.Load()
			for range 10 {
				if e := refused(t, db, 7, shardway.ErrUnavailable); e.Shard != "a" || e.Server != proxy.Addr() {
					t.Fatalf("the error does not say where: %v", e.Error())
				}
			}
			if n := r.source.lookups.Load() - asked; n != 1 {
				t.Errorf("ten failed opens asked the store %d times", n)
			}
			proxy.Restore()
			asked = r.source.lookups.Load()
			_ = opened(t, db, 7, "a").Close()
			if r.source.lookups.Load() != asked {
				t.Error("the store was asked although the server is back")
			}
		}
		quiet(t, db)
	})
}

// Sessions that the server ended while they were idle are not the caller's
// business.
func TestIdleSessionsEnded(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		db := r.open(sqlshard.Config{})
		for range 3 {
			var conns []*sqlshard.Conn
			for range 4 {
				conns = append(conns, opened(t, db, 7, "a"))
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
			proxy.Cut()
			proxy.Restore()
		}
		quiet(t, db)
	})
}

// POOL-03: opens that end while the server is shaking hands, or while others
// hold the sessions, leave nothing behind on either side.
func TestCancelledOpens(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		base := proxy.Live() // the catalog's
		db := r.open(sqlshard.Config{MaxIdlePerShard: -1, MaxOpenPerShard: 6})
		_, _ = opened(t, db, 7, "a").Close(), opened(t, db, 150, "b").Close()
		proxy.Delay(time.Millisecond)
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				for range 40 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(20_000))*time.Microsecond)
					conn, err := db.OpenConnectionForKey(ctx, rand.Int64N(200))
					if err == nil {
						_ = conn.Close()
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("an open that took too long: %v", err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		proxy.Restore()
		quiet(t, db)
		eventually(t, "no connection is left", func() bool { return proxy.Live() == base })
		_ = opened(t, db, 7, "a").Close()
	})
}

// POOL-06: a query that its caller cancelled does not disturb the next user of
// a session.
func TestCancelledQueries(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 1})
		sleep := map[dbtest.Engine]string{dbtest.EnginePostgres: "SELECT pg_sleep(0.002)", dbtest.EngineMySQL: "SELECT SLEEP(0.002)"}[e]
		for range 150 {
			conn, err := db.OpenConnectionForKey(t.Context(), 7)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1000+rand.IntN(3000))*time.Microsecond)
			_, _ = conn.ExecContext(ctx, sleep)
			cancel()
			_ = conn.Close()
			_ = opened(t, db, 7, "a").Close()
		}
		quiet(t, db)
	})
}

// POOL-01: 30 databases on one server that lets in few: callers wait instead
// of being refused, and idle sessions give way.
func TestManyDatabasesOnOneServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("makes 30 databases")
	}
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		const databases, limit = 30, 10
		r := newEmptyRig(t, e)
		var names []string
		for i := range databases {
			name := fmt.Sprintf("shard%02d", i)
			names = append(names, name)
			r.addShard(name)
			r.addRange(name, int64(i*10), int64(i*10+10))
		}
		user, password := r.newLogin("app", names...)
		// A server counts a session a moment longer than its client.
		bound := map[dbtest.Engine]string{
			dbtest.EnginePostgres: fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", quoted(user), 2*limit),
			dbtest.EngineMySQL:    fmt.Sprintf("ALTER USER '%s'@'%%' WITH MAX_USER_CONNECTIONS %d", user, 2*limit),
		}[e]
		e.Server(t).Exec(t, "", bound)
		db := r.open(sqlshard.Config{
			Credentials: shardway.Credentials{User: user, Password: password}, MaxOpenPerServer: limit, MaxWait: 2 * time.Minute,
		})
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				for range 6 {
					key := rand.Int64N(databases * 10)
					conn, err := db.OpenConnectionForKey(t.Context(), key)
					if err != nil {
						t.Error(err)
						return
					}
					var name string
					if err := conn.QueryRowContext(t.Context(), "SELECT name FROM item WHERE id = 0").Scan(&name); err != nil || name != names[key/10] {
						t.Errorf("key %d is on shard %q, %v", key, name, err)
					}
					_ = conn.Close()
				}
			})
		}
		wg.Wait()
		quiet(t, db)
		if open := sum(db, func(p sqlshard.PoolStats) int { return p.Open }); open > limit {
			t.Errorf("%d sessions are open, the cap is %d", open, limit)
		}
	})
}

// Everything at once: keys move, servers are cut off, callers give up. What is
// handed out is on the right shard, and nothing is left over.
func TestStorm(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, proxy := newProxiedRig(t, e)
		db := r.open(sqlshard.Config{MaxOpenPerShard: 4})
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+rand.IntN(500))*time.Millisecond)
					conn, err := db.OpenConnectionForKey(ctx, 150)
					if err == nil {
						var name string
						if err := conn.QueryRowContext(ctx, "SELECT name FROM item WHERE id = 0").Scan(&name); err == nil && name != "b" {
							t.Errorf("key 150 is on shard %q", name)
						}
						_ = conn.Close()
					}
					var lookup *shardway.LookupError
					if err != nil && !errors.As(err, &lookup) {
						t.Errorf("no LookupError: %v", err)
					}
					cancel()
				}
			})
		}
		for i := range 12 {
			r.move(7, []string{"b", "a"}[i%2])
			_ = opened(t, db, 7, []string{"b", "a"}[i%2]).Close()
			proxy.Cut()
			proxy.Restore()
		}
		close(done)
		wg.Wait()
		quiet(t, db)
		_ = opened(t, db, 150, "b").Close()
	})
}

// MAP-06: a shard whose database is served elsewhere is followed as soon as
// the old address fails, and the old pool is closed.
func TestShardHasMoved(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		r, before := newProxiedRig(t, e)
		after := faultconn.New(t, e.Server(t).Addr())
		db := r.open(sqlshard.Config{})
		held := opened(t, db, 7, "a")
		_ = opened(t, db, 7, "a").Close()
		elsewhere := r.shards["a"].Location
		elsewhere.Servers = []shardway.Server{{Address: after.Addr()}}
		r.do(catalog.UpdateShard{Shard: r.shards["a"], Location: &elsewhere})
		before.Cut()
		asked := r.source.lookups.Load()
		conn := opened(t, db, 7, "a")
		if conn.Server() != after.Addr() || r.source.lookups.Load() != asked+1 {
			t.Errorf("on server %q; the store was asked %d times", conn.Server(), r.source.lookups.Load()-asked)
		}
		_ = conn.Close()
		_ = held.Close()
		for _, p := range db.Stats().Pools {
			if p.Shard == "a" && p.Server != after.Addr() {
				t.Errorf("the old pool is still there: %+v", p)
			}
		}
		eventually(t, "the old server has no connection", func() bool { return before.Live() == 0 })
		shard, err := db.OpenConnectionForShard(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if shard.Server() != after.Addr() {
			t.Errorf("by name it is on server %q", shard.Server())
		}
		_ = shard.Close()
		quiet(t, db)
	})
}

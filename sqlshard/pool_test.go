package sqlshard_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlshard"
)

// POOL-05: a wait for a free session that ends is no sign of a dead server.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _, s, closeAll := openFake(t, 1, sqlshard.Config{MaxOpenPerShard: 1})
		defer closeAll()
		held, err := db.OpenConnectionForKey(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		asked := s.asked()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := db.OpenConnectionForKey(ctx, 5)
				if !errors.Is(err, shardway.ErrPoolExhausted) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, shardway.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		if p := db.Stats().Pools[0]; p.Waiting != 10 || p.InUse != 1 {
			t.Errorf("while they wait: %+v", p)
		}
		wg.Wait()
		if p := db.Stats().Pools[0]; p.Waiting != 0 || p.WaitCount != 10 || p.WaitTime != 10*time.Second || p.InUse != 1 {
			t.Errorf("after they gave up: %+v", p)
		}
		if _, err := db.OpenConnectionForKey(t.Context(), 5); !errors.Is(err, shardway.ErrPoolExhausted) {
			t.Errorf("MaxWait ends without a deadline: %v", err) // after 30 s of the bubble's clock
		}
		if s.asked() != asked {
			t.Error("the store was asked although nothing failed")
		}
		if err := held.PingContext(t.Context()); err != nil {
			t.Error("the one who holds the session:", err)
		}
		_ = held.Close()
		quiet(t, db)
	})
}

// POOL-01: the cap of a server holds over the pools of all its databases at
// every moment, idle sessions give way, and everybody is served.
func TestServerCap(t *testing.T) {
	t.Parallel()
	const limit = 7
	db, f, _, closeAll := openFake(t, 20, sqlshard.Config{MaxOpenPerServer: limit, MaxOpenPerShard: 3, MaxWait: time.Minute})
	defer closeAll()
	f.connect = func(context.Context, string) error {
		<-time.After(time.Duration(rand.IntN(300)) * time.Microsecond)
		return nil
	}
	var wg sync.WaitGroup
	var cancelled atomic.Int64
	for g := range 40 {
		wg.Go(func() {
			for i := range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+g)%7 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(400))*time.Microsecond, cancel)
				}
				conn, err := db.OpenConnectionForKey(ctx, rand.Int64N(200))
				switch {
				case err == nil:
					_ = conn.Close()
				case ctx.Err() != nil && errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if f.most > limit {
		t.Errorf("%d sessions at once, the cap is %d", f.most, limit)
	}
	if f.most < limit {
		t.Errorf("never more than %d sessions at once: the test does not press against the cap of %d", f.most, limit)
	}
	quiet(t, db)
	if open := sum(db, func(p sqlshard.PoolStats) int { return p.Open }); open != f.open || open > limit {
		t.Errorf("stats say %d sessions, there are %d", open, f.open)
	}
	t.Logf("%d sessions opened, %d waits cancelled", f.opened, cancelled.Load())
}

// POOL-02: connections opened while others are held end by their deadline and
// leave nothing behind; there is no wait for ever.
func TestHoldAndWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _, _, closeAll := openFake(t, 8, sqlshard.Config{MaxOpenPerServer: 4, MaxOpenPerShard: 2})
		defer closeAll()
		for key := int64(5); key < 80; key += 10 {
			conn, err := db.OpenConnectionForKey(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				for key := int64(5); key < 80 && ctx.Err() == nil; key += 10 {
					outer, err := db.OpenConnectionForKey(ctx, key)
					if err != nil {
						if !errors.Is(err, shardway.ErrPoolExhausted) {
							t.Error(err)
						}
						return
					}
					time.Sleep(time.Millisecond) // fake time
					if inner, err := db.OpenConnectionForKey(ctx, key); err == nil {
						_ = inner.Close()
					}
					_ = outer.Close()
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 6*time.Second { // of the bubble's clock
			t.Errorf("took %v, longer than every deadline", took)
		}
		quiet(t, db)
	})
}

// POOL-04: sessions opened together do not end together: each draws its end
// when it is opened.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, life = 100, 60
		db, f, _, closeAll := openFake(t, 1, sqlshard.Config{
			MaxOpenPerShard: n, MaxOpenPerServer: n, MaxIdlePerShard: n, MaxLifetime: life * time.Second, MaxIdleTime: -1,
		})
		defer closeAll()
		cycle := func() {
			var conns []*sqlshard.Conn
			for range n {
				conn, err := db.OpenConnectionForKey(t.Context(), 5)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
		}
		cycle()
		total := 0
		for second := 1; second <= life; second++ {
			time.Sleep(time.Second) // fake time
			_, before := f.counts()
			cycle()
			_, after := f.counts()
			born := after - before
			total += born
			if born > n/4 || second < life*8/10 && born > 0 {
				t.Errorf("second %d: %d sessions were replaced", second, born)
			}
		}
		if total != n {
			t.Errorf("%d of %d sessions were replaced within their life", total, n)
		}
	})
}

func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := openFake(t, 1, sqlshard.Config{MaxIdlePerShard: 2, MaxIdleTime: time.Minute})
		defer closeAll()
		var conns []*sqlshard.Conn
		for range 5 {
			conn, err := db.OpenConnectionForKey(t.Context(), 5)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		if open, _ := f.counts(); open != 2 {
			t.Errorf("%d sessions are kept, want MaxIdlePerShard", open)
		}
		time.Sleep(29 * time.Second) // fake time
		if open, _ := f.counts(); open != 2 {
			t.Error("sessions were closed before half of MaxIdleTime")
		}
		time.Sleep(31 * time.Second) // fake time
		synctest.Wait()
		if open, _ := f.counts(); open != 0 {
			t.Errorf("%d sessions are idle for longer than MaxIdleTime", open)
		}
		quiet(t, db)
	})
}

// A broken pooled session is not the caller's business while another can be
// opened, however many are broken.
func TestBrokenSessions(t *testing.T) {
	t.Parallel()
	for name, breakAll := range map[string]func(f *fakeEngine, dead func() bool){
		"found by the driver's reset": func(f *fakeEngine, dead func() bool) {
			f.reset = func() error {
				if dead() {
					return driver.ErrBadConn
				}
				return nil
			}
		},
		"found by validation": func(f *fakeEngine, dead func() bool) {
			f.ask = func() (int64, bool, error) {
				if dead() {
					return 0, false, driver.ErrBadConn
				}
				return 1, true, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, f, s, closeAll := openFake(t, 1, sqlshard.Config{MaxIdlePerShard: 10})
			defer closeAll()
			var conns []*sqlshard.Conn
			for range 10 {
				conn, err := db.OpenConnectionForKey(t.Context(), 5)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
			_, before := f.counts()
			f.set(func(f *fakeEngine) {
				breakAll(f, func() bool { _, now := f.counts(); return now == before })
			})
			conn, err := db.OpenConnectionForKey(t.Context(), 5)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if _, now := f.counts(); now != before+1 || s.asked() != 1 {
				t.Errorf("%d sessions were opened, the store asked %d times", now-before, s.asked())
			}
			quiet(t, db)
		})
	}
}

// T1, T2, T3: while a shard is down the store is asked once per pause, and the
// pause grows; the first success ends it.
func TestDeadShardSparesTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		db, f, s, closeAll := openFake(t, 2, sqlshard.Config{MaxIdlePerShard: -1})
		defer closeAll()
		open := func(want error) {
			t.Helper()
			conn, err := db.OpenConnectionForKey(t.Context(), 5)
			if !errors.Is(err, want) {
				t.Fatalf("got %v, want %v", err, want)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
		open(nil)
		f.set(func(f *fakeEngine) { f.connect = func(context.Context, string) error { return down } })
		for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second} {
			before := s.asked()
			for range 10 {
				open(shardway.ErrUnavailable)
			}
			if n := s.asked() - before; n != 1 {
				t.Errorf("before a pause of %v, ten failed opens asked the store %d times", pause, n)
			}
			time.Sleep(pause - time.Millisecond) // fake time
			if open(down); s.asked() != before+1 {
				t.Errorf("the store was asked before the pause of %v was over", pause)
			}
			time.Sleep(time.Millisecond) // fake time
		}
		f.set(func(f *fakeEngine) { f.connect = nil })
		open(nil)
		f.set(func(f *fakeEngine) { f.connect = func(context.Context, string) error { return down } })
		before := s.asked()
		if open(down); s.asked() != before+1 {
			t.Error("after a success the store was not asked at once")
		}
		quiet(t, db)
	})
}

// OBS-01: every error names where it happened and its cause, the first time
// and the tenth; that of a full pool names why it is full. OBS-04: gauges fall
// back to 0.
func TestErrorsNameTheCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := openFake(t, 1, sqlshard.Config{MaxOpenPerShard: 1})
		defer closeAll()
		f.connect = func(context.Context, string) error { return errors.New("no route to host") }
		for range 10 {
			e := refused(t, db, 5, shardway.ErrUnavailable)
			if e.Shard != "sa" || e.Server != "server" || !strings.Contains(e.Error(), "no route to host") {
				t.Fatalf("%+v: %v", e, e.Error())
			}
		}
		f.set(func(f *fakeEngine) {
			f.connect = func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		slow, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := db.OpenConnectionForKey(slow, 5)
			if !errors.Is(err, shardway.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a server that does not answer: %v", err)
			}
		})
		synctest.Wait()
		e := refused(t, db, 5, shardway.ErrPoolExhausted)
		if !strings.Contains(e.Error(), "no route to host") {
			t.Errorf("the full pool does not say why: %v", e.Error())
		}
		wg.Wait()
		quiet(t, db)
	})
}

// A caller who gives up says nothing about the server.
func TestCancelledWhileConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, s, closeAll := openFake(t, 1, sqlshard.Config{})
		defer closeAll()
		f.connect = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := db.OpenConnectionForKey(ctx, 5)
		if !errors.Is(err, context.Canceled) || errors.Is(err, shardway.ErrUnavailable) || s.asked() != 1 {
			t.Errorf("got %v, the store was asked %d times", err, s.asked())
		}
		quiet(t, db)
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	db, f, s, closeAll := openFake(t, 2, sqlshard.Config{MaxOpenPerShard: 1})
	defer closeAll()
	held, err := db.OpenConnectionForKey(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	idle, err := db.OpenConnectionForKey(t.Context(), 15)
	if err != nil {
		t.Fatal(err)
	}
	_ = idle.Close()
	waits := make(chan error)
	go func() {
		_, err := db.OpenConnectionForKey(t.Context(), 5)
		waits <- err
	}()
	eventually(t, "the second caller waits", func() bool {
		return sum(db, func(p sqlshard.PoolStats) int { return p.Waiting }) == 1
	})
	for range 2 {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-waits; !errors.Is(err, shardway.ErrUnavailable) {
		t.Errorf("a caller who waited when the DB was closed: %v", err)
	}
	asked := s.asked()
	refused(t, db, 5, shardway.ErrUnavailable)
	refused(t, db, 15, shardway.ErrUnavailable)
	if s.asked() != asked {
		t.Error("the store was asked for a DB that is closed")
	}
	if open, _ := f.counts(); open != 1 {
		t.Errorf("%d sessions are open, want the one in use", open)
	}
	if err := held.PingContext(t.Context()); err != nil {
		t.Error("the session in use:", err)
	}
	_ = held.Close()
	if open, _ := f.counts(); open != 0 {
		t.Error("the session in use was not closed when it came back")
	}
}

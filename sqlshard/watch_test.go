package sqlshard_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology"
)

// MAP-04, POOL-08: servers are watched from the first choice on, with the
// current location, and no longer than somebody chooses.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, s, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked, MaxIdleTime: time.Minute}, "a:1", "b:1")
		defer closeAll()
		watching := func(what string, open, all int) {
			t.Helper()
			synctest.Wait()
			if gotOpen, gotAll, _ := f.counted(); gotOpen != open || gotAll != all {
				t.Fatalf("%s: %d probers are open of %d, want %d of %d", what, gotOpen, gotAll, open, all)
			}
		}
		watching("before the first use", 0, 0)
		conn := opened1(t, db)
		watching("in use", 1, 1)
		time.Sleep(5 * time.Minute) // fake time
		watching("as long as a connection is open", 1, 1)
		_ = conn.Close()
		time.Sleep(5 * time.Minute) // fake time
		watching("unused", 0, 1)
		_ = opened1(t, db).Close()
		watching("used again", 1, 2)

		f.become("a:1", fakeServer{down: true})
		f.become("b:1", fakeServer{down: true})
		f.become("c:1", fakeServer{role: topology.RolePrimary, term: 2})
		time.Sleep(noticed) // fake time
		s.serve("c:1", "d:1")
		if conn := opened1(t, db); conn.Server() != "c:1" {
			t.Errorf("the shard has moved, but %s serves", conn.Server())
		} else {
			_ = conn.Close()
		}
		watching("at another location", 1, 3)
		f.become("c:1", fakeServer{down: true})
		f.become("e:1", fakeServer{role: topology.RolePrimary, term: 2})
		time.Sleep(10 * time.Second) // fake time
		s.serve("e:1")
		if conn := opened1(t, db); conn.Server() != "e:1" {
			t.Errorf("the shard has moved, but %s serves", conn.Server())
		} else {
			_ = conn.Close()
		}
		watching("on one server, without criteria", 0, 3)
		_ = opened1(t, db.With(selection.Nearest())).Close()
		watching("on one server, with criteria", 1, 4)
	})
}

// Who waits for a server of a shard goes on where the shard has moved to.
func TestMoveWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, s, closeAll := newFakeSet(t, sqlshard.Config{}, "a:1", "b:1")
		defer closeAll()
		f.become("a:1", fakeServer{down: true})
		f.become("c:1", fakeServer{role: topology.RolePrimary, term: 1})
		got := make(chan string)
		go func() {
			server, err := write(t.Context(), db, 1)
			if err != nil {
				server = err.Error()
			}
			got <- server
		}()
		time.Sleep(time.Second) // fake time
		s.serve("c:1", "d:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refusedWith(ctx, t, db, 7, context.DeadlineExceeded) // the store is asked again
		synctest.Wait()
		_ = opened1(t, db).Close()
		began := time.Now()
		if server := <-got; server != "c:1" || time.Since(began) != 0 {
			t.Errorf("who waited got %s after %v", server, time.Since(began))
		}
	})
}

// Close ends those who wait for a server, and the watch.
func TestCloseWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{}, "a:1", "b:1")
		f.become("a:1", fakeServer{role: topology.RoleSecondary})
		failed := make(chan error)
		go func() {
			_, err := db.OpenConnectionForKey(context.Background(), 7)
			failed <- err
		}()
		time.Sleep(time.Second) // fake time
		_ = db.Close()
		if err := <-failed; !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("waiting for a primary when the DB was closed: %v", err)
		}
		closeAll()
	})
}

// POOL-07: probes that never answer hold no session and nobody longer than he
// wants to wait; each server is asked once at a time.
func TestProbesHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{}, "a:1", "b:1")
		defer closeAll()
		f.hang = true
		began := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := db.OpenConnectionForKey(ctx, 7)
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, shardway.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the callers took %v", took)
		}
		if _, _, probes := f.counted(); probes != 2 {
			t.Errorf("%d probes", probes)
		}
		if _, opened := f.counts(); opened != 0 {
			t.Errorf("%d sessions were opened", opened)
		}
	})
}

// The operation on a server ends, however opening a connection does.
func TestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked, MaxOpenPerShard: -1, MaxOpenPerServer: -1}, "a:1", "b:1")
		defer closeAll()
		_ = opened1(t, db).Close()
		for name, c := range map[string]struct {
			ask   func() (int64, bool, error)
			reset func() error
		}{
			"not here": {ask: func() (int64, bool, error) { return 0, false, nil }},
			"offline":  {ask: func() (int64, bool, error) { return 0, true, nil }},
			"broken":   {ask: func() (int64, bool, error) { return 0, false, driver.ErrBadConn }},
			"panic":    {ask: func() (int64, bool, error) { panic("driver") }},
			"reset":    {reset: func() error { return driver.ErrBadConn }},
		} {
			f.set(func(f *fakeEngine) { f.ask, f.reset = c.ask, c.reset })
			func() {
				defer func() { _ = recover() }()
				if conn, err := db.OpenConnectionForKey(t.Context(), 7); err == nil {
					_ = conn.Close()
				}
			}()
			f.set(func(f *fakeEngine) { f.ask, f.reset = nil, nil })
			time.Sleep(noticed) // fake time
			e, err := db.Servers(t.Context(), "sa")
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range e.Servers {
				if v.InFlight != 0 {
					t.Errorf("%s: %d operations in flight on %s", name, v.InFlight, v.Server.Address)
				}
			}
		}
	})
}

// A deadline that was spent on connecting has the store asked where the key is.
func TestDeadlineSpentOnConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, s, closeAll := openFake(t, 1, sqlshard.Config{})
		defer closeAll()
		_ = opened1(t, db).Close()
		f.set(func(f *fakeEngine) {
			f.reset = func() error { return driver.ErrBadConn }
			f.connect = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		})
		asked := s.asked()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := db.OpenConnectionForKey(ctx, 7); !errors.Is(err, shardway.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if n := s.asked() - asked; n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := db.OpenConnectionForKey(ctx, 7); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if n := s.asked() - asked; n != 1 {
			t.Errorf("the store was asked %d times, also for a caller who gave up", n)
		}
	})
}

// An engine without a prober serves shards with one server, without criteria.
func TestNoProber(t *testing.T) {
	t.Parallel()
	db, _, s, closeAll := openFake(t, 1, sqlshard.Config{})
	defer closeAll()
	_ = opened1(t, db).Close()
	var e *shardway.ArgumentError
	if _, err := db.With(selection.Nearest()).OpenConnectionForKey(t.Context(), 7); !errors.As(err, &e) || e.Argument != "Engines" {
		t.Errorf("criteria without a prober: %v", err)
	}
	s.serve("a:1", "a:1")
	if _, err := db.Servers(t.Context(), "sa"); !errors.As(err, &e) {
		t.Errorf("servers without a prober: %v", err)
	}
	set, _, _, closeSet := newFakeSet(t, sqlshard.Config{}, "a:1", "a:1")
	defer closeSet()
	var twice *topology.AddressError
	if _, err := set.OpenConnectionForKey(t.Context(), 7); !errors.As(err, &twice) || !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a server listed twice: %v", err)
	}
}

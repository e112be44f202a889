package sqlshard_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology"
)

const noticed = 1100 * time.Millisecond // what happens is seen by then, by the bubble's clock

var oftenChecked = sqlshard.ServerConfig{Heartbeat: topology.MinHeartbeat, SelectionTimeout: 5 * time.Second}

// A hundred failovers, a third of them with the former primary still taking
// writes, a third with it dead: once the new primary was seen, no write lands on
// another server, whatever connection carries it, and nothing leaks.
func TestHundredFailovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		addresses := []string{"a:1", "b:1", "c:1"}
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked}, addresses...)
		defer closeAll()
		goroutines := 0
		for i := 1; i <= 100; i++ {
			warm(t, db)
			held := opened1(t, db)
			from, to := addresses[(i-1)%3], addresses[i%3]
			former := fakeServer{role: topology.RoleSecondary, term: uint64(i)}
			switch i % 3 {
			case 1:
				former.role = topology.RolePrimary
			case 2:
				former.down = true
			}
			f.become(from, former)
			f.become(to, fakeServer{role: topology.RolePrimary, term: uint64(i + 1)})
			time.Sleep(noticed) // fake time
			before := f.writesOn(from)
			if _, err := held.ExecContext(t.Context(), "INSERT"); err == nil {
				t.Fatalf("failover %d: a connection to the former primary took a write", i)
			}
			_ = held.Close()
			for range 5 {
				if server, err := write(t.Context(), db, 1); err != nil || server != to {
					t.Fatalf("failover %d: a write went to %q, want %q: %v", i, server, to, err)
				}
			}
			if f.writesOn(from) != before {
				t.Fatalf("failover %d: a write landed on the former primary", i)
			}
			f.become(from, fakeServer{role: topology.RoleSecondary, term: uint64(i + 1)})
			time.Sleep(noticed) // fake time
			synctest.Wait()
			if i == 10 {
				goroutines = runtime.NumGoroutine()
			}
		}
		quiet(t, db)
		e, err := db.Servers(t.Context(), "sa")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Servers {
			if v.InFlight != 0 {
				t.Errorf("%d operations in flight on %s", v.InFlight, v.Server.Address)
			}
		}
		if open, _ := f.counts(); open > 12 {
			t.Errorf("%d sessions are open", open)
		}
		if n := runtime.NumGoroutine(); n > goroutines+12 { // other tests run meanwhile; a leak would be a hundred
			t.Errorf("%d goroutines after 100 failovers, %d after 10", n, goroutines)
		}
	})
}

// The first write that hits a server which takes none makes it be checked, and
// waits for nothing else than the new primary.
func TestWriteRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := oftenChecked
		slow.Heartbeat = time.Hour
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: slow}, "a:1", "b:1")
		defer closeAll()
		warm(t, db)
		time.Sleep(time.Minute) // fake time
		f.become("a:1", fakeServer{role: topology.RoleSecondary, term: 1})
		f.become("b:1", fakeServer{role: topology.RolePrimary, term: 2})
		if _, err := write(t.Context(), db, 1); !errors.As(err, new(readOnlyError)) {
			t.Fatalf("the first write: %v", err)
		}
		began := time.Now()
		if server, err := write(t.Context(), db, 1); err != nil || server != "b:1" {
			t.Errorf("the second write went to %q: %v", server, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v of the bubble's time", took)
		}
		quiet(t, db)
	})
}

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

// POOL-05: a full pool is no fault of its server.
func TestFullPoolOfServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _, _, closeAll := newFakeSet(t, sqlshard.Config{MaxOpenPerShard: 1, MaxWait: time.Second, Servers: oftenChecked}, "a:1", "b:1")
		defer closeAll()
		held := opened1(t, db)
		for range 10 {
			refused(t, db, 7, shardway.ErrPoolExhausted)
		}
		e, err := db.Servers(t.Context(), "sa")
		if err != nil || e.Servers[0].Server.Role != topology.RolePrimary || e.Servers[0].InFlight != 1 {
			t.Errorf("the server is %+v: %v", e.Servers[0], err)
		}
		_ = held.Close()
		_ = opened1(t, db).Close()
		quiet(t, db)
	})
}

// LAT-07: what failed a unit of work is avoided by its later attempts, even
// when it looks well again, and used when nothing else is left.
func TestUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked}, "a:1", "b:1", "c:1")
		defer closeAll()
		readers := db.With(selection.Secondary())
		f.set(func(f *fakeEngine) { f.exec = func(string) error { return driver.ErrBadConn } })
		ctx := sqlshard.WithUnit(t.Context())
		conn, err := readers.OpenConnectionForKey(ctx, 7)
		if err != nil {
			t.Fatal(err)
		}
		failed := conn.Server()
		if _, err := conn.ExecContext(ctx, "SELECT"); !errors.Is(err, driver.ErrBadConn) {
			t.Fatalf("got %v", err)
		}
		_ = conn.Close()
		time.Sleep(noticed) // fake time
		served := func(ctx context.Context) map[string]int {
			served := map[string]int{}
			for range 40 {
				conn, err := readers.OpenConnectionForKey(ctx, 7)
				if err != nil {
					t.Fatal(err)
				}
				served[conn.Server()]++
				_ = conn.Close()
			}
			return served
		}
		if n := served(ctx)[failed]; n != 0 {
			t.Errorf("the unit got the server that failed %d times", n)
		}
		if n := served(t.Context())[failed]; n == 0 {
			t.Error("others do not get the server")
		}
		for _, a := range []string{"b:1", "c:1"} {
			if a != failed {
				f.become(a, fakeServer{down: true})
			}
		}
		time.Sleep(noticed) // fake time
		if n := served(ctx)[failed]; n != 40 {
			t.Errorf("nothing else is left, but the server was used %d times", n)
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

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
func TestHundredFailovers(t *testing.T) { //nolint:paralleltest // counts goroutines
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
		if n := runtime.NumGoroutine(); n > goroutines+12 { // of sessions; a leak would be a hundred
			t.Errorf("%d goroutines after 100 failovers, %d after 10", n, goroutines)
		}
	})
}

// What one fails, another one does: two dead secondaries of three are no error,
// though no check has noticed; but a full pool is not tried elsewhere.
func TestNextServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := oftenChecked
		slow.Heartbeat = time.Hour
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: slow, MaxOpenPerShard: 1, MaxWait: time.Second}, "a:1", "b:1", "c:1", "d:1")
		defer closeAll()
		if _, err := db.Servers(t.Context(), "sa"); err != nil { // all are known
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // fake time
		f.become("b:1", fakeServer{down: true})
		f.become("c:1", fakeServer{down: true})
		began := time.Now()
		readers := db.With(selection.Secondary())
		within(t, "two are dead", servedBy(t, readers, 20), []string{"d:1"})
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v of the bubble's time", took)
		}
		held := opened1(t, readers)
		refused(t, readers, 7, shardway.ErrPoolExhausted)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a full pool was waited for %v of the bubble's time", took)
		}
		if e, err := readers.Servers(t.Context(), "sa"); err != nil || e.Servers[3].Server.Role != topology.RoleSecondary {
			t.Errorf("the server whose pool was full is %+v: %v", e.Servers[3], err)
		}
		_ = held.Close()
		quiet(t, db)
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

// MAP-06: a single server that takes no writes any more loses the sessions that
// were opened before, so that new ones go where its name leads now.
func TestReadOnlyAlone(t *testing.T) {
	t.Parallel()
	db, f, _, closeAll := openFake(t, 1, sqlshard.Config{})
	defer closeAll()
	warm(t, db)
	_, before := f.counts()
	f.set(func(f *fakeEngine) { f.exec = func(string) error { return readOnlyError{} } })
	if _, err := write(t.Context(), db, 1); !errors.As(err, new(readOnlyError)) {
		t.Fatalf("got %v", err)
	}
	_ = opened1(t, db).Close()
	if _, after := f.counts(); after != before+1 {
		t.Errorf("%d sessions were opened after the write was refused, want 1", after-before)
	}
	if open, _ := f.counts(); open != 1 {
		t.Errorf("%d sessions are open", open)
	}
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

// ROLE-04: a session that was being opened when its server stopped being
// primary is not handed out for writing.
func TestDemotedWhileConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, _, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked}, "a:1", "b:1")
		defer closeAll()
		var once sync.Once
		f.set(func(f0 *fakeEngine) {
			f0.connect = func(context.Context, string) error {
				once.Do(func() {
					f.become("b:1", fakeServer{role: topology.RolePrimary, term: 2}) // a:1 is one still, of term 1
					time.Sleep(noticed)                                              // fake time
				})
				return nil
			}
		})
		conn := opened1(t, db)
		if conn.Server() != "b:1" {
			t.Errorf("%s was handed out, which was demoted meanwhile", conn.Server())
		}
		_ = conn.Close()
		for _, p := range db.Stats().Pools {
			if p.Server == "a:1" && p.Open != 0 {
				t.Errorf("the session to the former primary was kept: %+v", p)
			}
		}
		quiet(t, db)
	})
}

// A secondary that lags behind a change of the map is not the last word.
func TestLaggingSecondary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, f, s, closeAll := newFakeSet(t, sqlshard.Config{Servers: oftenChecked}, "a:1", "b:1", "c:1")
		defer closeAll()
		if _, err := db.Servers(t.Context(), "sa"); err != nil { // all are known
			t.Fatal(err)
		}
		f.set(func(f *fakeEngine) { f.lacks = "b:1" })
		within(t, "one secondary lags", servedBy(t, db.With(selection.Secondary()), 40), []string{"c:1"})
		if n := s.asked(); n < 2 {
			t.Errorf("the store was asked %d times: the secondary was never tried", n)
		}
		f.set(func(f *fakeEngine) { f.lacks = "a:1" })
		refused(t, db, 7, shardway.ErrStale)
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

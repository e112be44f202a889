package dbtest

import (
	"context"
	"database/sql"
	"testing"
	"time"
)

// testSet is what both kinds of set can do.
type testSet interface {
	Server(i int) *Server
	Servers() []*Server
	Addr(i int) string
	At(d Database, i int) Database
	NewDatabase(t testing.TB) Database
	Kill(t testing.TB, i int)
	Restart(t testing.TB, i int)
	Promote(t testing.TB, i int)
	Follow(t testing.TB, i, primary int)
	Rejoin(t testing.TB, i int)
	AwaitReplay(t testing.TB, i int)
	Detach(t testing.TB, i int)
	Primary() int
}

func newTestSet(t *testing.T, e Engine) testSet {
	t.Helper()
	if e == EnginePostgres {
		return NewPostgresSet(t, PostgresSetOptions{Secondaries: 2, Proxied: true})
	}
	return NewMariaDBSet(t, MariaDBSetOptions{Secondaries: 2, Proxied: true})
}

// One life of a replica set: writes are replicated, the primary dies, a secondary takes its place, the old primary
// comes back as a second one with a write that nobody else has, and becomes a secondary without that write.
func TestSetFailover(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e Engine) {
		set := newTestSet(t, e)
		d := set.NewDatabase(t)
		if d.Addr() != set.Addr(0) || set.Addr(0) == set.Server(0).Addr() {
			t.Errorf("the database is at %s, server 0 at %s behind %s", d.Addr(), set.Server(0).Addr(), set.Addr(0))
		}
		pools := make([]*sql.DB, 3)
		for i := range pools {
			pools[i] = set.At(d, i).Open(t)
		}
		rows := func(i int) int {
			t.Helper()
			return count(t, pools[i], "SELECT count(*) FROM written")
		}
		mustExec(t, pools[0], "CREATE TABLE written (n int primary key)")
		mustExec(t, pools[0], "INSERT INTO written VALUES (1)")
		for i := 1; i < 3; i++ {
			set.AwaitReplay(t, i)
			if got := rows(i); got != 1 {
				t.Errorf("secondary %d has %d rows, want 1", i, got)
			}
			if e == EnginePostgres { // MariaDB's administrator writes everywhere
				if _, err := pools[i].Exec("INSERT INTO written VALUES (9)"); err == nil {
					t.Errorf("secondary %d takes writes", i)
				}
			}
		}

		set.Kill(t, 0)
		set.Promote(t, 1)
		set.Follow(t, 2, 1)
		if set.Primary() != 1 {
			t.Errorf("primary is %d, want 1", set.Primary())
		}
		mustExec(t, pools[1], "INSERT INTO written VALUES (2)")
		set.AwaitReplay(t, 2)
		if got := rows(2); got != 2 {
			t.Errorf("the other secondary has %d rows after the failover, want 2", got)
		}

		set.Restart(t, 0)
		mustExec(t, set.At(d, 0).Open(t), "INSERT INTO written VALUES (3), (4)")
		set.Rejoin(t, 0)
		mustExec(t, pools[1], "INSERT INTO written VALUES (5)")
		set.AwaitReplay(t, 0)
		if got := count(t, set.At(d, 0).Open(t), "SELECT sum(n) FROM written"); got != 1+2+5 {
			t.Errorf("the former primary has rows with the sum %d, want 8: its own writes are lost", got)
		}

		set.Detach(t, 0)
		mustExec(t, pools[1], "INSERT INTO written VALUES (6)")
		set.AwaitReplay(t, 2)
		if got := count(t, set.At(d, 0).Open(t), "SELECT count(*) FROM written"); got != 3 {
			t.Errorf("a detached secondary has %d rows, want 3", got)
		}
		set.Follow(t, 0, 1)
		set.AwaitReplay(t, 0)
	})
}

// Data stands still on a secondary that is told so, and goes on afterwards.
func TestSetReplayStops(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		set := NewPostgresSet(t, PostgresSetOptions{})
		checkReplayStops(t, set, set.PauseReplay, set.ResumeReplay)
		checkReplayStops(t, set,
			func(t testing.TB, i int) { t.Helper(); set.Delay(t, i, time.Hour) },
			func(t testing.TB, i int) { t.Helper(); set.Delay(t, i, 0) })
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		set := NewMariaDBSet(t, MariaDBSetOptions{})
		checkReplayStops(t, set, set.StopReplication, set.StartReplication)
		checkReplayStops(t, set,
			func(t testing.TB, i int) { t.Helper(); set.Delay(t, i, time.Hour) },
			func(t testing.TB, i int) { t.Helper(); set.Delay(t, i, 0) })
	})
}

func checkReplayStops(t *testing.T, set testSet, stop, start func(t testing.TB, i int)) {
	t.Helper()
	d := set.NewDatabase(t)
	set.AwaitReplay(t, 1)
	primary, secondary := d.Open(t), set.At(d, 1).Open(t)
	mustExec(t, primary, "CREATE TABLE written (n int)")
	set.AwaitReplay(t, 1)
	stop(t, 1)
	mustExec(t, primary, "INSERT INTO written VALUES (1)")
	// A write that has not come: there is nothing to wait for but time, in which it would have come.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if got := count(t, secondary, "SELECT count(*) FROM written"); got != 0 {
		t.Errorf("%d rows on the secondary while its data should stand still", got)
	}
	start(t, 1)
	set.AwaitReplay(t, 1)
	if got := count(t, secondary, "SELECT count(*) FROM written"); got != 1 {
		t.Errorf("%d rows on the secondary afterwards, want 1", got)
	}
}

// Sets share a system identifier unless one asks for its own.
func TestSetIdentity(t *testing.T) {
	t.Parallel()
	const query = "SELECT system_identifier::text FROM pg_control_system()"
	identity := func(s *Server) (id string) {
		if err := s.adminPool().QueryRow(query).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	own := NewPostgresSet(t, PostgresSetOptions{OwnIdentity: true})
	other := NewPostgresSet(t, PostgresSetOptions{OwnIdentity: true})
	if a, b := identity(own.Server(0)), identity(own.Server(1)); a != b {
		t.Errorf("servers of one set are of the systems %s and %s", a, b)
	}
	if a, b := identity(own.Server(0)), identity(other.Server(0)); a == b {
		t.Errorf("both sets are of the system %s", a)
	}
	if own.Proxy(0) != nil || own.Addr(0) != own.Server(0).Addr() {
		t.Error("a set that did not ask for proxies has some")
	}
}

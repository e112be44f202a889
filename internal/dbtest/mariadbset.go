package dbtest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// MariaDBSetOptions shape a MariaDBSet. The zero value is a primary and one secondary without proxies.
type MariaDBSetOptions struct {
	// Secondaries is the number of replicas; 0 means 1.
	Secondaries int
	// Proxied puts a fault proxy before each server.
	Proxied bool
	// Settings of every server win over the defaults of the harness: "performance-schema=1".
	Settings []string
}

// MariaDBSet is a MariaDB primary and replicas that follow it by global transaction ids, for one test alone.
type MariaDBSet struct {
	replicaSet
	lastID int // server-id given out last
}

// readOnly is the setting of replicas. Accounts with all rights, such as the administrator, write in spite of it.
const readOnly = "read-only=1"

// NewMariaDBSet starts a replica set whose replicas follow when it returns. It is ended and removed with the test.
// Without MariaDB's programs the test is skipped, or fails, as by [NewMariaDB].
func NewMariaDBSet(t testing.TB, o MariaDBSetOptions) *MariaDBSet {
	t.Helper()
	soft, err := locate(EngineMySQL)
	if err != nil {
		EngineMySQL.unavailable(t, err)
	}
	r := &MariaDBSet{}
	for i := range 1 + max(1, o.Secondaries) {
		settings := []string{
			r.nextID(), "log-bin=bin", "relay-log=relay", "log-slave-updates=1", "gtid-strict-mode=1",
			"binlog-format=ROW", "sync-binlog=0", "slave-net-timeout=5",
		}
		if i > 0 {
			settings = append(settings, readOnly)
		}
		s := r.addServer(t, soft, append(settings, o.Settings...))
		if err := copyTemplate(soft, s.local.as, s.local.data()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.servers[0].startOnFreePort(); err != nil {
		t.Fatal(err)
	}
	if o.Proxied {
		r.addProxies(t, 1)
	}
	r.atOnce(t, func(i int) error {
		if err := r.servers[i].startOnFreePort(); err != nil {
			return err
		}
		return r.follow(i, 0)
	})
	if o.Proxied {
		r.addProxies(t, len(r.servers))
	}
	return r
}

// Promote makes a replica the primary: it forgets whom it followed and takes writes, over restarts too. The former
// primary is left as it is, and so are the servers that follow it.
func (r *MariaDBSet) Promote(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	r.setReadOnly(i, false)
	r.primary = i
}

// Follow has a running replica follow another server of the set. It returns when it does.
func (r *MariaDBSet) Follow(t testing.TB, i, primary int) {
	t.Helper()
	if err := r.follow(i, primary); err != nil {
		t.Fatal(err)
	}
}

// Detach has a running replica follow nobody: it stays read-only and its data stands still. [MariaDBSet.Follow]
// ends it.
func (r *MariaDBSet) Detach(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "STOP SLAVE", "RESET SLAVE ALL")
}

// StopReplication has a replica receive and show no more changes. It goes on knowing whom it follows.
func (r *MariaDBSet) StopReplication(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "STOP SLAVE")
}

// StartReplication ends StopReplication.
func (r *MariaDBSet) StartReplication(t testing.TB, i int) {
	t.Helper()
	r.servers[i].mustDo(t, "START SLAVE")
}

// Delay has a replica show each change only that many whole seconds later; 0 ends it.
func (r *MariaDBSet) Delay(t testing.TB, i int, d time.Duration) {
	t.Helper()
	r.servers[i].mustDo(t, "STOP SLAVE", fmt.Sprintf("CHANGE MASTER TO MASTER_DELAY = %d", int(d.Seconds())), "START SLAVE")
}

// AwaitReplay waits until a replica shows everything that the primary has written by now.
func (r *MariaDBSet) AwaitReplay(t testing.TB, i int) {
	t.Helper()
	var written string
	if err := r.servers[r.primary].adminPool().QueryRow("SELECT @@gtid_binlog_pos").Scan(&written); err != nil {
		t.Fatal(err)
	}
	if err := r.servers[i].await("SELECT master_gtid_wait(?, 1) = 0", written); err != nil {
		t.Fatal(err)
	}
}

// Rejoin makes any other server of the set a replica of the primary, running or not. It starts from nothing and
// reads all that was ever written, so that its own unreplicated writes are lost. It returns when the server follows.
func (r *MariaDBSet) Rejoin(t testing.TB, i int) {
	t.Helper()
	if i == r.primary {
		t.Fatalf("server %d is the primary: it follows nobody", i)
	}
	s := r.servers[i]
	s.Stop(t)
	if err := os.RemoveAll(s.local.data()); err != nil {
		t.Fatal(err)
	}
	if err := copyTemplate(s.local.soft, s.local.as, s.local.data()); err != nil {
		t.Fatal(err)
	}
	r.setReadOnly(i, true)
	// Another id: what it wrote under the old one comes back to it, and a replica skips its own writes.
	s.local.settings = append(s.local.settings, r.nextID())
	s.Restart(t)
	r.Follow(t, i, r.primary)
}

// follow waits until the replica is connected.
func (r *MariaDBSet) follow(i, primary int) error {
	d := r.At(r.servers[primary].admin, primary)
	change := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = %s, MASTER_PORT = %d, MASTER_USER = %s, MASTER_PASSWORD = %s, "+
		"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1",
		EngineMySQL.literal(d.Host), d.Port, EngineMySQL.literal(d.User), EngineMySQL.literal(d.Password))
	s := r.servers[i]
	if err := s.do("STOP SLAVE", change, "START SLAVE"); err != nil {
		return err
	}
	return s.await("SELECT variable_value = 'ON' FROM information_schema.global_status WHERE variable_name = 'SLAVE_RUNNING'")
}

// nextID is the setting of a server id that no server of the set has had.
func (r *MariaDBSet) nextID() string {
	r.lastID++
	return fmt.Sprint("server-id=", r.lastID)
}

// setReadOnly says how the server is to start.
func (r *MariaDBSet) setReadOnly(i int, on bool) {
	l := r.servers[i].local
	l.settings = slices.DeleteFunc(l.settings, func(s string) bool { return s == readOnly })
	if on {
		l.settings = append(l.settings, readOnly)
	}
}

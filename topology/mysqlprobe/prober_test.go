package mysqlprobe_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// newProber returns a prober of a database, with its login.
func newProber(t *testing.T, d dbtest.Database, o mysqlprobe.Options) *mysqlprobe.Prober {
	t.Helper()
	prober, err := mysqlprobe.New(func(address string) (driver.Connector, error) {
		return mysql.Engine{}.Connector(address, d.Name, shardway.Credentials{User: d.User, Password: d.Password})
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return prober
}

// watch monitors all servers of a set.
func watch(t *testing.T, set *dbtest.MariaDBSet, d dbtest.Database, o mysqlprobe.Options) probetest.Watch {
	t.Helper()
	var addresses []string
	for i := range set.Servers() {
		addresses = append(addresses, set.Addr(i))
	}
	return probetest.Open(t, newProber(t, d, o), addresses...)
}

// newSet starts a set whose secondaries have its database and heartbeat table.
func newSet(t *testing.T, o dbtest.MariaDBSetOptions) (*dbtest.MariaDBSet, dbtest.Database, probe.Heartbeat) {
	t.Helper()
	set := dbtest.NewMariaDBSet(t, o)
	d := set.NewDatabase(t)
	h, err := probe.NewHeartbeat("mysql", heartbeat.Heartbeat)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(t).Exec(h.Create()); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(set.Servers()); i++ {
		set.AwaitReplay(t, i)
	}
	return set, d, h
}

var heartbeat = mysqlprobe.Options{Heartbeat: "shardway_heartbeat"}

func TestProbeRoles(t *testing.T) {
	t.Parallel()
	set, d, h := newSet(t, dbtest.MariaDBSetOptions{Secondaries: 2, Proxied: true})
	plain, beating := newProber(t, d, mysqlprobe.Options{}), newProber(t, d, heartbeat)
	if err := h.Beat(t.Context(), d.Open(t)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		role, upstream := topology.RoleSecondary, set.Addr(0)
		if i == 0 {
			role, upstream = topology.RolePrimary, ""
		} else {
			set.AwaitReplay(t, i)
		}
		o := probetest.Once(t, plain, set.Addr(i))
		if o.Role != role || o.Upstream != upstream || o.Detached || o.Term.Known() || o.Engine != "mysql" || !strings.Contains(o.Version, "MariaDB") {
			t.Errorf("server %d is %+v, want %v that follows %q", i, o, role, upstream)
		}
		if rtt, known := o.RTT.Value(); !known || rtt <= 0 {
			t.Errorf("server %d has round trip %v", i, o.RTT)
		}
		if i > 0 && o.Staleness != topology.Measured(0) {
			t.Errorf("secondary %d that has everything is %v behind", i, o.Staleness)
		}
		if o := probetest.Once(t, beating, set.Addr(i)); o.Term.Major != 1 || o.Staleness.Known() != (i > 0) || i > 0 && !o.Staleness.AtMost(probetest.Limit) {
			t.Errorf("with a heartbeat server %d is %+v", i, o)
		}
	}
}

// ROLE-03, ROLE-04, ROLE-10: the heartbeat's term keeps a former primary from
// getting its claim back.
func TestFailover(t *testing.T) {
	t.Parallel()
	set, d, h := newSet(t, dbtest.MariaDBSetOptions{Secondaries: 2, Proxied: true})
	m := watch(t, set, d, heartbeat)
	if err := h.Beat(t.Context(), d.Open(t)); err != nil {
		t.Fatal(err)
	}
	set.AwaitReplay(t, 1)
	m.Await(t, "server 0 as primary of term 1 and two secondaries", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(0).Term.Major == 1 && s.Server(1).Role == topology.RoleSecondary && s.Server(2).Role == topology.RoleSecondary
	})

	set.Kill(t, 0)
	m.Await(t, "no primary", probetest.NoPrimary)
	set.Promote(t, 1)
	set.Follow(t, 2, 1)
	m.Await(t, "server 1 as primary and server 2 behind it", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(1))(s) && s.Server(2).Upstream == set.Addr(1)
	})
	next := set.At(d, 1).Open(t)
	for range 2 { // only the first moves the term on
		if err := h.Beat(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		m.RequestCheck()
		m.Await(t, "term 2", func(s topology.Set) bool { return s.Server(1).Term.Major == 2 && s.Server(2).Term.Major == 2 })
	}

	set.Restart(t, 0)
	seen := m.Await(t, "a claim of server 0", func(s topology.Set) bool { return s.Server(0).Claimed == topology.RolePrimary })
	old := seen.Server(0)
	var conflict *topology.ConflictError
	if old.Role != topology.RoleUnknown || !errors.As(old.Err, &conflict) || conflict.Undecided || !probetest.IsPrimary(set.Addr(1))(seen) {
		t.Errorf("the former primary is %v with error %v in %v, want its claim refused", old.Role, old.Err, seen)
	}
	set.Rejoin(t, 0)
	m.Await(t, "server 0 as secondary of server 1", func(s topology.Set) bool {
		return s.Server(0).Role == topology.RoleSecondary && s.Server(0).Upstream == set.Addr(1) && s.Server(0).Term.Major == 2
	})
}

// Without a heartbeat there is no term, and two writable servers are refused.
func TestSplitBrainIsUndecided(t *testing.T) {
	t.Parallel()
	set, d, _ := newSet(t, dbtest.MariaDBSetOptions{})
	m := watch(t, set, d, mysqlprobe.Options{})
	m.Await(t, "a primary", probetest.IsPrimary(set.Addr(0)))
	set.Promote(t, 1)
	m.Await(t, "an undecided conflict", func(s topology.Set) bool {
		var conflict *topology.ConflictError
		return probetest.NoPrimary(s) && errors.As(s.Conflict(), &conflict) && conflict.Undecided
	})
}

// ROLE-02: a replica that lost its read-only flag does not become a writer.
func TestWritableReplica(t *testing.T) {
	t.Parallel()
	set, d, _ := newSet(t, dbtest.MariaDBSetOptions{Proxied: true})
	m := watch(t, set, d, mysqlprobe.Options{})
	m.Await(t, "a primary and a secondary", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(1).Role == topology.RoleSecondary
	})
	set.Server(1).Exec(t, "", "SET GLOBAL read_only = 0")
	seen := m.Await(t, "a claim of server 1", func(s topology.Set) bool { return s.Server(1).Claimed == topology.RolePrimary })
	if !probetest.IsPrimary(set.Addr(0))(seen) || seen.Conflict() == nil {
		t.Errorf("set is %v with conflict %v, want server 0 as primary and a conflict", seen, seen.Conflict())
	}
}

// ROLE-01: whatever setting refuses writes, the server is no primary.
func TestReadOnlySettings(t *testing.T) {
	t.Parallel()
	s := dbtest.NewMariaDB(t, dbtest.MariaDBOptions{})
	prober := newProber(t, s.Admin(), mysqlprobe.Options{})
	for _, setting := range []string{"read_only", "tx_read_only"} {
		s.Exec(t, "", "SET GLOBAL "+setting+" = 1")
		if o := probetest.Once(t, prober, s.Addr()); o.Role != topology.RoleSecondary || !o.Detached || o.Staleness.Known() {
			t.Errorf("with %s the server is %+v, want a secondary that follows nobody", setting, o)
		}
		s.Exec(t, "", "SET SESSION TRANSACTION READ WRITE; SET GLOBAL "+setting+" = 0")
		if o := probetest.Once(t, prober, s.Addr()); o.Role != topology.RolePrimary {
			t.Errorf("without %s the server is %+v", setting, o)
		}
	}
}

// LAG-01 and "NULL lag is unknown".
func TestStaleness(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop     func(t *testing.T, set *dbtest.MariaDBSet)
		detached bool
		known    bool // by the engine alone
	}{
		"replication stopped": {func(t *testing.T, set *dbtest.MariaDBSet) { t.Helper(); set.StopReplication(t, 1) }, true, false},
		"follows nobody":      {func(t *testing.T, set *dbtest.MariaDBSet) { t.Helper(); set.Detach(t, 1) }, true, false},
		"primary killed":      {func(t *testing.T, set *dbtest.MariaDBSet) { t.Helper(); set.Kill(t, 0) }, false, false},
		"primary cut off":     {func(_ *testing.T, set *dbtest.MariaDBSet) { set.Proxy(0).Cut() }, false, false},
		"delayed": {func(t *testing.T, set *dbtest.MariaDBSet) {
			t.Helper()
			set.Delay(t, 1, time.Hour)
			set.Server(0).Exec(t, "", "CREATE DATABASE late")
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, d, h := newSet(t, dbtest.MariaDBSetOptions{Proxied: true})
			if err := h.Beat(t.Context(), d.Open(t)); err != nil {
				t.Fatal(err)
			}
			set.AwaitReplay(t, 1)
			m, beating := watch(t, set, d, mysqlprobe.Options{}), newProber(t, d, heartbeat)
			m.Await(t, "a secondary in sync", func(s topology.Set) bool { return s.Server(1).Staleness == topology.Measured(0) })
			c.stop(t, set)
			seen := m.Await(t, "a secondary behind", func(s topology.Set) bool {
				return s.Server(1).Role == topology.RoleSecondary && s.Server(1).Staleness != topology.Measured(0)
			}).Server(1)
			if seen.Detached != c.detached || seen.Staleness.Known() != c.known {
				t.Errorf("secondary is detached %v and %v behind, want detached %v and known %v", seen.Detached, seen.Staleness, c.detached, c.known)
			}
			first := probetest.Once(t, beating, set.Addr(1)).Staleness
			second := probetest.Once(t, beating, set.Addr(1)).Staleness
			a, known := first.Value()
			if b, also := second.Value(); !known || !also || b <= a {
				t.Errorf("by the heartbeat the secondary is %v, then %v behind", first, second)
			}
		})
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	set, d, h := newSet(t, dbtest.MariaDBSetOptions{})
	user, password := set.Server(0).NewUser(t, "probe")
	set.Server(0).Exec(t, "", "GRANT CREATE VIEW ON `"+d.Name+"`.* TO '"+user+"'@'%'") // else it may not even name the database
	set.AwaitReplay(t, 1)
	prober := newProber(t, d.As(user, password), mysqlprobe.Options{})
	if o := probetest.Once(t, prober, set.Addr(0)); o.Role != topology.RolePrimary {
		t.Errorf("a login without rights sees the primary as %+v", o)
	}
	refused := func(prober *mysqlprobe.Prober, grant string) {
		t.Helper()
		o, err := probetest.Try(t, prober, set.Addr(1))
		var rights *probe.RightsError
		if !errors.As(err, &rights) || o.Role != topology.RoleUnknown || !strings.Contains(err.Error(), grant) || !strings.Contains(err.Error(), set.Addr(1)) {
			t.Fatalf("a login without rights sees the secondary as %+v with error %v", o, err)
		}
	}
	grants := mysqlprobe.GrantsMariaDB(user, heartbeat)
	refused(prober, grants[0])
	lenient := newProber(t, d.As(user, password), mysqlprobe.Options{PlainLogin: true})
	if o := probetest.Once(t, lenient, set.Addr(1)); o.Role != topology.RoleSecondary || o.Staleness.Known() || o.Detached {
		t.Errorf("where rights are waived the secondary is %+v", o)
	}
	beating := newProber(t, d.As(user, password), heartbeat)
	set.Server(0).Exec(t, d.Name, grants[0])
	set.AwaitReplay(t, 1)
	if o := probetest.Once(t, prober, set.Addr(1)); o.Staleness != topology.Measured(0) || o.Upstream != set.Addr(0) {
		t.Errorf("with %q the secondary is %+v", grants[0], o)
	}
	refused(beating, grants[1])
	if o := probetest.Once(t, beating, set.Addr(0)); o.Role != topology.RolePrimary {
		t.Errorf("a login that may not read the heartbeat sees the primary as %+v", o)
	}
	set.Server(0).Exec(t, d.Name, grants[1])
	if err := h.Beat(t.Context(), d.Open(t)); err != nil {
		t.Fatal(err)
	}
	set.AwaitReplay(t, 1)
	if o := probetest.Once(t, beating, set.Addr(1)); !o.Staleness.Known() || o.Term.Major != 1 {
		t.Errorf("with all rights the secondary is %+v", o)
	}
}

// ROLE-14, POOL-07: a mute server is unknown, and comes back.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	set, d, _ := newSet(t, dbtest.MariaDBSetOptions{Proxied: true})
	m := watch(t, set, d, mysqlprobe.Options{})
	m.Await(t, "both servers", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(1).Role == topology.RoleSecondary
	})
	set.Proxy(1).BlackHole()
	mute := m.Await(t, "a mute secondary", func(s topology.Set) bool { return s.Server(1).Role == topology.RoleUnknown })
	if err := mute.Server(1).Err; !errors.Is(err, topology.ErrProbeTimeout) {
		t.Errorf("error is %v, not a time-out", err)
	}
	set.Proxy(1).Restore()
	m.Await(t, "the secondary again", func(s topology.Set) bool { return s.Server(1).Role == topology.RoleSecondary })
}

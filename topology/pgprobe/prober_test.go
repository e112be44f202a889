package pgprobe_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// newProber returns a prober of a database, with its login.
func newProber(t *testing.T, d dbtest.Database, o pgprobe.Options) *pgprobe.Prober {
	t.Helper()
	prober, err := pgprobe.New(func(address string) (driver.Connector, error) {
		return postgres.Engine{}.Connector(address, d.Name, shardway.Credentials{User: d.User, Password: d.Password})
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return prober
}

// watch monitors all servers of a set.
func watch(t *testing.T, set *dbtest.PostgresSet) probetest.Watch {
	t.Helper()
	var addresses []string
	for i := range set.Servers() {
		addresses = append(addresses, set.Addr(i))
	}
	return probetest.Open(t, newProber(t, set.NewDatabase(t), pgprobe.Options{}), addresses...)
}

func TestProbeRoles(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	d := set.NewDatabase(t)
	prober := newProber(t, d, pgprobe.Options{})
	set.AwaitReplay(t, 1)
	set.AwaitReplay(t, 2)
	for i := range 3 {
		o := probetest.Once(t, prober, set.Addr(i))
		role, upstream := topology.RoleSecondary, set.Addr(0)
		if i == 0 {
			role, upstream = topology.RolePrimary, ""
		}
		if o.Role != role || o.Upstream != upstream || o.Detached || o.Term != (topology.Term{Major: 1}) || o.Engine != "postgres" {
			t.Errorf("server %d is %+v, want %v that follows %q in term 1", i, o, role, upstream)
		}
		if rtt, known := o.RTT.Value(); !known || rtt <= 0 {
			t.Errorf("server %d has round trip %v", i, o.RTT)
		}
		if o.Version == "" || o.LastWrite.IsZero() {
			t.Errorf("server %d has version %q and last write %v", i, o.Version, o.LastWrite)
		}
		if i > 0 && o.Staleness != topology.Measured(0) {
			t.Errorf("secondary %d that has everything is %v behind", i, o.Staleness)
		}
	}
}

// ROLE-03, ROLE-04, ROLE-10: after a promotion the former primary never gets
// its claim back, whether it was killed or comes back as it was.
func TestFailover(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	m := watch(t, set)
	seen := m.Await(t, "server 0 as primary and two secondaries", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(1).Role == topology.RoleSecondary && s.Server(2).Role == topology.RoleSecondary
	})
	if term := seen.Server(0).Term; term.Major != 1 {
		t.Errorf("first term is %v", term)
	}

	set.Kill(t, 0)
	m.Await(t, "no primary", probetest.NoPrimary)
	set.Promote(t, 1)
	set.Follow(t, 2, 1)
	seen = m.Await(t, "server 1 as primary and server 2 behind it", func(s topology.Set) bool {
		other := s.Server(2)
		return probetest.IsPrimary(set.Addr(1))(s) && other.Upstream == set.Addr(1) && other.Term.Major == 2
	})
	if term := seen.Server(1).Term; term.Major != 2 {
		t.Errorf("term after the promotion is %v, want 2", term)
	}

	set.Restart(t, 0)
	seen = m.Await(t, "a claim of server 0", func(s topology.Set) bool { return s.Server(0).Claimed == topology.RolePrimary })
	old := seen.Server(0)
	var conflict *topology.ConflictError
	if old.Role != topology.RoleUnknown || !errors.As(old.Err, &conflict) || conflict.Undecided {
		t.Errorf("the former primary is %v with error %v, want its claim refused", old.Role, old.Err)
	}
	if !probetest.IsPrimary(set.Addr(1))(seen) {
		t.Errorf("primary is not server 1 while the former one claims to be: %v", seen)
	}
	if old.Demotions == 0 {
		t.Error("the former primary's demotion was not counted")
	}

	set.Rejoin(t, 0)
	seen = m.Await(t, "server 0 as secondary", func(s topology.Set) bool { return s.Server(0).Role == topology.RoleSecondary })
	if old = seen.Server(0); old.Term.Major != 2 || old.Upstream != set.Addr(1) {
		t.Errorf("the rejoined server follows %q in term %v", old.Upstream, old.Term)
	}
}

// Two standbys promoted on their own have the same timeline: nothing decides.
func TestSplitBrainIsUndecided(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2})
	m := watch(t, set)
	m.Await(t, "a primary", probetest.IsPrimary(set.Addr(0)))
	set.Kill(t, 0)
	set.Promote(t, 1)
	set.Promote(t, 2)
	m.Await(t, "an undecided conflict", func(s topology.Set) bool {
		var conflict *topology.ConflictError
		return probetest.NoPrimary(s) && errors.As(s.Conflict(), &conflict) && conflict.Undecided && slices.Contains(conflict.Servers, set.Addr(2))
	})
}

// LAG-01 and "unknown lag is never zero": whatever keeps changes from a
// secondary, its staleness grows.
func TestStalenessGrows(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, set *dbtest.PostgresSet){
		"replay paused": func(t *testing.T, set *dbtest.PostgresSet) {
			t.Helper()
			set.PauseReplay(t, 1)
			set.Server(0).Exec(t, "", "CREATE TABLE late (n int)")
		},
		"primary killed":  func(t *testing.T, set *dbtest.PostgresSet) { t.Helper(); set.Kill(t, 0) },
		"primary cut off": func(_ *testing.T, set *dbtest.PostgresSet) { set.Proxy(0).Cut() },
		"primary is mute": func(_ *testing.T, set *dbtest.PostgresSet) { set.Proxy(0).BlackHole() },
		"follows nobody":  func(t *testing.T, set *dbtest.PostgresSet) { t.Helper(); set.Detach(t, 1) },
		"replays with lag": func(t *testing.T, set *dbtest.PostgresSet) {
			t.Helper()
			set.Delay(t, 1, time.Hour)
			set.Server(0).Exec(t, "", "CREATE TABLE late (n int)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Proxied: true, Settings: []string{"wal_receiver_timeout=2s"}})
			m := watch(t, set)
			m.Await(t, "a secondary in sync", func(s topology.Set) bool { return s.Server(1).Staleness == topology.Measured(0) })
			stop(t, set)
			var least time.Duration
			behind := func() topology.Server {
				t.Helper()
				seen := m.Await(t, "a secondary further behind", func(s topology.Set) bool {
					d, known := s.Server(1).Staleness.Value()
					if known && d < least {
						t.Errorf("secondary is %v behind after %v", d, least)
					}
					return known && d > least
				}).Server(1)
				least, _ = seen.Staleness.Value()
				return seen
			}
			behind()
			behind()
			later := behind()
			if later.Role != topology.RoleSecondary || later.Detached != (name == "follows nobody") {
				t.Errorf("secondary is %v, detached %v", later.Role, later.Detached)
			}
		})
	}
}

// LAG: nothing is written for longer than a silent link may go unnoticed, and
// the secondary is still not behind.
func TestIdlePrimaryIsNoLag(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Settings: []string{"wal_receiver_timeout=2s"}})
	m := watch(t, set)
	start := m.Await(t, "a secondary", func(s topology.Set) bool { return s.Server(1).Role == topology.RoleSecondary }).Server(1)
	m.Await(t, "an idle time of 4 s", func(s topology.Set) bool {
		now := s.Server(1)
		if now.Staleness != topology.Measured(0) {
			t.Errorf("secondary of an idle primary is %v behind", now.Staleness)
		}
		return now.LastUpdate.Sub(start.LastUpdate) > 4*time.Second
	})
}

// ROLE-14, POOL-07: a server that accepts and never answers is unknown, the
// others are not held up, and it comes back.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Proxied: true})
	m := watch(t, set)
	m.Await(t, "both servers", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(1).Role == topology.RoleSecondary
	})
	set.Proxy(1).BlackHole()
	mute := m.Await(t, "a mute secondary", func(s topology.Set) bool { return s.Server(1).Role == topology.RoleUnknown })
	if err := mute.Server(1).Err; !errors.Is(err, topology.ErrProbeTimeout) {
		t.Errorf("error is %v, not a time-out", err)
	}
	before := mute.Server(0).LastUpdate
	m.Await(t, "a check of the primary", func(s topology.Set) bool {
		return probetest.IsPrimary(set.Addr(0))(s) && s.Server(0).LastUpdate.After(before)
	})
	set.Proxy(1).Restore()
	m.Await(t, "the secondary again", func(s topology.Set) bool { return s.Server(1).Role == topology.RoleSecondary })
}

// A server that is told to refuse writes is no primary; a login that is told to
// only read does not change what the server is.
func TestReadOnlyPrimary(t *testing.T) {
	t.Parallel()
	s := dbtest.NewPostgres(t, dbtest.PostgresOptions{})
	d := s.NewDatabase(t)
	user, password := s.NewUser(t, "probe")
	s.Exec(t, "", `ALTER ROLE "`+user+`" SET default_transaction_read_only = on`)
	prober := newProber(t, d.As(user, password), pgprobe.Options{})
	if o := probetest.Once(t, prober, s.Addr()); o.Role != topology.RolePrimary {
		t.Errorf("with a read-only login the server is %+v", o)
	}
	s.Exec(t, "", `ALTER DATABASE "`+d.Name+`" SET default_transaction_read_only = on`)
	other := newProber(t, d, pgprobe.Options{})
	if o := probetest.Once(t, other, s.Addr()); o.Role != topology.RoleSecondary || !o.Detached || o.Staleness.Known() {
		t.Errorf("a read-only database is %+v, want a secondary that follows nobody", o)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	d := set.NewDatabase(t)
	user, password := set.Server(0).NewUser(t, `probe`)
	set.AwaitReplay(t, 1)
	plain := d.As(user, password)
	prober := newProber(t, plain, pgprobe.Options{})
	if o := probetest.Once(t, prober, set.Addr(0)); o.Role != topology.RolePrimary || o.Term.Major != 1 {
		t.Errorf("a login without rights sees the primary as %+v", o)
	}
	o, err := probetest.Try(t, prober, set.Addr(1))
	var rights *probe.RightsError
	grants := pgprobe.Grants(user, pgprobe.Options{})
	if !errors.As(err, &rights) || o.Role != topology.RoleUnknown || !strings.Contains(err.Error(), grants[0]) || !strings.Contains(err.Error(), set.Addr(1)) {
		t.Fatalf("a login without rights sees the secondary as %+v with error %v", o, err)
	}
	lenient := newProber(t, plain, pgprobe.Options{PlainLogin: true})
	if o := probetest.Once(t, lenient, set.Addr(1)); o.Role != topology.RoleSecondary || o.Staleness.Known() || o.Detached {
		t.Errorf("where rights are waived the secondary is %+v", o)
	}
	for _, grant := range grants {
		set.Server(0).Exec(t, d.Name, grant)
	}
	set.AwaitReplay(t, 1)
	if o := probetest.Once(t, prober, set.Addr(1)); o.Staleness != topology.Measured(0) || o.Upstream != set.Addr(0) {
		t.Errorf("with %v the secondary is %+v", grants, o)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	d := set.NewDatabase(t)
	user, password := set.Server(0).NewUser(t, "probe")
	set.Server(0).Exec(t, d.Name, "CREATE SCHEMA watch; GRANT pg_monitor TO \""+user+"\"")
	set.AwaitReplay(t, 1)
	o := pgprobe.Options{Heartbeat: "watch.Beat"}
	h, err := probe.NewHeartbeat("postgres", o.Heartbeat)
	if err != nil {
		t.Fatal(err)
	}
	prober := newProber(t, d.As(user, password), o)
	refused := func(why string) {
		t.Helper()
		if seen := probetest.Once(t, prober, set.Addr(0)); seen.Role != topology.RolePrimary {
			t.Errorf("%s: the primary is %+v", why, seen)
		}
		_, err := probetest.Try(t, prober, set.Addr(1))
		var rights *probe.RightsError
		if !errors.As(err, &rights) || !strings.Contains(err.Error(), `GRANT SELECT ON "watch"."Beat"`) {
			t.Errorf("%s: error is %v", why, err)
		}
	}
	refused("no table")
	primary := d.Open(t)
	for range 2 {
		if _, err := primary.Exec(h.Create()); err != nil {
			t.Fatal(err)
		}
	}
	set.AwaitReplay(t, 1)
	refused("no right")
	for _, grant := range pgprobe.Grants(user, o) {
		set.Server(0).Exec(t, d.Name, grant)
	}
	set.AwaitReplay(t, 1)
	if seen := probetest.Once(t, prober, set.Addr(1)); seen.Role != topology.RoleSecondary || seen.Staleness.Known() {
		t.Errorf("without any beat the secondary is %+v", seen)
	}
	beat := func() {
		t.Helper()
		if err := h.Beat(t.Context(), primary); err != nil {
			t.Fatal(err)
		}
		set.AwaitReplay(t, 1)
	}
	beat()
	first := probetest.Once(t, prober, set.Addr(1)).Staleness
	second := probetest.Once(t, prober, set.Addr(1)).Staleness
	a, known := first.Value()
	if b, also := second.Value(); !known || !also || b <= a || b > probetest.Limit {
		t.Errorf("without a further beat the secondary is %v, then %v behind", first, second)
	}
	beat()
	if seen := probetest.Once(t, prober, set.Addr(1)); !seen.Staleness.AtMost(probetest.Limit) || seen.LastWrite.IsZero() {
		t.Errorf("after a second beat the secondary is %+v", seen)
	}
}

// Probes share one connection to a server, which is not a user's; it is closed
// with the prober, and replaced when it breaks or the server is a new one.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	s := dbtest.NewPostgres(t, dbtest.PostgresOptions{})
	d := s.NewDatabase(t)
	user, password := s.NewUser(t, "probe")
	admin := d.Open(t)
	sessions := func() (pids []int) {
		rows, err := admin.Query("SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY pid", user)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var pid int
			if err := rows.Scan(&pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return pids
	}
	prober := newProber(t, d.As(user, password), pgprobe.Options{})
	for range 5 {
		probetest.Once(t, prober, s.Addr())
	}
	first := sessions()
	if len(first) != 1 {
		t.Fatalf("%d connections after 5 probes", len(first))
	}
	s.Exec(t, "", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+user+"'")
	probetest.Once(t, prober, s.Addr())
	s.Restart(t)
	probetest.Once(t, prober, s.Addr())
	second := sessions()
	if len(second) != 1 || second[0] == first[0] {
		t.Errorf("connections %v after %v broke", second, first)
	}
	ctx, cancel := context.WithTimeout(t.Context(), probetest.Limit)
	defer cancel()
	if _, err := prober.Probe(ctx, topology.Server{Address: s.Addr(), Generation: 7}); err != nil {
		t.Fatal(err)
	}
	if third := sessions(); slices.Equal(second, third) {
		t.Error("a new server at the same address got the connection of the former one")
	}
	for range 2 {
		if err := prober.Close(); err != nil {
			t.Error(err)
		}
	}
	for len(sessions()) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("connections %v are left after Close", sessions())
		}
	}
	if _, err := probetest.Try(t, prober, s.Addr()); !errors.Is(err, probe.ErrClosed) {
		t.Errorf("a probe after Close: %v", err)
	}
}

// POOL-08, OBS-02: a server that is down is an error that names it.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := dbtest.NewPostgres(t, dbtest.PostgresOptions{})
	d := s.NewDatabase(t)
	prober := newProber(t, d, pgprobe.Options{})
	s.Stop(t)
	if o, err := probetest.Try(t, prober, s.Addr()); err == nil || o.Role != topology.RoleUnknown || !strings.Contains(err.Error(), s.Addr()) || strings.Contains(err.Error(), d.Password) {
		t.Errorf("a stopped server is %+v with error %v", o, err)
	}
	s.Restart(t)
	if o := probetest.Once(t, prober, s.Addr()); o.Role != topology.RolePrimary {
		t.Errorf("started, the server is %+v", o)
	}
	if _, err := probetest.Try(t, newProber(t, d.As(d.User, "wrong"), pgprobe.Options{}), s.Addr()); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := pgprobe.New(nil, pgprobe.Options{Heartbeat: "a.b.c"}); err == nil {
		t.Error("a heartbeat table a.b.c is accepted")
	}
}

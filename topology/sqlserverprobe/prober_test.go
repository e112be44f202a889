package sqlserverprobe_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlserver"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// serverError is an error as the driver reports it.
type serverError int32

func (e serverError) Error() string         { return "mssql: permission was denied" }
func (e serverError) SQLErrorNumber() int32 { return int32(e) }

// fake is a server: what it answers to each of the texts.
type fake struct {
	edition, groups int64
	role            []driver.Value     // the first six columns
	replica         []driver.Value     // the others
	told            []probetest.Answer // the answers after the first
	refuse          error              // for what is more than the role

	asked []string
}

func (f *fake) answer(query string) []probetest.Answer {
	f.asked = append(f.asked, query)
	row := append([]driver.Value(nil), f.role...)
	switch {
	case strings.Contains(query, "EngineEdition"):
		row = []driver.Value{f.edition, f.groups}
	case f.refuse != nil && strings.Contains(query, "FROM"):
		return []probetest.Answer{{Err: f.refuse}}
	case strings.Contains(query, "replica_states"):
		row = append(row, f.replica...)
	}
	answers := []probetest.Answer{{Columns: make([]string, len(row)), Rows: [][]driver.Value{row}}}
	if strings.Contains(query, "availability_replicas") {
		answers = append(answers, f.told...)
	}
	return answers
}

func (f *fake) prober(t *testing.T, o sqlserverprobe.Options) *sqlserverprobe.Prober {
	t.Helper()
	prober, err := sqlserverprobe.New(func(string) (driver.Connector, error) { return probetest.Fake(f.answer), nil }, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return prober
}

// role is the first part of an answer.
func role(status, mode any) []driver.Value {
	return []driver.Value{"16.0.4003", "probe", status, mode, int64(3_000_000), int64(4)}
}

// replica is the second part.
func replica(primary, suspended int64, state string, redo, sinceCommit any) []driver.Value {
	return []driver.Value{primary, suspended, state, redo, sinceCommit}
}

const second = int64(1_000_000)

func TestObserve(t *testing.T) {
	t.Parallel()
	primary, secondary := topology.RolePrimary, topology.RoleSecondary
	behind := topology.Measured
	none := []driver.Value{nil, nil, nil, nil, nil}
	for name, c := range map[string]struct {
		fake    fake
		options sqlserverprobe.Options
		want    topology.Observation
	}{
		"alone": {fake{edition: 3, role: role("ONLINE", "READ_WRITE")}, sqlserverprobe.Options{}, topology.Observation{Role: primary}},
		"alone and read-only": {
			fake{edition: 3, role: role("ONLINE", "READ_ONLY")},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Detached: true},
		},
		"restoring":        {fake{edition: 3, role: role("RESTORING", nil)}, sqlserverprobe.Options{}, topology.Observation{Role: topology.RoleOther}},
		"no answer at all": {fake{edition: 3, role: role(nil, nil)}, sqlserverprobe.Options{}, topology.Observation{Role: topology.RoleOther}},
		"primary of a group": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_WRITE"), replica: replica(1, 0, "SYNCHRONIZED", nil, second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: primary},
		},
		"group says secondary": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_WRITE"), replica: replica(0, 0, "SYNCHRONIZING", int64(0), second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Staleness: behind(time.Second)},
		},
		"synchronized": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 0, "SYNCHRONIZED", int64(0), 9*second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Staleness: behind(0)},
		},
		"has yet to redo": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 0, "SYNCHRONIZED", int64(64), 9*second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Staleness: behind(9 * time.Second)},
		},
		"redo unknown": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 0, "SYNCHRONIZED", nil, nil)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary},
		},
		"suspended": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 1, "NOT SYNCHRONIZING", int64(0), 9*second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Detached: true, Staleness: behind(9 * time.Second)},
		},
		"read-only outside the group": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: none},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Detached: true},
		},
		"Azure": {
			fake{edition: 5, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 0, "SYNCHRONIZING", int64(0), 2*second)},
			sqlserverprobe.Options{},
			topology.Observation{Role: secondary, Staleness: behind(2 * time.Second)},
		},
		"heartbeat": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), replica: replica(0, 0, "SYNCHRONIZED", int64(0), second)},
			sqlserverprobe.Options{Heartbeat: "dbo.beat"},
			topology.Observation{Role: secondary, Staleness: behind(3 * time.Second)},
		},
		"rights waived": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_ONLY"), refuse: serverError(300)},
			sqlserverprobe.Options{PlainLogin: true},
			topology.Observation{Role: secondary},
		},
		"primary without rights": {
			fake{edition: 3, groups: 1, role: role("ONLINE", "READ_WRITE"), refuse: serverError(300)},
			sqlserverprobe.Options{},
			topology.Observation{Role: primary},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := probetest.Once(t, c.fake.prober(t, c.options), "db1:1433")
			c.want.Engine, c.want.Version, c.want.Term = "sqlserver", "16.0.4003", topology.Term{Major: 4}
			c.want.RTT = got.RTT
			if !got.RTT.Known() {
				t.Error("the round trip is unknown")
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(topology.Measurement{})); diff != "" {
				t.Errorf("observation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fake  fake
		grant string
	}{
		"server":        {fake{edition: 3, groups: 1, refuse: serverError(300)}, "GRANT VIEW SERVER STATE TO [probe]"},
		"managed":       {fake{edition: 8, groups: 1, refuse: serverError(297)}, "GRANT VIEW SERVER STATE TO [probe]"},
		"Azure":         {fake{edition: 5, refuse: serverError(262)}, "GRANT VIEW DATABASE STATE TO [probe]"},
		"heartbeat":     {fake{edition: 3, groups: 1, refuse: serverError(229)}, "GRANT SELECT ON [dbo].[be]]at] TO [probe]"},
		"no such table": {fake{edition: 3, groups: 1, refuse: serverError(208)}, "[dbo].[be]]at]"},
	} {
		c.fake.role = role("ONLINE", "READ_ONLY")
		_, err := probetest.Try(t, c.fake.prober(t, sqlserverprobe.Options{Heartbeat: "dbo.be]at"}), "db1:1433")
		var rights *probe.RightsError
		if !errors.As(err, &rights) || !strings.Contains(err.Error(), c.grant) || !strings.Contains(err.Error(), "db1:1433") || !errors.Is(err, c.fake.refuse) {
			t.Errorf("%s: error is %v, want one that names %s", name, err, c.grant)
		}
	}
	broken := fake{edition: 3, groups: 1, role: role("ONLINE", "READ_WRITE"), refuse: serverError(1205)}
	if o, err := probetest.Try(t, broken.prober(t, sqlserverprobe.Options{}), "db1:1433"); err == nil || o.Role != topology.RoleUnknown {
		t.Errorf("a server that fails otherwise is %+v with error %v", o, err)
	}
}

// The texts as they go to a server that no test can start.
func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edition, groups int64
		table           string
	}{
		"alone": {3, 0, ""}, "alone-heartbeat": {3, 0, "shardway.heartbeat"},
		"group": {3, 1, ""}, "group-heartbeat": {3, 1, "shardway.heartbeat"}, "azure": {5, 0, ""},
	} {
		f := fake{edition: c.edition, groups: c.groups, role: role("ONLINE", "READ_WRITE"), replica: replica(1, 0, "SYNCHRONIZED", nil, nil)}
		prober := f.prober(t, sqlserverprobe.Options{Heartbeat: c.table})
		for range 2 {
			probetest.Once(t, prober, "db1:1433")
		}
		// One question for the edition, then two on the new connection, then one for each probe.
		if len(f.asked) != 1+2+1 || f.asked[1] != f.asked[3] {
			t.Errorf("%s: two probes asked %q", name, f.asked)
		}
		probetest.Golden(t, name+".sql", f.asked[0]+"\n\n"+f.asked[1]+"\n")
	}
}

// A user's own server that is in no group.
func TestRealServer(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLServer(t).NewDatabase(t)
	prober, err := sqlserverprobe.New(func(address string) (driver.Connector, error) {
		return sqlserver.Engine{}.Connector(address, d.Name, shardway.Credentials{User: d.User, Password: d.Password})
	}, sqlserverprobe.Options{Heartbeat: "heartbeat"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	if o := probetest.Once(t, prober, d.Addr()); o.Role != topology.RolePrimary || o.Term.Known() {
		t.Errorf("before the heartbeat the server is %+v", o)
	}
	h, err := probe.NewHeartbeat("sqlserver", "heartbeat")
	if err != nil {
		t.Fatal(err)
	}
	pool := d.Open(t)
	if _, err := pool.Exec(h.Create()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.Beat(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	if o := probetest.Once(t, prober, d.Addr()); o.Role != topology.RolePrimary || o.Term.Major != 1 {
		t.Errorf("with a heartbeat the server is %+v", o)
	}
}

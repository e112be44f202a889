package mysqlprobe_test

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
)

// fake is a server that cannot be started here. Its rows are those of the query.
type fake struct {
	version string
	rows    [][]driver.Value
	shown   []probetest.Answer // MariaDB's further answers
	refuse  error              // for what is more than the role

	asked []string
}

func (f *fake) answer(query string) []probetest.Answer {
	f.asked = append(f.asked, query)
	if query == "SELECT VERSION()" {
		return []probetest.Answer{{Columns: []string{"version"}, Rows: [][]driver.Value{{f.version}}}}
	}
	if f.refuse != nil && strings.Contains(query, "FROM") {
		return []probetest.Answer{{Err: f.refuse}}
	}
	rows := f.rows
	if !strings.Contains(query, "performance_schema") {
		rows = [][]driver.Value{f.rows[0][:7]}
	}
	answers := []probetest.Answer{{Columns: make([]string, len(rows[0])), Rows: rows}}
	return append(answers, f.shown...)
}

func (f *fake) prober(t *testing.T, o mysqlprobe.Options) *mysqlprobe.Prober {
	t.Helper()
	prober, err := mysqlprobe.New(func(string) (driver.Connector, error) { return probetest.Fake(f.answer), nil }, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return prober
}

// row is MySQL's answer for one channel; channel is nil or has seven columns.
func row(readOnly driver.Value, channel ...driver.Value) []driver.Value {
	if channel == nil {
		channel = make([]driver.Value, 7)
	}
	return append([]driver.Value{"8.4.3", "probe@%", readOnly, "0", "0", int64(3_000_000), int64(4)}, channel...)
}

const second = int64(1_000_000)

func TestObserveMySQL(t *testing.T) {
	t.Parallel()
	channel := func(io, applier string, complete, applying, applied driver.Value) []driver.Value {
		return row("1", "db0", int64(3306), io, applier, complete, applying, applied)
	}
	for name, c := range map[string]struct {
		rows [][]driver.Value
		want topology.Observation
	}{
		"primary":          {[][]driver.Value{row("0")}, topology.Observation{Role: topology.RolePrimary}},
		"follows nobody":   {[][]driver.Value{row("1")}, topology.Observation{Role: topology.RoleSecondary, Detached: true}},
		"setting unknown":  {[][]driver.Value{row("")}, topology.Observation{Role: topology.RoleSecondary, Detached: true}},
		"setting in words": {[][]driver.Value{row("OFF")}, topology.Observation{Role: topology.RolePrimary}},
		"locked for all but some": {
			[][]driver.Value{row("NO_LOCK_NO_ADMIN")},
			topology.Observation{Role: topology.RoleSecondary, Detached: true},
		},
		"writable and follows": {
			[][]driver.Value{row("0", "DB0", int64(3306), "ON", "ON", int64(1), nil, nil)},
			topology.Observation{Role: topology.RolePrimary, Upstream: "db0:3306"},
		},
		"has everything": {
			[][]driver.Value{channel("ON", "ON", int64(1), nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306", Staleness: topology.Measured(0)},
		},
		"applies": {
			[][]driver.Value{channel("ON", "ON", int64(0), 2*second, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306", Staleness: topology.Measured(2 * time.Second)},
		},
		"about to apply": {
			[][]driver.Value{channel("ON", "ON", int64(0), nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306", Staleness: topology.Measured(9 * time.Second)},
		},
		"without GTIDs": {
			[][]driver.Value{channel("ON", "ON", nil, nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306"},
		},
		"connecting": {
			[][]driver.Value{channel("CONNECTING", "ON", int64(1), nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306"},
		},
		"receiver stopped": {
			[][]driver.Value{channel("OFF", "ON", int64(1), nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306", Detached: true},
		},
		"applier broke": {
			[][]driver.Value{channel("ON", "OFF", int64(0), nil, 9*second)},
			topology.Observation{Role: topology.RoleSecondary, Upstream: "db0:3306", Detached: true},
		},
		"two channels, one behind": {
			[][]driver.Value{channel("ON", "ON", int64(0), 2*second, nil), channel("ON", "ON", int64(1), nil, nil)},
			topology.Observation{Role: topology.RoleSecondary, Staleness: topology.Measured(2 * time.Second)},
		},
		"two channels, one stopped": {
			[][]driver.Value{channel("ON", "ON", int64(1), nil, nil), channel("OFF", "OFF", int64(1), nil, nil)},
			topology.Observation{Role: topology.RoleSecondary},
		},
	} {
		f := fake{version: "8.4.3", rows: c.rows}
		got := probetest.Once(t, f.prober(t, mysqlprobe.Options{}), "db1:3306")
		c.want.Engine, c.want.Version, c.want.Term, c.want.RTT = "mysql", "8.4.3", topology.Term{Major: 4}, got.RTT
		if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(topology.Measurement{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// MariaDB's second answer is read by the names of its columns, whatever their
// order. A lag that is told although nothing arrives is not believed.
func TestObserveMariaDB(t *testing.T) {
	t.Parallel()
	columns := []string{"New_Column", "Seconds_Behind_Master", "Slave_SQL_Running", "Slave_IO_Running", "Master_Port", "Master_Host"}
	for name, c := range map[string]struct {
		status []driver.Value
		want   topology.Observation
	}{
		"in sync":    {[]driver.Value{"", int64(0), "Yes", "Yes", int64(3306), "db0"}, topology.Observation{Upstream: "db0:3306", Staleness: topology.Measured(0)}},
		"behind":     {[]driver.Value{"", int64(7), "Yes", "Yes", int64(3306), "db0"}, topology.Observation{Upstream: "db0:3306", Staleness: topology.Measured(7 * time.Second)}},
		"NULL":       {[]driver.Value{"", nil, "Yes", "Yes", int64(3306), "db0"}, topology.Observation{Upstream: "db0:3306"}},
		"connecting": {[]driver.Value{"", int64(0), "Yes", "Connecting", int64(3306), "db0"}, topology.Observation{Upstream: "db0:3306"}},
		"broke":      {[]driver.Value{"", nil, "No", "Yes", int64(3306), "db0"}, topology.Observation{Upstream: "db0:3306", Detached: true}},
		"elsewhere":  {[]driver.Value{"", int64(0), "Yes", "Yes", int64(0), ""}, topology.Observation{Staleness: topology.Measured(0)}},
	} {
		f := fake{version: "10.11.19-MariaDB", rows: [][]driver.Value{row("1")}, shown: []probetest.Answer{{Columns: columns, Rows: [][]driver.Value{c.status}}}}
		got := probetest.Once(t, f.prober(t, mysqlprobe.Options{}), "db1:3306")
		c.want.Role, c.want.Engine, c.want.Version, c.want.Term, c.want.RTT = topology.RoleSecondary, "mysql", got.Version, topology.Term{Major: 4}, got.RTT
		if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(topology.Measurement{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRightsMySQL(t *testing.T) {
	t.Parallel()
	f := fake{version: "8.4.3", rows: [][]driver.Value{row("1")}, refuse: &mysql.MySQLError{Number: 1142}}
	_, err := probetest.Try(t, f.prober(t, mysqlprobe.Options{}), "db1:3306")
	var rights *probe.RightsError
	if !errors.As(err, &rights) || !errors.Is(err, f.refuse) || !strings.Contains(err.Error(), "GRANT SELECT ON performance_schema.replication_connection_status TO 'probe'@'%'") {
		t.Errorf("error is %v", err)
	}
	lenient := probetest.Once(t, f.prober(t, mysqlprobe.Options{PlainLogin: true}), "db1:3306")
	if lenient.Role != topology.RoleSecondary || lenient.Detached || lenient.Staleness.Known() {
		t.Errorf("where rights are waived the secondary is %+v", lenient)
	}
	f.rows = [][]driver.Value{row("0")}
	if o := probetest.Once(t, f.prober(t, mysqlprobe.Options{}), "db1:3306"); o.Role != topology.RolePrimary {
		t.Errorf("the primary is %+v", o)
	}
	f.refuse = &mysql.MySQLError{Number: 1213}
	if o, err := probetest.Try(t, f.prober(t, mysqlprobe.Options{}), "db1:3306"); err == nil || o.Role != topology.RoleUnknown {
		t.Errorf("a server that fails otherwise is %+v with error %v", o, err)
	}
}

// The texts as they go to each product, the version first, one question for
// each probe.
func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		options mysqlprobe.Options
	}{
		"mysql":             {"8.4.3", mysqlprobe.Options{}},
		"mysql-heartbeat":   {"8.4.3", mysqlprobe.Options{Heartbeat: "ops.be`at"}},
		"mysql-plain":       {"8.4.3", mysqlprobe.Options{PlainLogin: true}},
		"mariadb":           {"5.5.5-10.11.19-MariaDB-log", mysqlprobe.Options{}},
		"mariadb-11":        {"11.8.2-MariaDB", mysqlprobe.Options{}},
		"mariadb-heartbeat": {"11.0.6-MariaDB", mysqlprobe.Options{Heartbeat: "beat"}},
	} {
		f := fake{version: c.version, rows: [][]driver.Value{row("0")}, shown: []probetest.Answer{{}}}
		prober := f.prober(t, c.options)
		for range 2 {
			probetest.Once(t, prober, "db1:3306")
		}
		if len(f.asked) != 1+2+1 || f.asked[1] != f.asked[3] {
			t.Errorf("%s: two probes asked %q", name, f.asked)
		}
		probetest.Golden(t, name+".sql", f.asked[1]+"\n")
	}
}

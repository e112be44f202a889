package mysqlprobe_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
)

// A primary tells of its replicas as they report themselves, a replica of its
// primary; a login without the right is told nothing and misses nothing else.
func TestTold(t *testing.T) {
	t.Parallel()
	set := dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{Secondaries: 2, Settings: []string{"report-host=DB.example"}})
	d := set.NewDatabase(t)
	var replicas []string
	for i := 1; i <= 2; i++ {
		replicas = append(replicas, fmt.Sprintf("db.example:%d", set.Server(i).Port()))
		set.AwaitReplay(t, i)
	}
	replicas = sorted(replicas)
	user, password := set.Server(0).NewUser(t, "probe")
	grants := mysqlprobe.GrantsMariaDB(user, mysqlprobe.Options{})
	set.Server(0).Exec(t, d.Name, "GRANT CREATE VIEW ON `"+d.Name+"`.* TO '"+user+"'@'%'; "+grants[0])
	check := func(login dbtest.Database, want []string) {
		t.Helper()
		prober := newProber(t, login, mysqlprobe.Options{})
		for i := range 3 {
			set.AwaitReplay(t, max(i, 1))
			o := probetest.Once(t, prober, set.Addr(i))
			if i > 0 && (o.Told != nil || o.Upstream != set.Addr(0)) || i == 0 && (!slices.Equal(sorted(o.Told), want) || o.Upstream != "") {
				t.Errorf("server %d as %s is %+v, want told %q by the primary alone", i, login.User, o, want)
			}
			if o.Detached || o.Staleness.Known() != (i > 0) {
				t.Errorf("server %d as %s is %+v", i, login.User, o)
			}
		}
	}
	check(d, replicas)
	plain := d.As(user, password)
	check(plain, nil)
	set.Server(0).Exec(t, "", "GRANT REPLICATION MASTER ADMIN ON *.* TO '"+user+"'@'%'")
	check(plain, replicas)
	set.Server(0).Exec(t, "", "REVOKE SLAVE MONITOR ON *.* FROM '"+user+"'@'%'")
	set.AwaitReplay(t, 1)
	var rights *probe.RightsError
	if o, err := probetest.Try(t, newProber(t, plain, mysqlprobe.Options{}), set.Addr(1)); !errors.As(err, &rights) {
		t.Errorf("with the right to see replicas alone the secondary is %+v with error %v, want its own right missing", o, err)
	}
	if o := probetest.Once(t, newProber(t, plain, mysqlprobe.Options{}), set.Addr(0)); !slices.Equal(sorted(o.Told), replicas) {
		t.Errorf("with the right to see replicas alone the primary is %+v", o)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// Answers are known by their columns, whichever are missing; what names no host
// or no port is not told.
func TestToldMariaDB(t *testing.T) {
	t.Parallel()
	hosts := probetest.Answer{
		Columns: []string{"Server_id", "Host", "Password", "Port", "Master_id"},
		Rows: [][]driver.Value{
			{int64(2), "db2", "secret", int64(3306), int64(1)},
			{int64(3), "", "", int64(3306), int64(1)},
			{int64(4), "db4", "", int64(0), int64(1)},
			{int64(5), nil, nil, nil, nil},
			{int64(6), "fe80::1", "", int64(3307), int64(1)},
		},
	}
	status := probetest.Answer{
		Columns: []string{"Slave_IO_Running", "Slave_SQL_Running", "Master_Host", "Master_Port", "Host", "Port"},
		Rows:    [][]driver.Value{{"Yes", "Yes", "db0", int64(3306), "other", int64(1)}},
	}
	want := []string{"db2:3306", "[fe80::1]:3307"}
	for name, c := range map[string]struct {
		shown    []probetest.Answer
		upstream string
		told     []string
	}{
		"both":    {[]probetest.Answer{status, hosts}, "db0:3306", want},
		"status":  {[]probetest.Answer{status}, "db0:3306", nil},
		"hosts":   {[]probetest.Answer{hosts, {}}, "", want},
		"neither": {nil, "", nil},
	} {
		f := fake{version: "10.11.19-MariaDB", rows: [][]driver.Value{row("0")}, shown: c.shown}
		got := probetest.Once(t, f.prober(t, mysqlprobe.Options{}), "db1:3306")
		if diff := cmp.Diff(c.told, got.Told); diff != "" || got.Upstream != c.upstream {
			t.Errorf("%s: follows %q and tells (-want +got):\n%s", name, got.Upstream, diff)
		}
	}
}

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/probe"
)

// replicaSet is what both kinds of replica set can do.
type replicaSet interface {
	Servers() []*dbtest.Server
	Addr(i int) string
	NewDatabase(t testing.TB) dbtest.Database
	Kill(t testing.TB, i int)
	AwaitReplay(t testing.TB, i int)
}

// replicated is a shard "a" with the keys [0, 100) on real servers; the first
// one is the primary. They have the tags zone=z0, zone=z1 and so on.
type replicated struct {
	t   *testing.T
	set replicaSet
	program
	admin    program
	database dbtest.Database
}

// newReplicated sets a shard up with the tool, as an operator does. The login
// of the tool on the shard is that of an application, after the given grants.
func newReplicated(t *testing.T, set replicaSet, grants func(user string) []string) replicated {
	t.Helper()
	d := set.NewDatabase(t)
	global := dbtest.Database{Engine: "sqlite", Name: dbtest.SQLite(t)}
	env := []string{"SHARDWAY_STORE=" + global.DSN(), "SHARDWAY_MAP=customers"}
	admin := newProgram(t, append(env, "SHARDWAY_SHARD_USER="+d.User, "SHARDWAY_SHARD_PASSWORD="+d.Password)...)
	admin.must("init")
	admin.must("map", "create", "customers", "--kind", "range", "--key", "int64")
	add := []string{"shard", "add", "a", location(d)}
	for i := range set.Servers() {
		add = append(add, "--server", fmt.Sprintf("%s,zone=z%d", set.Addr(i), i))
	}
	admin.must(add...)
	admin.must("mapping", "add", "--shard", "a", "--low", "0", "--high", "100")
	user, password := set.Servers()[0].NewUser(t, "app")
	sections, err := grantSections(d.Engine, grantees{application: user})
	if err != nil {
		t.Fatal(err)
	}
	var statements []string
	for _, s := range sections {
		statements = append(statements, s.Statements...)
	}
	statements = append(statements, grants(user)...)
	set.Servers()[0].Exec(t, d.Name, strings.Join(statements, ";\n"))
	for i := range set.Servers() {
		if i > 0 {
			set.AwaitReplay(t, i)
		}
	}
	r := replicated{t: t, set: set, admin: admin, database: d}
	r.program = newProgram(t, append(env, "SHARDWAY_SHARD_USER="+user, "SHARDWAY_SHARD_PASSWORD="+password)...)
	return r
}

// look returns the servers of the shard as programs read them.
func (r replicated) look() shardServersView {
	r.t.Helper()
	out := r.must("servers", "a", "--output", "json", "--local-threshold", "1m").out
	var views []shardServersView
	if err := json.Unmarshal([]byte(out), &views); err != nil || len(views) != 1 {
		r.t.Fatalf("%d shards, %v, in %s", len(views), err, out)
	}
	return views[0]
}

// route returns the choice for a key.
func (r replicated) route(flags ...string) choiceView {
	r.t.Helper()
	out := r.must(append([]string{"route", "7", "--output", "json", "--explain", "--local-threshold", "1m"}, flags...)...).out
	var v routeView
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Choice == nil || !v.Explained.Validated {
		r.t.Fatalf("%v, choice %v, explanation %v, in %s", err, v.Choice, v.Explained, out)
	}
	return *v.Choice
}

// steps are the steps of all servers, in order.
func (v choiceView) steps() []string {
	var all []string
	for _, m := range v.Members {
		all = append(all, m.Step)
	}
	return all
}

// grantsOfProber are those that the command prints for the product.
func grantsOfProber(t *testing.T, engine, product string) func(string) []string {
	return func(user string) []string {
		t.Helper()
		sections, err := grantSections(engine, grantees{prober: user})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(sections, func(s grantSection) bool { return strings.HasSuffix(s.Where, product) })
		return sections[i].Statements
	}
}

// TestServers looks at real servers with no more rights than "grants" prints.
func TestServers(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2})
		r := newReplicated(t, set, grantsOfProber(t, "postgres", ""))
		r.checkRoles("postgres 3 servers", []string{"primary", "secondary", "secondary"})
		r.checkRoutes(2)
		set.Kill(t, 1)
		if v := r.look(); v.Members[1].Step != "unknown" || v.Members[1].Detail == "" || v.Members[1].InWindow {
			t.Errorf("a server that was killed: %+v", v.Members[1])
		}
		r.checkFailover(set)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		set := dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{})
		r := newReplicated(t, set, grantsOfProber(t, "mysql", "MariaDB"))
		r.checkRoles("mariadb 2 servers", []string{"primary", "secondary"})
		r.checkRoutes(1)
	})
}

func (r replicated) checkRoles(what string, roles []string) {
	r.t.Helper()
	v := r.look()
	for i, m := range v.Members {
		if m.Role != roles[i] || m.Address != r.set.Addr(i) || m.Tags["zone"] != fmt.Sprint("z", i) || !m.InWindow || m.RTT == nil {
			r.t.Errorf("%s: server %d is %+v", what, i, m)
		}
		if (m.Staleness != nil) != (m.Role == "secondary") {
			r.t.Errorf("%s: staleness of server %d, a %s, is known: %v", what, i, m.Role, m.Staleness != nil)
		}
	}
	if len(v.Members) != len(roles) {
		r.t.Errorf("%s: %d are shown", what, len(v.Members))
	}
}

// checkRoutes chooses servers; last is the secondary whose tags are asked for.
func (r replicated) checkRoutes(last int) {
	r.t.Helper()
	zone := fmt.Sprint("zone=z", last)
	primary := r.route()
	if primary.Chosen != r.set.Addr(0) || primary.steps()[last] != "role" {
		r.t.Errorf("without criteria: %+v", primary)
	}
	tagged := r.route("--read-preference", "secondary", "--tags", "zone=nowhere", "--tags", zone, "--max-staleness", "1h")
	steps := tagged.steps()
	if tagged.Chosen != r.set.Addr(last) || steps[last] != "chosen" || steps[0] != "role" || (last > 1 && steps[1] != "tags") {
		r.t.Errorf("a secondary by tags: %+v", tagged)
	}
	near := r.route("--read-preference", "nearest", "--tags", "zone=z0")
	if near.Chosen != r.set.Addr(0) || near.steps()[last] != "tags" {
		r.t.Errorf("the nearest by tags: %+v", near)
	}
	if e := r.run("route", "7", "--read-preference", "secondary", "--tags", "zone=z0"); e.code != exitUnavailable ||
		!strings.Contains(e.errs, "tags (zone=z0)") && !strings.Contains(e.errs, "role (primary): "+r.set.Addr(0)) {
		r.t.Errorf("no server suits: exit code %d\n%s", e.code, e.errs)
	}
}

// checkFailover promotes server 2 while server 1 is gone: the tool then routes
// there, and shows the former primary for what it is.
func (r replicated) checkFailover(set *dbtest.PostgresSet) {
	r.t.Helper()
	set.Kill(r.t, 0)
	if e := r.run("route", "7", "--explain"); e.code != exitUnavailable || !strings.Contains(e.errs, set.Addr(0)) {
		r.t.Errorf("without a primary: exit code %d\n%s%s", e.code, e.out, e.errs)
	}
	set.Promote(r.t, 2)
	if v := r.route(); v.Chosen != set.Addr(2) {
		r.t.Errorf("after the promotion: %+v", v)
	}
	set.Restart(r.t, 0) // as primary of an older timeline
	if v := r.route(); v.Chosen != set.Addr(2) || v.Conflict == "" && v.steps()[0] != "unknown" {
		r.t.Errorf("with a former primary back: %+v", v)
	}
}

// A prober without rights says which one is missing.
func TestServersWithoutRights(t *testing.T) {
	t.Parallel()
	for engine, grants := range map[string]func(string) []string{
		"postgres": func(u string) []string { return pgprobe.Grants(u, pgprobe.Options{}) },
		"mariadb":  func(u string) []string { return mysqlprobe.GrantsMariaDB(u, mysqlprobe.Options{}) },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			var set replicaSet
			if engine == "postgres" {
				set = dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
			} else {
				set = dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{})
			}
			var missing []string
			r := newReplicated(t, set, func(user string) []string {
				missing = grants(user)
				return nil
			})
			v := r.look()
			if v.Members[0].Role != "primary" || v.Members[1].Role != "unknown" || !strings.Contains(v.Members[1].Detail, missing[0]) {
				t.Errorf("without %q: %+v", missing, v.Members)
			}
		})
	}
}

// TestServersWatch watches until a change of the map is seen, then interrupts
// the tool.
func TestServersWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newProgram(t, "SHARDWAY_STORE=sqlite:"+dir+"/maps.db", "SHARDWAY_MAP=customers")
	p.must("init")
	p.must("map", "create", "customers", "--kind", "range", "--key", "int64")
	p.must("shard", "add", "s1", "sqlite:"+dir+"/s1.db")
	if r := p.run("servers", "nosuchshard", "--watch"); r.code != exitNotFound {
		t.Errorf("watching a shard that is not there: exit code %d\n%s", r.code, r.errs)
	}
	c := p.command("servers", "--watch", "--interval", "500ms")
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(pipe)
	tables, tagged := 0, false
	for !tagged && out.Scan() {
		line := out.Text()
		if strings.Contains(line, "\x1b") {
			t.Errorf("a terminal's codes in a pipe: %q", line)
		}
		if !strings.HasPrefix(line, "s1 ") || !strings.Contains(line, " primary ") {
			continue
		}
		if tables++; tables == 1 {
			p.must("shard", "update", "s1", "--server", dir+"/s1.db,zone=a")
		}
		tagged = strings.Contains(line, " zone=a ")
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil || tables < 2 {
		t.Errorf("ended with %v after %d tables, a change of the map seen: %v", err, tables, tagged)
	}
}

// The lag of a secondary comes from the heartbeat table that the settings name;
// one that is not there is named.
func TestServers_heartbeatTable(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	r := newReplicated(t, set, grantsOfProber(t, "postgres", ""))
	d := r.database
	beat, err := probe.NewHeartbeat("postgres", "beat")
	if err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "SHARDWAY_HEARTBEAT_TABLE=beat")
	if v := r.look(); v.Members[1].Step != "unknown" || !strings.Contains(v.Members[1].Detail, "beat") {
		t.Errorf("without the table: %+v", v.Members[1])
	}
	set.Servers()[0].Exec(t, d.Name, beat.Create()+"; GRANT SELECT ON beat TO PUBLIC")
	db := d.Open(t)
	if err := beat.Beat(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE beat SET beat_at = beat_at - 3600000000"); err != nil {
		t.Fatal(err)
	}
	set.AwaitReplay(t, 1)
	const hour = 3.6e6
	if s := r.look().Members[1].Staleness; s == nil || *s < hour || *s > 2*hour {
		t.Errorf("with a heartbeat of an hour ago: %v ms", s)
	}
}

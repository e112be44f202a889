package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
)

// checkup runs doctor and returns what it found.
func checkup(t *testing.T, p program, args ...string) (v checkupView, code int) {
	t.Helper()
	r := p.run(append([]string{"doctor", "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v: exit code %d\n%s%s", err, r.code, r.out, r.errs)
	}
	return v, r.code
}

// With the rights that shardway grants prints doctor finds nothing, as catalog
// and as application; a right that is taken away is named with its table.
func TestDoctorRights(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLServer} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password}).must("init")
			w.grant(t, "global store's database", "after")
			w.grant(t, "every shard's database", "before")
			catalog := w.as(t, w.catalog)
			for _, line := range []string{
				"map create customers --kind range --key int64", "shard add s1 " + location(w.s1), "shard add s2 " + location(w.s2),
				"mapping add --shard s1 --low 0 --high 30", "mapping add --shard s2 --low 30",
			} {
				catalog.must(strings.Fields(line)...)
			}
			if e == dbtest.EnginePostgres { // the tables belong to the user that ran shard add
				w.grantAs(t, w.catalog, "every shard's database", "after")
			} else {
				w.grant(t, "every shard's database", "after")
			}
			app := w.as(t, w.router)
			app.env = append(app.env, "SHARDWAY_SHARD_USER="+w.app.User, "SHARDWAY_SHARD_PASSWORD="+w.app.Password)
			if v, code := checkup(t, catalog); code != exitOK || len(v.Findings) > 0 {
				t.Errorf("as catalog: exit code %d, %+v", code, v.Findings)
			}
			if v, code := checkup(t, app, "--as", "application"); code != exitOK || len(v.Findings) > 0 {
				t.Errorf("as application: exit code %d, %+v", code, v.Findings)
			}
			v, code := checkup(t, app, "--as", "catalog")
			if code != exitUsage || len(v.Findings) == 0 || v.Findings[0].Check != "rights" || !strings.Contains(v.Findings[0].Text, "the login cannot") ||
				v.Findings[0].Mend != fmt.Sprintf("shardway grants %s --catalog USER", e) {
				t.Errorf("an application as catalog: exit code %d, %+v", code, v.Findings)
			}
		})
	}
}

func TestJudgeClock(t *testing.T) {
	t.Parallel()
	sent := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	received := sent.Add(3 * time.Second) // a slow way is no skew
	for _, c := range []struct {
		now  time.Duration
		want string
	}{
		{0, ""},
		{time.Second, ""},
		{3 * time.Second, ""},
		{5 * time.Second, ""},
		{-2 * time.Second, ""},
		{5*time.Second + time.Millisecond, "the clock of the shard is 2.001s ahead of this machine's"},
		{-time.Hour, "the clock of the shard is 1h0m0s behind this machine's"},
	} {
		got := judgeClock("the shard", sent.Add(c.now), sent, received)
		if (c.want == "") != (len(got) == 0) || len(got) > 0 && (!strings.HasPrefix(got[0].Text, c.want) || got[0].Severity != doubt) {
			t.Errorf("a clock at %s: %+v, want %q", c.now, got, c.want)
		}
	}
}

func TestJudgeOperations(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	operation := func(age, lease time.Duration) store.Operation {
		return store.Operation{ID: 7, Kind: "move mapping", Map: shardway.ShardMap{Name: "m"}, Owner: "bob/1", Started: now.Add(-age), LeaseUntil: now.Add(lease)}
	}
	var got []string
	for _, f := range judgeOperations([]store.Operation{operation(time.Minute, time.Second), operation(time.Hour, time.Second), operation(time.Minute, 0)}, now) {
		got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Mend))
	}
	want := []string{"note shardway operations", "warning shardway operations", "warning shardway recover"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations under way, long under way, left behind (-want +got):\n%s", diff)
	}
}

// Ranges that overlap one that began long before are found too, and gaps are
// counted only where nobody is.
func TestMapFactsRanges(t *testing.T) {
	t.Parallel()
	f := newMapFacts(shardway.ShardMap{Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}, time.Now())
	f.take([]store.ShardRow{{Shard: shardway.Shard{ID: 1, Name: "s"}}})
	for _, r := range [][2]int64{{0, 100}, {10, 20}, {30, 40}, {100, 110}, {120, 130}} {
		f.see(store.MappingRow{Mapping: shardway.Mapping{
			ShardID: 1, Status: shardway.Online, Range: shardway.Range{Low: shardway.Int64Key(r[0]), High: shardway.Int64Key(r[1])},
		}})
	}
	f.see(store.MappingRow{Mapping: shardway.Mapping{ShardID: 9, Status: shardway.Online, Range: shardway.RangeFrom(shardway.Int64Key(130))}})
	var got []string
	for _, found := range f.judge() {
		got = append(got, string(found.Severity)+" "+found.Text)
	}
	want := []string{
		"error 1 mapping: [130, +inf): the shard is not there, the rows of the store were changed by somebody else",
		"error 2 overlaps, the first is [0, 100) and [10, 20): keys with two owners",
		"note 1 gap: [110, 120): keys without a shard",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Servers of whom nothing is known are doubts; a shard without a primary is worse.
func TestJudgeServers(t *testing.T) {
	t.Parallel()
	lag := 1.0
	server := func(address, role string, staleness *float64) memberView {
		return memberView{serverView: serverView{Address: address}, Role: role, Staleness: staleness}
	}
	follower := server("d", "secondary", &lag)
	follower.Detached = true
	for name, c := range map[string]struct {
		v    shardServersView
		want []string
	}{
		"all is well":       {shardServersView{choiceView: choiceView{Members: []memberView{server("a", "primary", nil), server("b", "secondary", &lag)}}}, nil},
		"nobody knows":      {shardServersView{choiceView: choiceView{Members: []memberView{server("a", "primary", nil), server("b", "secondary", nil), server("c", "unknown", nil), follower}}}, []string{"warning server b: nobody knows how far", "warning server c: no evidence of its role", "warning server d follows nobody"}},
		"no primary":        {shardServersView{choiceView: choiceView{Members: []memberView{server("b", "secondary", &lag)}}}, []string{"error no server is primary"}},
		"two primaries":     {shardServersView{choiceView: choiceView{Conflict: "a and b claim it"}}, []string{"error a and b claim it"}},
		"not to be checked": {shardServersView{Error: "no route", err: shardway.ErrUnavailable}, []string{"error its servers could not be checked: no route"}},
	} {
		found := judgeServers("m", c.v)
		for i, f := range found {
			if len(found) != len(c.want) || !strings.HasPrefix(string(f.Severity)+" "+f.Text, c.want[i]) {
				t.Errorf("%s: %+v, want %q", name, found, c.want)
			}
		}
		if len(found) != len(c.want) {
			t.Errorf("%s: %+v, want %q", name, found, c.want)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if p := newProgress(&b, "working", 10); p != nil {
		t.Error("progress is shown where there is no terminal")
	}
	p := &progress{w: &b, what: "working", total: 4}
	p.step()
	for range 3 {
		p.step() // too soon to be shown again
	}
	if got, want := p.picture(), "working [##############################] 4 of 4"; got != want {
		t.Errorf("picture = %q, want %q", got, want)
	}
	p.end()
	if got, want := b.String(), "\r\x1b[Kworking [#######.......................] 1 of 4\r\x1b[K"; got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	(*progress)(nil).step()
	(*progress)(nil).end()
}

// On real replicas doctor is silent; a server that is dead, and a prober
// without rights, are doubts that name the server.
func TestDoctorReplicas(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	r := newReplicated(t, set, grantsOfProber(t, "postgres", ""))
	if v, code := checkup(t, r.program, "--as", "application"); code != exitOK || len(v.Findings) > 0 {
		t.Errorf("healthy replicas: exit code %d, %+v", code, v.Findings)
	}
	if v, code := checkup(t, r.admin); code != exitOK || len(v.Findings) > 0 {
		t.Errorf("healthy replicas, as catalog: exit code %d, %+v", code, v.Findings)
	}
	doubts := func(what string) {
		t.Helper()
		v, code := checkup(t, r.program, "--as", "application")
		if code != exitOther || len(v.Findings) != 1 || v.Findings[0].Check != "server" || !strings.Contains(v.Findings[0].Text, set.Addr(1)) {
			t.Errorf("%s: exit code %d, %+v, want one doubt about %s", what, code, v.Findings, set.Addr(1))
		}
	}
	user := strings.TrimPrefix(r.env[withPrefix(r.env, "SHARDWAY_SHARD_USER=")], "SHARDWAY_SHARD_USER=")
	set.Servers()[0].Exec(t, r.database.Name, fmt.Sprintf(`REVOKE pg_monitor FROM "%s"`, user))
	set.AwaitReplay(t, 1)
	doubts("without the prober's rights")
	set.Kill(t, 1)
	doubts("a dead secondary")
}

func withPrefix(all []string, prefix string) int {
	return slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

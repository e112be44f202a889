package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/internal/dbtest"
)

// A replica that the map does not have is shown where the login may be told of
// it, and added by the command that doctor prints. Until then nobody connects
// to it: its address is hearsay.
func TestServers_notInMap(t *testing.T) {
	t.Parallel()
	set := dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{Secondaries: 2})
	r := newReplicated(t, set, grantsOfProber(t, "mysql", "MariaDB"))
	r.admin.must("shard", "update", "a", "--server", set.Addr(0)+",zone=z0", "--server", set.Addr(1)+",zone=z1")
	stranger := set.At(r.database, 2).Open(t)
	stranger.SetMaxOpenConns(1)
	connections := func() (n int) {
		t.Helper()
		if err := stranger.QueryRow("SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Connections'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := connections()
	if v := r.look(); v.Unlisted == nil || len(v.Unlisted) > 0 || len(v.Members) != 2 {
		t.Errorf("a login without the right was told: %+v", v)
	}
	all := replicated{t: t, set: set, program: r.admin}
	v := all.look()
	if diff := cmp.Diff([]unlistedView{{Address: set.Addr(2), ToldBy: []string{set.Addr(0)}}}, v.Unlisted); diff != "" || len(v.Members) != 2 {
		t.Errorf("%d servers, not in the map (-want +got):\n%s", len(v.Members), diff)
	}
	table := r.admin.must("servers", "a").out
	if !strings.Contains(table, "not in the map (told by "+set.Addr(0)+")\n") {
		t.Errorf("no line for the server that is not in the map:\n%s", table)
	}
	found, code := checkup(t, r.admin)
	if code != exitOK || len(found.Findings) != 1 || found.Findings[0].Severity != remark || !strings.Contains(found.Findings[0].Text, set.Addr(2)) {
		t.Fatalf("doctor: exit code %d, %+v, want one note about %s", code, found.Findings, set.Addr(2))
	}
	if after := connections(); after != before {
		t.Errorf("%d connections were made to a server that is not in the map", after-before)
	}
	mend := strings.ReplaceAll(found.Findings[0].Mend, "'", "") // as a shell reads it: nothing else is quoted
	r.admin.must(strings.Fields(strings.TrimPrefix(mend, "shardway "))...)
	if v := all.look(); len(v.Unlisted) > 0 || len(v.Members) != 3 || v.Members[0].Tags["zone"] != "z0" || v.Members[1].Tags["zone"] != "z1" || v.Members[2].Address != set.Addr(2) {
		t.Errorf("after %s: %+v", mend, v)
	}
	if found, code := checkup(t, r.admin); code != exitOK || len(found.Findings) > 0 {
		t.Errorf("doctor after that: exit code %d, %+v", code, found.Findings)
	}
}

// One command keeps all servers and adds all that are told.
func TestJudgeServers_notInMap(t *testing.T) {
	t.Parallel()
	v := shardServersView{
		Shard: "s 1",
		choiceView: choiceView{Members: []memberView{
			{serverView: serverView{Address: "a:1", Tags: map[string]string{"zone": "x", "disk": "ssd"}}, Role: "primary"},
		}},
		Unlisted: []unlistedView{{Address: "[fe80::1]:1", ToldBy: []string{"a:1"}}, {Address: "c:1", ToldBy: []string{"a:1", "b:1"}}},
	}
	found := judgeServers("m", v)
	if len(found) != 1 || found[0].Severity != remark || found[0].Check != "server" {
		t.Fatalf("found %+v, want one note", found)
	}
	if want := "not in the map: [fe80::1]:1 (told by a:1), c:1 (told by a:1, b:1); "; !strings.HasPrefix(found[0].Text, want) {
		t.Errorf("text %q, want %q…", found[0].Text, want)
	}
	want := "shardway shard update 's 1' --map m --server 'a:1,disk=ssd,zone=x' --server '[fe80::1]:1' --server c:1"
	if diff := cmp.Diff(want, found[0].Mend); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
}

package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/mapfile"
)

// saveMaps writes a file of shard maps into the folder of a program.
func saveMaps(t *testing.T, p program, name string, f mapfile.File) {
	t.Helper()
	var b bytes.Buffer
	if err := mapfile.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, name), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func locationOf(d dbtest.Database) shardway.Location {
	return shardway.Location{Engine: d.Engine, Database: d.Name, Servers: []shardway.Server{{Address: d.Addr(), Tags: map[string]string{"zone": "ü"}}}}
}

// On every engine an import restores what the file says, and an export of it is
// the same file; keys are bytes, whatever the engine makes of text. SEC-04: no
// password is in it.
func TestMapFileOnServers(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLServer} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			p := w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password})
			p.must("init")
			var keys []shardway.Key
			for _, s := range []string{"", "\x00", "A", "a", "a\x00", "a ", "ä", "\xff", "\xff\x00\xc3"} {
				k, err := shardway.StringKey(s)
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, k)
			}
			m := mapfile.Map{Name: "customers", Kind: shardway.ListMap, KeyKind: shardway.KindString, Shards: []mapfile.Shard{
				{Name: "s1", Location: locationOf(w.s1)}, {Name: "s2", Location: locationOf(w.s2), Status: shardway.ShardOffline},
			}}
			for i, k := range keys {
				m.Mappings = append(m.Mappings, mapfile.Mapping{Range: shardway.RangeFrom(k), Shard: m.Shards[i%2].Name, Status: shardway.MappingStatus(i / 2 % 2)})
			}
			m.Mappings[1].Lock = &mapfile.Lock{Owner: "mover ü", Reason: "copies", Expires: time.Date(2036, 1, 2, 3, 4, 5, 6000, time.UTC)}
			saveMaps(t, p, "maps.json", mapfile.File{Maps: []mapfile.Map{m}})
			p.must("import", "maps.json")
			p.must("diff", "maps.json", "live", "--locks")
			p.must("export", "--out", "again.json")
			want, err := os.ReadFile(filepath.Join(p.dir, "maps.json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(p.dir, "again.json"))
			if err != nil || !bytes.Equal(want, got) {
				t.Errorf("the export differs from the import, %v:\n%s\n%s", err, want, got)
			}
			for _, secret := range []string{w.global.Password, w.global.User} {
				if bytes.Contains(got, []byte(secret)) {
					t.Errorf("the export holds %q", secret)
				}
			}
			if v, code := checkup(t, p); code != exitOther && code != exitOK {
				t.Errorf("after an import: %+v", v.Findings)
			}
		})
	}
}

// An apply that is killed again and again ends where
// it should, however far each one has come.
func TestApplyKilled(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "SHARDWAY_STORE=sqlite:maps.db", "SHARDWAY_LEASE=200ms")
	p.must("init")
	const n = 30
	var from, to mapfile.Map
	for i, m := range []*mapfile.Map{&from, &to} {
		*m = mapfile.Map{Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
		for _, name := range []string{"s1", "s2"} {
			m.Shards = append(m.Shards, mapfile.Shard{Name: name, Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: name + ".db"}}}})
		}
		for k := range int64(n) {
			low, high := shardway.Int64Key(10*k), shardway.Int64Key(10*k+10)
			m.Mappings = append(m.Mappings, mapfile.Mapping{Range: shardway.Range{Low: low, High: high}, Shard: fmt.Sprint("s", 1+(k+int64(i))%2), Status: shardway.Online})
		}
	}
	saveMaps(t, p, "from.json", mapfile.File{Maps: []mapfile.Map{from}})
	saveMaps(t, p, "to.json", mapfile.File{Maps: []mapfile.Map{to}})
	p.must("import", "from.json")

	db, err := sql.Open("sqlite", "file:"+filepath.Join(p.dir, "maps.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	entries := func() (n int) {
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM shardway_history`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 3 {
		started := entries()
		cmd := p.command("apply", "to.json", "--yes", "--allow-moves")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it says that it was killed
			close(ended)
		}()
		for alive := true; alive && entries() < started+7; { // each look takes the time of a query
			select {
			case <-ended: // it met what the one before has left behind
				alive = false
			default:
			}
		}
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	}
	if r := p.run("diff", "to.json", "live"); r.code != exitOther {
		t.Fatalf("three killed programs have done everything: exit code %d\n%s%s", r.code, r.out, r.errs)
	}
	// What a dead program has left behind may be finished only after the plan is
	// made, which is then out of date. From here on nobody is to be taken for dead.
	p.env = append(p.env, "SHARDWAY_LEASE=15s")
	if r := p.run("apply", "to.json", "--yes", "--allow-moves"); r.code != exitOK && (r.code != exitConflict || !strings.Contains(r.errs, "is not as planned")) {
		t.Fatalf("exit code %d\n%s%s", r.code, r.out, r.errs)
	}
	p.must("apply", "to.json", "--yes", "--allow-moves")
	p.must("diff", "to.json", "live")
	if v, code := checkup(t, p); code != exitOK || len(v.Findings) > 0 {
		t.Errorf("afterwards: exit code %d, %+v", code, v.Findings)
	}
}

// What people type is shown in errors up to a bound.
func TestLongInput(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "SHARDWAY_STORE=sqlite:maps.db", "SHARDWAY_MAP=m")
	p.must("init")
	p.must("map", "create", "m", "--kind", "list", "--key", "int64")
	long := strings.Repeat("x", 60_000)
	for _, args := range [][]string{
		{"route", long},
		{"map", "show", long},
		{"map", "create", long, "--kind", "list", "--key", "int64"},
		{"mapping", "add", long, "--shard", "s"},
		{"mapping", "add", "1", "--shard", long},
		{"history", "--map", long},
		{"operations", long},
		{long},
		{"route", "1", "--read-preference", long},
		{"diff", long, "live"},
	} {
		r := p.run(args...)
		if r.code == exitOK || len(r.errs) > 1000 || !strings.Contains(r.errs, strings.Repeat("x", 150)) {
			t.Errorf("shardway %.20s ...: exit code %d, %d bytes: %.300s", strings.Join(args, " "), r.code, len(r.errs), r.errs)
		}
	}
}

// A change of a plan is made only to what the plan has seen: a mapping that has
// another range, shard or status by now is left alone.
func TestActOnlyAsPlanned(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "SHARDWAY_STORE=sqlite:maps.db", "SHARDWAY_MAP=m")
	for _, line := range []string{
		"init", "map create m --kind range --key int64", "shard add s1 sqlite:s1.db", "shard add s2 sqlite:s2.db", "mapping add --shard s1 --low 0 --high 10",
	} {
		p.must(strings.Fields(line)...)
	}
	a := &app{in: strings.NewReader(""), out: io.Discard, errs: io.Discard}
	a.set.values = map[string]given{"store": {text: "sqlite:" + filepath.Join(p.dir, "maps.db")}, "lease": {text: "15s"}, "wait": {text: "1s"}}
	s, err := a.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	planned := mapfile.Mapping{Range: shardway.Range{Low: shardway.Int64Key(0), High: shardway.Int64Key(10)}, Shard: "s1", Status: shardway.Online}
	act := func(m mapfile.Mapping) error {
		return s.act(t.Context(), mapfile.Action{Kind: mapfile.Status, Map: "m", MapKind: shardway.RangeMap, Mappings: []mapfile.Mapping{m}, Status: shardway.Offline}, "")
	}
	range1, shard2, offline, elsewhere := planned, planned, planned, planned
	range1.Range.High, shard2.Shard, offline.Status, elsewhere.Range.Low = shardway.Int64Key(9), "s2", shardway.Offline, shardway.Int64Key(11)
	elsewhere.Range.High = shardway.Key{}
	for name, m := range map[string]mapfile.Mapping{"another range": range1, "another shard": shard2, "another status": offline, "not there": elsewhere} {
		if err := act(m); !errors.Is(err, shardway.ErrStale) {
			t.Errorf("%s: act = %v, want ErrStale", name, err)
		}
	}
	if history, err := s.History(t.Context(), 0, 0); err != nil || len(history) != 4 {
		t.Errorf("%d changes were made, %v, want the 4 of before", len(history), err)
	}
	if err := act(planned); err != nil {
		t.Errorf("as planned: %v", err)
	}
}

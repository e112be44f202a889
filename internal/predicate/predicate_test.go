package predicate_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expr-lang/expr"
	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/internal/predicate"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// near is a mongos on localhost, far a secondary of which little is known.
var (
	near = selection.ServerInfo{Kind: topology.KindSharded, Server: topology.Server{
		Address: "localhost:27017", Host: "localhost", Port: 27017, Role: topology.RoleMongos,
		Tags: topology.NewTags(map[string]string{"zone": "a", "disk-kind": "ssd"}), AverageRTT: topology.Measured(1500 * time.Microsecond),
		Engine: "mongodb", MaxWireVersion: 25, Version: "8.0.1",
	}}
	far = selection.ServerInfo{Kind: topology.KindReplicaSetNoPrimary, Server: topology.Server{
		Address: "db2.example:5432", Host: "db2.example", Port: 5432, Role: topology.RoleSecondary,
		Staleness: topology.Measured(90 * time.Second), SetName: "rs0", SetVersion: 3, Err: errors.New("no answer"),
		Detached: true, Upstream: "db1.example:5432",
	}}
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule      string
		near, far bool
	}{
		{`host == "localhost" && tags.zone == "a"`, true, false},
		{`host == "LocalHost"`, true, false},
		{`address == "db2.example:5432"`, false, true},
		{`port == 27017`, true, false},
		{`port in [5432, 5433]`, false, true},
		{`port > 5432`, true, false},
		{`port >= 5432 and port <= 27017`, true, true},
		{`role == "mongos"`, true, false},
		{`type != "mongos"`, false, true},
		{`role in ["primary", "secondary"]`, false, true},
		{`role not in ["primary", "secondary"]`, true, false},
		{`kind == "Sharded"`, true, false},
		{`tags.zone == ""`, false, true},
		{`tags["disk-kind"] == "ssd"`, true, false},
		{`"zone" in tags`, true, false},
		{`not ("zone" in tags)`, false, true},
		{`rtt < 2`, true, false}, // far's is unknown: above every limit
		{`rtt < 1.5`, false, false},
		{`rtt <= "1500us"`, true, false},
		{`"2ms" > rtt`, true, false},
		{`rtt > 1000000`, false, true},
		{`staleness < "2m"`, true, true},
		{`staleness < 90000`, true, false},
		{`staleness == "1m30s"`, false, true},
		{`inFlight == 0`, true, true},
		{`inFlight > -1`, true, true},
		{`engine == "mongodb"`, true, false},
		{`version startsWith "8."`, true, false},
		{`version matches "^8[.]"`, true, false},
		{`setName == "rs0" && setVersion == 3`, false, true},
		{`maxWireVersion >= 25 && minWireVersion == 0`, true, false},
		{`error != ""`, false, true},
		{`error contains "answer"`, false, true},
		{`host endsWith ".example"`, false, true},
		{`upstream == "db1.example:5432"`, false, true},
		{`detached`, false, true},
		{`detached == false`, true, false},
		{`!detached || tags.zone == "a"`, true, false},
		{`host == "localhost" ||
		  port == 5432`, true, true},
		{`host < "e"`, false, true},
		{`true`, true, true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			p, err := predicate.Parse(tc.rule)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Match(near); got != tc.near {
				t.Errorf("near: %v", got)
			}
			if got := p.Match(far); got != tc.far {
				t.Errorf("far: %v", got)
			}
			if p.String() != tc.rule {
				t.Errorf("text %q", p)
			}
		})
	}
}

func TestRefusalsNameThePosition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule         string
		line, column int
		reason       string // part of it
	}{
		{``, 1, 1, "empty"},
		{"  \n", 1, 1, "empty"},
		{`host = "localhost"`, 1, 6, "="},
		{`host == "localhost`, 1, 19, "literal not terminated"},
		{`hots == "localhost"`, 1, 1, `unknown name "hots"; known are address, detached`},
		{`true &&
  hots == "x"`, 2, 3, "unknown name"},
		{`"ü" == tags.x && hots == "x"`, 1, 18, "unknown name"},
		{`host`, 1, 1, "the rule is a text"},
		{`port`, 1, 1, "the rule is a number"},
		{`rtt`, 1, 1, "a time"},
		{`tags`, 1, 1, "the tags"},
		{`["a"]`, 1, 1, "a list"},
		{`host && true`, 1, 6, "&& needs true or false"},
		{`!host`, 1, 1, "needs true or false"},
		{`port == "5432"`, 1, 6, "cannot compare a number with a text"},
		{`tags == "a"`, 1, 6, "cannot compare"},
		{`detached < true`, 1, 10, "order"},
		{`role == "primry"`, 1, 9, `"primry" is never so; it is one of unknown, primary`},
		{`role in ["primary", "nobody"]`, 1, 21, `"nobody" is never so`},
		{`kind == "sharded"`, 1, 9, "Sharded"},
		{`rtt < "soon"`, 1, 7, "length of time"},
		{`host in []`, 1, 9, "empty"},
		{`host in [port]`, 1, 10, "constant"},
		{`host in [1]`, 1, 10, "never in a list"},
		{`host in host`, 1, 6, "in needs a list"},
		{`host in tags`, 1, 6, "constant name"},
		{`host matches "("`, 1, 14, "missing closing"},
		{`host matches version`, 1, 14, "constant pattern"},
		{`port contains "1"`, 1, 6, "two texts"},
		{`len(host) > 3`, 1, 1, "functions"},
		{`all(1..1000000000, true)`, 1, 1, "functions"},
		{`port + 1 == 2`, 1, 6, "operator +"},
		{`-port == 2`, 1, 1, "constant number"},
		{`let x = 1; x == 1`, 1, 5, "functions"},
		{`detached ? true : false`, 1, 1, "&& and ||"},
		{`host.name == "x"`, 1, 6, "only tags"},
		{`tags[host] == "x"`, 1, 5, "only tags"},
		{`tags?.zone == "x"`, 1, 7, "functions"},
		{`nil == host`, 1, 1, "functions"},
		{strings.Repeat(" ", predicate.MaxBytes) + "x", 1, 1, "limit is 4096"},
		{"host == \"\xff\"", 1, 1, "UTF-8"},
	} {
		t.Run(tc.rule[:min(len(tc.rule), 30)], func(t *testing.T) {
			t.Parallel()
			p, err := predicate.Parse(tc.rule)
			var refused *predicate.Error
			if p != nil || !errors.As(err, &refused) {
				t.Fatalf("%v, %v", p, err)
			}
			if refused.Line != tc.line || refused.Column != tc.column || !strings.Contains(refused.Reason, tc.reason) {
				t.Errorf("%d:%d: %s; want %d:%d and %q", refused.Line, refused.Column, refused.Reason, tc.line, tc.column, tc.reason)
			}
		})
	}
}

// environment is what expr itself sees of a server.
func environment(s selection.ServerInfo) map[string]any {
	tags := map[string]string{}
	for k, v := range s.Tags.All() {
		tags[k] = v
	}
	return map[string]any{
		"address": s.Address, "host": s.Host, "port": s.Port, "role": s.Role.String(), "type": s.Role.String(),
		"kind": s.Kind.String(), "tags": tags, "engine": s.Engine, "version": s.Version, "setName": s.SetName,
		"setVersion": int(s.SetVersion), "maxWireVersion": s.MaxWireVersion, "minWireVersion": s.MinWireVersion,
		"upstream": s.Upstream, "detached": s.Detached, "inFlight": int(s.InFlight()),
	}
}

// The language is a part of expr's: what both accept means the same.
func TestExprAgrees(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		`host == "localhost" && tags.zone == "a"`, `host == "x" || port > 6000 && !detached`, `not detached and port == 5432 or detached`,
		`role in ["mongos", "primary"] == true`, `tags.zone in ["", "b"]`, `1 < port < 6000`, `version matches "8" != detached`,
		`host contains "a" || host startsWith "db" && host endsWith "le"`, `!(port == 5432) == !detached`, `maxWireVersion >= 25`,
		`"zone" in tags && tags["zone"] < "b"`, `host not in ["localhost"]`,
	} {
		p, err := predicate.Parse(rule)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, s := range []selection.ServerInfo{near, far} {
			want, err := expr.Eval(rule, environment(s))
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, any(p.Match(s))); diff != "" {
				t.Errorf("%s on %s: %s", rule, s.Host, diff)
			}
		}
	}
}

//nolint:paralleltest // it counts allocations
func TestMatchAllocatesNothingAndIsConcurrent(t *testing.T) {
	p, err := predicate.Parse(`host == "localhost" && tags.zone in ["a", "b"] && rtt < "20ms" && version matches "^8"`)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { p.Match(near) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if !p.Match(near) || p.Match(far) {
					t.Error("another result")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestZeroMatchesNothing(t *testing.T) {
	t.Parallel()
	if new(predicate.Predicate).Match(near) {
		t.Error("the zero predicate matches")
	}
}

func TestSelectionTakesIt(t *testing.T) {
	t.Parallel()
	p, err := predicate.Parse(`tags.zone == "a"`)
	if err != nil {
		t.Fatal(err)
	}
	set, err := topology.Set{}.Describe(topology.KindReplicaSet, []topology.Server{
		{Address: "a:1", Host: "a", Port: 1, Role: topology.RolePrimary, AverageRTT: topology.Measured(time.Millisecond)},
		{Address: "b:1", Host: "b", Port: 1, Role: topology.RoleSecondary, AverageRTT: topology.Measured(time.Millisecond), Tags: near.Tags},
	})
	if err != nil {
		t.Fatal(err)
	}
	choice, err := selection.Select(set, selection.Request{Criteria: selection.Where(p.Match), Operation: selection.Read})
	if err != nil {
		t.Fatal(err)
	}
	defer choice.Release()
	if got := choice.Server().Address; got != "b:1" {
		t.Errorf("chose %s", got)
	}
}

func TestFieldsAreSorted(t *testing.T) {
	t.Parallel()
	if names := predicate.Fields(); !slices.IsSorted(names) || !slices.Contains(names, "host") {
		t.Errorf("%v", names)
	}
}

func FuzzParse(f *testing.F) {
	for _, rule := range []string{
		`host == "localhost" && tags.zone == "a"`, `rtt < "5ms" or staleness > 3`, `port in [1, 2.5]`, `a ? b : c`, `#`, `1..2`,
		`tags["x"] matches "a*"`, `{a: 1}.a == 1`, `let x = 1; x`, "\"ü\" == \n hots", `not not detached`, `if true {1} else {2}`,
	} {
		f.Add(rule)
	}
	f.Fuzz(func(t *testing.T, rule string) {
		p, err := predicate.Parse(rule)
		if err != nil {
			var refused *predicate.Error
			if !errors.As(err, &refused) {
				t.Fatalf("%T: %v", err, err)
			}
			lines := strings.Split(refused.Text, "\n")
			if refused.Line < 1 || refused.Line > len(lines) || refused.Column < 1 || refused.Column > len([]rune(lines[refused.Line-1]))+1 || refused.Reason == "" {
				t.Fatalf("position %d:%d in %q: %s", refused.Line, refused.Column, refused.Text, refused.Reason)
			}
			return
		}
		for _, s := range []selection.ServerInfo{near, far, {}} {
			first := p.Match(s)
			if second := p.Match(s); first != second {
				t.Fatalf("%q has two results", rule)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	p, err := predicate.Parse(`host == "localhost" && tags.zone == "a"`)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Match(near)
	}
}

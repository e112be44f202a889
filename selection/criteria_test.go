package selection_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

func anyServer(selection.ServerInfo) bool { return true }

func TestNewCriteria_refused(t *testing.T) {
	t.Parallel()
	predicate := anyServer
	preference := &selection.ReadPreference{Mode: selection.ModeNearest}
	build := func(p *selection.ReadPreference, f func(selection.ServerInfo) bool, constraints ...selection.Constraint) func() (selection.Criteria, error) {
		return func() (selection.Criteria, error) { return selection.NewCriteria(p, f, constraints...) }
	}
	for name, test := range map[string]struct {
		build       func() (selection.Criteria, error)
		field, part string
	}{
		"both":                   {build(preference, predicate), "Criteria", "both"},
		"neither":                {build(nil, nil), "Criteria", "neither"},
		"predicate with tags":    {build(nil, predicate, selection.Tags{"a": "b"}), "Tags", "predicate replaces"},
		"predicate with bound":   {build(nil, predicate, selection.MaxStaleness(time.Hour)), "MaxStaleness", "predicate replaces"},
		"unknown mode":           {build(&selection.ReadPreference{Mode: 9}, nil), "Mode", "Mode(9)"},
		"primary with tags":      {build(&selection.ReadPreference{TagSets: []selection.Tags{{}, {"a": "b"}}}, nil), "Tags", "primary"},
		"primary with bound":     {build(&selection.ReadPreference{MaxStaleness: time.Hour}, nil), "MaxStaleness", "primary"},
		"negative bound":         {build(&selection.ReadPreference{Mode: selection.ModeNearest, MaxStaleness: -1}, nil), "MaxStaleness", "minimum is 0"},
		"bound given twice":      {build(preference, nil, selection.MaxStaleness(1), selection.MaxStaleness(2)), "MaxStaleness", "twice"},
		"tag without a name":     {build(preference, nil, selection.Tags{"": "x"}), "Tags", "no name"},
		"zone without a name":    {build(preference, nil, selection.Zone{Value: "x"}), "Zone", "no name"},
		"prefer nothing":         {build(preference, nil, selection.Prefer(nil)), "Prefer", "nil"},
		"prefer twice":           {build(preference, nil, selection.Prefer(predicate), selection.Prefer(predicate)), "Prefer", "twice"},
		"negative weight":        {build(preference, nil, selection.Weights{"a:1": -1}), "Weights", "a:1"},
		"weight is no number":    {build(preference, nil, selection.Weights{"a:1": math.NaN()}), "Weights", "NaN"},
		"weight without limit":   {build(preference, nil, selection.Weights{"a:1": math.Inf(1)}), "Weights", "a:1"},
		"zone and weights":       {build(preference, nil, selection.Weights{}, selection.Zone{Tag: "a"}), "Weights", "zone"},
		"constraint is nil":      {build(preference, nil, nil), "Criteria", "nil"},
		"Where without function": {func() (selection.Criteria, error) { c := selection.Where(nil); return c, c.Err() }, "Criteria", "neither"},
		"Where with tags": {func() (selection.Criteria, error) {
			c := selection.Where(predicate, selection.Tags{})
			return c, c.Err()
		}, "Tags", "inside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			criteria, err := test.build()
			var invalid *selection.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != test.field || !strings.Contains(err.Error(), test.part) {
				t.Fatalf("error %v, want one of field %s that says %q", err, test.field, test.part)
			}
			if !errors.Is(criteria.Err(), err) {
				t.Errorf("the criteria carry %v", criteria.Err())
			}
			set := replicaSet(t, primary("a:1", ms))
			for _, operation := range []selection.Operation{selection.Read, selection.Write} {
				choice, err := selection.Select(set, selection.Request{Criteria: criteria, Operation: operation})
				if !errors.As(err, &invalid) || choice.Server().Address != "" {
					t.Errorf("%v selected %q, error %v", operation, choice.Server().Address, err)
				}
			}
			if set.Load(0).InFlight() != 0 {
				t.Error("an operation was counted")
			}
		})
	}
}

func TestSelect_invalidRequest(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("a:1", ms))
	for field, request := range map[string]selection.Request{
		"Operation":      {Operation: 2},
		"LocalThreshold": {LocalThreshold: -2},
	} {
		var invalid *selection.InvalidError
		if _, err := selection.Select(set, request); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := selection.Explain(set, request); !errors.As(err, &invalid) {
			t.Errorf("%s: explained, error %v", field, err)
		}
		if _, _, err := selection.SelectExplained(set, request); !errors.As(err, &invalid) {
			t.Errorf("%s: selected, error %v", field, err)
		}
	}
}

func TestCriteria_string(t *testing.T) {
	t.Parallel()
	for want, criteria := range map[string]selection.Criteria{
		"primary":                            {},
		"secondary":                          selection.Secondary(),
		"primaryPreferred":                   selection.PrimaryPreferred(),
		"predicate selection_test.anyServer": selection.Where(anyServer),
		"nearest, tags {a=1,b=2}, tags {}, max staleness 30s": selection.Nearest(
			selection.MaxStaleness(30*time.Second), selection.Tags{"b": "2", "a": "1"}, selection.Tags{}),
		"secondaryPreferred, prefer selection_test.anyServer, zone az=1": selection.SecondaryPreferred(
			selection.Prefer(anyServer), selection.Zone{Tag: "az", Value: "1"}),
		"nearest, weights": selection.Nearest(selection.Weights{"a:1": 2}),
		"invalid criteria": selection.Where(nil),
	} {
		if got := criteria.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []selection.Mode{selection.ModePrimary, selection.ModePrimaryPreferred, selection.ModeSecondary, selection.ModeSecondaryPreferred, selection.ModeNearest} {
		for _, name := range []string{mode.String(), strings.ToUpper(mode.String())} {
			if got, err := selection.ParseMode(name); err != nil || got != mode {
				t.Errorf("%s read as %v, %v", name, got, err)
			}
		}
	}
	if mode, err := selection.ParseMode("replica"); err == nil || !strings.Contains(err.Error(), "secondaryPreferred") {
		t.Errorf("read as %v, %v", mode, err)
	}
}

// LAT-11: what a predicate sees, and what becomes of its misbehaviour.
func TestWhere(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 9*ms, tags("zone", "x")), secondary("a:1", 1*ms, behind(time.Second)), secondary("b:1", 90*ms),
		down("d:1"), server("o:1", topology.RoleOther, ms))
	asked := make(map[string]selection.ServerInfo)
	choice, err := selection.Select(set, reads(selection.Where(func(s selection.ServerInfo) bool { asked[s.Address] = s; return true })))
	if err != nil {
		t.Fatal(err)
	}
	choice.Release()
	if len(asked) != 3 {
		t.Errorf("asked about %d servers", len(asked))
	}
	if p := asked["p:1"]; p.Host != "p" || p.Port != 1 || p.Kind != topology.KindReplicaSet || p.Role != topology.RolePrimary || p.Tags.String() != "zone=x" {
		t.Errorf("saw %+v", p)
	}
	if !asked["a:1"].Staleness.AtMost(time.Second) || asked["b:1"].Staleness.Known() {
		t.Error("staleness is not what was measured")
	}
	wantOnly(t, set, reads(selection.Where(anyServer)), "p:1", "a:1") // the window still applies
	wantOnly(t, set, reads(selection.Where(func(s selection.ServerInfo) bool { return s.Host == "b" })), "b:1")
	none := wantNone(t, set, reads(selection.Where(func(selection.ServerInfo) bool { return false })), "predicate (selection_test.TestWhere")
	if got := none.Explanation.Servers[3].Step; got != selection.StepUnknown {
		t.Errorf("the dead server was dropped by %v", got)
	}
	changing := selection.Where(func(s selection.ServerInfo) bool { s.Address, s.Role = "z:1", topology.RoleOther; return true })
	wantOnly(t, set, reads(changing), "p:1", "a:1")
	calling := selection.Where(func(selection.ServerInfo) bool {
		choice, err := selection.Select(set, selection.Request{})
		choice.Release()
		return err == nil
	})
	wantOnly(t, set, reads(calling), "p:1", "a:1")
}

func TestWhere_panics(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", ms), secondary("a:1", ms))
	broken := func(s selection.ServerInfo) bool {
		if s.Address == "a:1" {
			panic("boom")
		}
		return true
	}
	for name, criteria := range map[string]selection.Criteria{"where": selection.Where(broken), "prefer": selection.Nearest(selection.Prefer(broken))} {
		_, err := selection.Select(set, reads(criteria))
		var panicked *selection.PredicateError
		if !errors.As(err, &panicked) || panicked.Server != "a:1" || panicked.Value != "boom" || !strings.Contains(panicked.Predicate, "TestWhere_panics") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := selection.Explain(set, reads(criteria)); !errors.As(err, &panicked) {
			t.Errorf("%s: explained, error %v", name, err)
		}
		if errors.Is(err, selection.ErrNoServer) {
			t.Errorf("%s: a broken predicate looks like a lack of servers", name)
		}
	}
	if set.Load(0).InFlight()+set.Load(1).InFlight() != 0 {
		t.Error("an operation was counted")
	}
}

func TestPrefer(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", ms), secondary("near:1", ms), secondary("far:1", 400*ms))
	far := selection.Prefer(func(s selection.ServerInfo) bool { return s.Host == "far" })
	nobody := selection.Prefer(func(s selection.ServerInfo) bool { return false })
	wantOnly(t, set, reads(selection.Nearest(far)), "far:1")
	wantOnly(t, set, reads(selection.Nearest(nobody)), "p:1", "near:1")
	wantOnly(t, set, reads(selection.PrimaryPreferred(far)), "p:1")
	wantOnly(t, set, reads(selection.Where(anyServer, far)), "far:1")
	e, err := selection.Explain(set, reads(selection.Nearest(far)))
	if err != nil || e.Servers[0].Step != selection.StepPrefer || e.Servers[2].Step != selection.StepChosen {
		t.Errorf("%v\n%s", err, e)
	}
}

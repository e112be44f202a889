package selection_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Every step that can drop a server, in one set.
func TestExplain(t *testing.T) {
	t.Parallel()
	east := tags("dc", "east")
	set := replicaSet(t,
		primary("p:1", 1*ms, east), secondary("tried:1", 1*ms, east, behind(0)), down("dead:1"), topology.Server{Address: "new:1"},
		secondary("cut:1", 1*ms, east, detached), secondary("old:1", 1*ms, east, behind(time.Hour)), secondary("lag:1", 1*ms, east),
		secondary("west:1", 1*ms, tags("dc", "west"), behind(0)), secondary("far:1", 90*ms, east, behind(0)), secondary("good:1", 2*ms, east, behind(time.Second)))
	request := selection.Request{
		Criteria:      selection.Secondary(selection.Tags{"dc": "east"}, selection.MaxStaleness(time.Minute)),
		Deprioritized: []string{"tried:1"},
	}
	got, err := selection.Explain(set, request)
	if err != nil {
		t.Fatal(err)
	}
	want := `read, secondary, tags {dc=east}, max staleness 1m0s, window 15ms
p:1 primary rtt 1ms in flight 0: role (primary)
tried:1 secondary rtt 1ms in flight 0: deprioritized
dead:1 unknown rtt unknown in flight 0: unknown (connection refused)
new:1 unknown rtt unknown in flight 0: unknown (not checked yet)
cut:1 secondary rtt 1ms in flight 0: detached (not replicating)
old:1 secondary rtt 1ms in flight 0: staleness (1h0m0s, limit 1m0s)
lag:1 secondary rtt 1ms in flight 0: staleness (unknown, limit 1m0s)
west:1 secondary rtt 1ms in flight 0: tags (dc=west)
far:1 secondary rtt 90ms in flight 0: latency window (90ms, limit 17ms)
good:1 secondary rtt 2ms in flight 0: chosen
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("explanation differs (-want +got):\n%s", diff)
	}
	if set.Load(9).InFlight() != 0 {
		t.Error("Explain counted an operation")
	}
	choice, _, err := selection.SelectExplained(set, request)
	if err != nil || choice.Server().Address != "good:1" || set.Load(9).InFlight() != 1 {
		t.Errorf("selected %q with %d operations, error %v", choice.Server().Address, set.Load(9).InFlight(), err)
	}
	choice.Release()
}

func TestExplain_preferredRole(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", ms), secondary("old:1", ms, behind(time.Hour)))
	e, err := selection.Explain(set, reads(selection.SecondaryPreferred(selection.MaxStaleness(time.Minute))))
	if err != nil {
		t.Fatal(err)
	}
	if v, found := e.Chosen(); !found || v.Server.Address != "p:1" || e.Servers[1].Step != selection.StepStaleness {
		t.Errorf("explanation\n%s", e)
	}
	set = replicaSet(t, down("p:1"), secondary("a:1", ms), secondary("b:1", ms))
	if e, err = selection.Explain(set, selection.Request{Criteria: selection.PrimaryPreferred(), Random: rand.NewPCG(1, 1)}); err != nil {
		t.Fatal(err)
	}
	steps := []selection.Step{e.Servers[0].Step, e.Servers[1].Step, e.Servers[2].Step}
	if steps[0] != selection.StepUnknown || steps[1]+steps[2] != selection.StepChosen+selection.StepInWindow {
		t.Errorf("explanation\n%s", e)
	}
}

// With 50 servers the text stays below 4 kB and still has every server that fits.
func TestError_size(t *testing.T) {
	t.Parallel()
	for name, long := range map[string]int{"short names": 1, "long names": 8, "absurd names": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []topology.Server
			for i := range 50 {
				s := secondary(strings.Repeat("host-", long)+fmt.Sprintf("%d.example.com:5432", i), ms, behind(time.Hour+time.Duration(i)))
				if i%3 == 0 {
					s = down(s.Address)
					s.Err = fmt.Errorf("dialling server %d: %w", i, errors.New(strings.Repeat("no route to host ", 20)))
				}
				list = append(list, s)
			}
			set := replicaSet(t, list...)
			criteria := selection.Secondary(selection.MaxStaleness(time.Minute))
			text := wantNone(t, set, reads(criteria), "staleness", "unknown").Error()
			if len(text) > 4096 {
				t.Errorf("%d bytes", len(text))
			}
			named := 0
			for _, s := range list {
				if strings.Contains(text, s.Address) {
					named++
				}
			}
			if long < 100 && named != 50 {
				t.Errorf("%d of 50 servers are named in\n%s", named, text)
			}
			if long == 100 && !strings.Contains(text, fmt.Sprintf("and %d more", 50-named)) {
				t.Errorf("%d servers are named, and the rest is not counted in\n%s", named, text)
			}
		})
	}
}

func TestError_longCriteria(t *testing.T) {
	t.Parallel()
	criteria := selection.Nearest(selection.Tags{"zone": strings.Repeat("é", 5000)})
	if text := wantNone(t, replicaSet(t, primary("p:1", ms)), reads(criteria), "p:1").Error(); len(text) > 4096 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestError_safeToRetry(t *testing.T) {
	t.Parallel()
	err := wantNone(t, replicaSet(t, down("a:1")), selection.Request{})
	if !err.SafeToRetry() {
		t.Error("a selection that found no server is not safe to retry")
	}
}

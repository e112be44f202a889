package selection_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Selections of a description that was selected from before stay within what
// Explain says, whatever was asked before them, and reach every server of it.
func TestSelect_again(t *testing.T) {
	t.Parallel()
	criteria := []selection.Criteria{
		{}, selection.Nearest(), selection.Secondary(), selection.PrimaryPreferred(), selection.SecondaryPreferred(),
		selection.Nearest(selection.MaxStaleness(100 * time.Second)), selection.Secondary(selection.Tags{"zone": "eu-1"}),
		selection.Secondary(selection.Tags{"zone": "eu-2"}, selection.Tags{}), selection.Secondary(selection.Tags{"zone": "nowhere"}),
		selection.Where(func(s selection.ServerInfo) bool { return s.Role == topology.RoleSecondary }),
		selection.Nearest(selection.Weights{"server-1.example.com:5432": 0}), // the last: never chosen, and yet in the window
	}
	thresholds := []time.Duration{0, selection.FastestOnly, 5 * time.Millisecond, time.Hour, -5}
	for _, n := range []int{0, 1, 3, 10, 70, 1500} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			t.Parallel()
			var set topology.Set
			if n > 0 {
				set = benchSet(t, n)
			}
			random := rand.New(rand.NewPCG(uint64(n), 7))
			seen := map[string]map[string]bool{}
			want := map[string]map[string]bool{}
			for range 4000 {
				c := random.IntN(len(criteria))
				r := selection.Request{Criteria: criteria[c], Operation: selection.Operation(random.IntN(2)), LocalThreshold: thresholds[random.IntN(len(thresholds))]}
				if random.IntN(5) == 0 {
					r.Deprioritized = []string{"server-0.example.com:5432"}
				}
				name := fmt.Sprint(c, r.Operation, r.LocalThreshold, r.Deprioritized)
				if want[name] == nil {
					want[name], seen[name] = inWindow(set, r), map[string]bool{}
				}
				choice, err := selection.Select(set, r)
				if (err == nil) != (len(want[name]) > 0) {
					t.Fatalf("%s: error %v, and in the window are %v", name, err, want[name])
				}
				if err != nil {
					continue
				}
				if a := choice.Server().Address; !want[name][a] {
					t.Fatalf("%s: %s was chosen, and in the window are %v", name, a, want[name])
				} else {
					seen[name][a] = true
				}
				choice.Release()
			}
			for name, servers := range want { // about 30 choices each, if nothing is deprioritized
				if len(servers) <= 2 && len(seen[name]) < len(servers) && strings.HasSuffix(name, "[]") && !strings.HasPrefix(name, fmt.Sprint(len(criteria)-1, " ")) {
					t.Errorf("%s: only %v were chosen of %v", name, seen[name], servers)
				}
			}
		})
	}
}

// inWindow are the servers that Explain would choose from; none for an error.
func inWindow(set topology.Set, r selection.Request) map[string]bool {
	servers := map[string]bool{}
	e, err := selection.Explain(set, r)
	if err != nil {
		return servers
	}
	for _, v := range e.Servers {
		if v.InWindow() {
			servers[v.Server.Address] = true
		}
	}
	return servers
}

// What was learnt of one description is not used for the next.
func TestSelect_nextDescription(t *testing.T) {
	t.Parallel()
	set := benchSet(t, 3)
	for _, primary := range []int{0, 1, 2, 0} {
		servers := make([]topology.Server, set.Len())
		for i := range servers {
			servers[i] = set.Server(i)
			servers[i].Role = topology.RoleSecondary
		}
		servers[primary].Role = topology.RolePrimary
		next, err := set.Describe(topology.KindReplicaSet, servers)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, o := range []selection.Operation{selection.Read, selection.Write} {
				choice, err := selection.Select(next, selection.Request{Operation: o})
				if err != nil || choice.Server().Address != servers[primary].Address {
					t.Fatalf("%v: %v was chosen with error %v, and %s is primary", o, choice.Server().Address, err, servers[primary].Address)
				}
				choice.Release()
			}
		}
		set = next
	}
}

// A context that has ended is an error, also where the answer is known.
func TestSelector_againEnded(t *testing.T) {
	t.Parallel()
	s, err := selection.NewSelector(selection.Config{Source: standing{benchSet(t, 3)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []selection.Criteria{{}, selection.Nearest()} {
		choice, err := s.Select(t.Context(), selection.Request{Criteria: c})
		if err != nil {
			t.Fatal(err)
		}
		choice.Release()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Select(ctx, selection.Request{Criteria: c}); !errors.Is(err, context.Canceled) || !errors.Is(err, selection.ErrNoServer) {
			t.Errorf("%v: error %v", c, err)
		}
	}
}

// standing is a source whose description stays.
type standing struct{ set topology.Set }

func (s standing) Current() (topology.Set, <-chan struct{}) { return s.set, nil }

func (standing) RequestCheck() {}

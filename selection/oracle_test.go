package selection_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// question is a random selection in plain data, for the oracle.
type question struct {
	mode      selection.Mode
	tagSets   []selection.Tags
	bound     time.Duration // 0: none
	predicate func(selection.ServerInfo) bool
	write     bool
	avoid     []string
	threshold time.Duration
}

// oracle answers with lists and loops, the way the rules are written down:
// first the suitable servers, then those in the latency window.
func oracle(set topology.Set, q question) (suitable, inWindow []string) {
	list := oracleSuitable(set, q, q.avoid)
	if len(list) == 0 {
		list = oracleSuitable(set, q, nil)
	}
	var fastest *time.Duration
	for _, s := range list {
		suitable = append(suitable, s.Address)
		if rtt, known := s.AverageRTT.Value(); known && (fastest == nil || rtt < *fastest) {
			fastest = &rtt
		}
	}
	for _, s := range list {
		rtt, known := s.AverageRTT.Value()
		if fastest == nil || known && rtt <= *fastest+q.threshold {
			inWindow = append(inWindow, s.Address)
		}
	}
	return suitable, inWindow
}

func oracleSuitable(set topology.Set, q question, avoid []string) []topology.Server {
	list := where(set.Servers(), func(s topology.Server) bool { return !slices.Contains(avoid, s.Address) })
	has := func(role topology.Role) []topology.Server {
		return where(list, func(s topology.Server) bool { return s.Role == role })
	}
	ask := func(candidates []topology.Server) []topology.Server {
		if q.predicate == nil || q.write {
			return candidates
		}
		return where(candidates, func(s topology.Server) bool {
			return q.predicate(selection.ServerInfo{Server: s, Kind: set.Kind()})
		})
	}
	switch set.Kind() {
	case topology.KindUnknown:
		return nil
	case topology.KindSingle:
		return ask(where(list, func(s topology.Server) bool {
			return s.Role != topology.RoleUnknown && s.Role != topology.RolePossiblePrimary
		}))
	case topology.KindSharded:
		return ask(has(topology.RoleMongos))
	case topology.KindLoadBalanced:
		return has(topology.RoleLoadBalancer)
	}
	primaries, secondaries := has(topology.RolePrimary), has(topology.RoleSecondary)
	secondaries = where(secondaries, func(s topology.Server) bool { return !s.Detached })
	both := append(slices.Clone(primaries), secondaries...)
	switch {
	case q.write:
		return primaries
	case q.predicate != nil:
		return ask(both)
	}
	switch q.mode {
	case selection.ModePrimary:
		return primaries
	case selection.ModeSecondary:
		return oracleTags(oracleFresh(secondaries, q), q)
	case selection.ModeNearest:
		return oracleTags(oracleFresh(both, q), q)
	case selection.ModePrimaryPreferred:
		if len(primaries) > 0 {
			return primaries
		}
		return oracleTags(oracleFresh(secondaries, q), q)
	default:
		if found := oracleTags(oracleFresh(secondaries, q), q); len(found) > 0 {
			return found
		}
		return primaries
	}
}

func oracleFresh(list []topology.Server, q question) []topology.Server {
	return where(list, func(s topology.Server) bool {
		return q.bound == 0 || s.Role == topology.RolePrimary || s.Staleness.AtMost(q.bound)
	})
}

func oracleTags(list []topology.Server, q question) []topology.Server {
	if len(q.tagSets) == 0 {
		return list
	}
	for _, set := range q.tagSets {
		found := where(list, func(s topology.Server) bool {
			for key, value := range set {
				if got, has := s.Tags.Get(key); !has || got != value {
					return false
				}
			}
			return true
		})
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func where(list []topology.Server, keep func(topology.Server) bool) []topology.Server {
	var kept []topology.Server
	for _, s := range list {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

func randomSet(t *testing.T, r *rand.Rand) topology.Set {
	t.Helper()
	kinds := []topology.Kind{
		topology.KindReplicaSet, topology.KindReplicaSet, topology.KindReplicaSet, topology.KindReplicaSetNoPrimary,
		topology.KindReplicaSetWithPrimary, topology.KindSharded, topology.KindSingle, topology.KindLoadBalanced, topology.KindUnknown,
	}
	kind := kinds[r.IntN(len(kinds))]
	roles := []topology.Role{topology.RoleSecondary, topology.RoleSecondary, topology.RoleSecondary, topology.RoleUnknown, topology.RoleOther, topology.RoleArbiter}
	switch kind {
	case topology.KindSharded:
		roles = []topology.Role{topology.RoleMongos, topology.RoleMongos, topology.RoleUnknown}
	case topology.KindSingle:
		roles = []topology.Role{topology.RoleStandalone, topology.RoleSecondary, topology.RoleOther, topology.RoleUnknown, topology.RolePossiblePrimary}
	case topology.KindLoadBalanced:
		roles = []topology.Role{topology.RoleLoadBalancer}
	}
	list := make([]topology.Server, 1+r.IntN(9))
	if r.IntN(20) == 0 {
		list = make([]topology.Server, 60+r.IntN(80))
	}
	for i := range list {
		s := topology.Server{Address: fmt.Sprintf("s%d:1", i), Role: roles[r.IntN(len(roles))], LastUpdate: time.Unix(1000+r.Int64N(100), 0)}
		labels := make(map[string]string)
		for _, key := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				labels[key] = fmt.Sprint(r.IntN(2))
			}
		}
		s.Tags = topology.NewTags(labels)
		if r.IntN(5) > 0 {
			s.AverageRTT = topology.Measured(time.Duration(r.IntN(30)) * ms)
		}
		if r.IntN(5) > 0 {
			s.Staleness = topology.Measured(time.Duration(r.IntN(150)) * time.Second)
			s.LastWrite = time.Unix(900+r.Int64N(200), 0)
		}
		s.Detached = r.IntN(8) == 0 && s.Role == topology.RoleSecondary
		list[i] = s
	}
	if kind == topology.KindReplicaSetWithPrimary || kind == topology.KindReplicaSet && r.IntN(3) > 0 {
		list[r.IntN(len(list))].Role = topology.RolePrimary
	}
	return describe(t, topology.Config{Kind: kind}, list...)
}

func randomQuestion(set topology.Set, r *rand.Rand) (question, selection.Request) {
	q := question{mode: selection.Mode(r.IntN(5)), threshold: time.Duration(1+r.IntN(20)) * ms, write: r.IntN(6) == 0}
	for i := range set.Len() {
		if r.IntN(4) == 0 {
			q.avoid = append(q.avoid, set.Server(i).Address)
		}
	}
	request := selection.Request{Deprioritized: q.avoid, LocalThreshold: q.threshold, Random: rand.NewPCG(r.Uint64(), 1)}
	if q.write {
		request.Operation = selection.Write
	}
	if r.IntN(5) == 0 {
		limit := time.Duration(r.IntN(30)) * ms
		q.predicate = func(s selection.ServerInfo) bool { return s.AverageRTT.AtMost(limit) }
		request.Criteria = selection.Where(q.predicate)
		return q, request
	}
	preference := selection.ReadPreference{Mode: q.mode}
	if q.mode != selection.ModePrimary {
		for range r.IntN(4) {
			tags := selection.Tags{}
			for _, key := range []string{"a", "b", "c", "d"} {
				if r.IntN(4) == 0 {
					tags[key] = fmt.Sprint(r.IntN(2))
				}
			}
			q.tagSets = append(q.tagSets, tags)
		}
		if r.IntN(2) == 0 {
			q.bound = time.Duration(90+r.IntN(60)) * time.Second
		}
	}
	preference.TagSets, preference.MaxStaleness = q.tagSets, q.bound
	request.Criteria, _ = selection.NewCriteria(&preference, nil)
	return q, request
}

// Random sets and criteria: the fast search and the slow oracle agree on both
// stages, and Select never leaves the window.
func TestSelect_agreesWithTheOracle(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2026, 12))
	found := 0
	for round := range 3000 {
		set := randomSet(t, r)
		q, request := randomQuestion(set, r)
		wantSuitable, wantWindow := oracle(set, q)
		explanation, err := selection.Explain(set, request)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		var suitable, inWindow []string
		for _, verdict := range explanation.Servers {
			if verdict.Step == 0 {
				t.Fatalf("round %d: no verdict on %s", round, verdict.Server.Address)
			}
			if verdict.Suitable() {
				suitable = append(suitable, verdict.Server.Address)
			}
			if verdict.InWindow() {
				inWindow = append(inWindow, verdict.Server.Address)
			}
		}
		slices.Sort(suitable)
		slices.Sort(inWindow)
		slices.Sort(wantSuitable)
		slices.Sort(wantWindow)
		if diff := cmp.Diff([][]string{wantSuitable, wantWindow}, [][]string{suitable, inWindow}); diff != "" {
			t.Fatalf("round %d: %+v\n%s\nsuitable and in window (-want +got):\n%s", round, q, explanation, diff)
		}
		choice, err := selection.Select(set, request)
		if (err == nil) != (len(wantWindow) > 0) || err == nil && !slices.Contains(wantWindow, choice.Server().Address) {
			t.Fatalf("round %d: chose %q of %v, error %v", round, choice.Server().Address, wantWindow, err)
		}
		choice.Release()
		if err == nil {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d of the random selections found a server", found)
	}
}

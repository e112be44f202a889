package selection_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

const ms = time.Millisecond

// server describes one SQL server; change edits it.
func server(address string, role topology.Role, rtt time.Duration, change ...func(*topology.Server)) topology.Server {
	s := topology.Server{Address: address, Role: role, AverageRTT: topology.Measured(rtt), LastUpdate: time.Unix(1, 0)}
	for _, f := range change {
		f(&s)
	}
	return s
}

func primary(address string, rtt time.Duration, change ...func(*topology.Server)) topology.Server {
	return server(address, topology.RolePrimary, rtt, change...)
}

func secondary(address string, rtt time.Duration, change ...func(*topology.Server)) topology.Server {
	return server(address, topology.RoleSecondary, rtt, change...)
}

func down(address string) topology.Server {
	return topology.Server{Address: address, LastUpdate: time.Unix(1, 0), Err: errors.New("connection refused")}
}

func tags(pairs ...string) func(*topology.Server) {
	labels := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return func(s *topology.Server) { s.Tags = topology.NewTags(labels) }
}

func behind(lag time.Duration) func(*topology.Server) {
	return func(s *topology.Server) { s.Staleness = topology.Measured(lag) }
}

func detached(s *topology.Server) { s.Detached = true }

func replicaSet(t *testing.T, servers ...topology.Server) topology.Set {
	t.Helper()
	return describe(t, topology.Config{Kind: topology.KindReplicaSet}, servers...)
}

func describe(t *testing.T, config topology.Config, servers ...topology.Server) topology.Set {
	t.Helper()
	set, err := topology.NewSet(config, servers)
	if err != nil {
		t.Fatal(err)
	}
	if set, err = set.Describe(config.Kind, servers); err != nil {
		t.Fatal(err)
	}
	return set
}

// tally selects n times, releases at once and counts by address.
func tally(t *testing.T, set topology.Set, request selection.Request, n int) map[string]int {
	t.Helper()
	if request.Random == nil {
		request.Random = rand.NewPCG(1, 1)
	}
	counts := make(map[string]int)
	for range n {
		choice, err := selection.Select(set, request)
		if err != nil {
			t.Fatal(err)
		}
		counts[choice.Server().Address]++
		choice.Release()
	}
	return counts
}

// wantOnly checks that exactly the given servers are chosen.
func wantOnly(t *testing.T, set topology.Set, request selection.Request, want ...string) {
	t.Helper()
	var got []string
	for address := range tally(t, set, request, 300) {
		got = append(got, address)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("servers chosen differ (-want +got):\n%s", diff)
	}
}

// wantNone checks that nothing is selected and why.
func wantNone(t *testing.T, set topology.Set, request selection.Request, parts ...string) *selection.Error {
	t.Helper()
	choice, err := selection.Select(set, request)
	var none *selection.Error
	if !errors.As(err, &none) || !errors.Is(err, selection.ErrNoServer) {
		t.Fatalf("selected %q, error %v", choice.Server().Address, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	return none
}

func reads(c selection.Criteria) selection.Request { return selection.Request{Criteria: c} }

func TestSelect_zeroRequestIsThePrimary(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, secondary("b:1", 1*ms), primary("a:1", 90*ms))
	wantOnly(t, set, selection.Request{}, "a:1")
	wantOnly(t, set, reads(selection.Primary()), "a:1")
}

// LAT-01: the window is 15 ms by default and inclusive, and its type has a unit.
func TestSelect_window(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, secondary("a:1", 5*ms), secondary("b:1", 15*ms), secondary("c:1", 20*ms), secondary("d:1", 21*ms), secondary("e:1", 300*ms))
	for threshold, want := range map[time.Duration][]string{
		0:                     {"a:1", "b:1", "c:1"},
		selection.FastestOnly: {"a:1"},
		1:                     {"a:1"},
		10 * ms:               {"a:1", "b:1"},
		time.Second:           {"a:1", "b:1", "c:1", "d:1", "e:1"},
		1<<63 - 1:             {"a:1", "b:1", "c:1", "d:1", "e:1"},
	} {
		wantOnly(t, set, selection.Request{Criteria: selection.Nearest(), LocalThreshold: threshold}, want...)
	}
}

// LAT-04: a server without a sample is never the fastest.
func TestSelect_noRoundTrip(t *testing.T) {
	t.Parallel()
	unmeasured := func(s *topology.Server) { s.AverageRTT = topology.Measurement{} }
	set := replicaSet(t, secondary("a:1", 40*ms), secondary("b:1", 0, unmeasured))
	wantOnly(t, set, reads(selection.Nearest()), "a:1")
	set = replicaSet(t, secondary("b:1", 0, unmeasured), secondary("c:1", 0, unmeasured), down("d:1"))
	wantOnly(t, set, reads(selection.Nearest()), "b:1", "c:1")
}

// LAT-06: the first choices of fresh processes spread over equal servers.
func TestSelect_firstChoicesSpread(t *testing.T) {
	t.Parallel()
	counts := make(map[string]int)
	for seed := range uint64(50) {
		set := replicaSet(t, secondary("a:1", ms), secondary("b:1", ms), secondary("c:1", ms))
		choice, err := selection.Select(set, selection.Request{Criteria: selection.Nearest(), Random: rand.NewPCG(seed, 99)})
		if err != nil {
			t.Fatal(err)
		}
		counts[choice.Server().Address]++
	}
	for _, address := range []string{"a:1", "b:1", "c:1"} {
		if n := counts[address]; n < 8 || n > 27 {
			t.Errorf("%s was the first choice of %d in 50", address, n)
		}
	}
}

// LAT-05: a server that holds its operations gets under a tenth, and its share
// again when it has let them go.
func TestSelect_fewerInFlightWins(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, secondary("a:1", ms), secondary("b:1", ms), secondary("slow:1", ms))
	request := selection.Request{Criteria: selection.Nearest(), Random: rand.NewPCG(3, 4)}
	held := make([]selection.Choice, 1000)
	slow := 0
	for i := range held {
		choice, err := selection.Select(set, request)
		if err != nil {
			t.Fatal(err)
		}
		if choice.Server().Address != "slow:1" {
			choice.Release()
			continue
		}
		held[slow].Release() // a zero choice
		if slow++; slow > 100 {
			t.Fatalf("the slow server got %d of %d", slow, i)
		}
	}
	load := set.Load(set.Position("slow:1"))
	if load.InFlight() != int64(slow) || slow == 0 {
		t.Fatalf("%d operations held, %d counted", slow, load.InFlight())
	}
	for range slow {
		load.End()
	}
	if n := tally(t, set, request, 3000)["slow:1"]; n < 850 || n > 1150 {
		t.Errorf("the recovered server got %d of 3000", n)
	}
}

func TestChoice_release(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("a:1", ms))
	choice, err := selection.Select(set, selection.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if n := set.Load(0).InFlight(); n != 1 || choice.Server().InFlight() != 1 || choice.Set() != set {
		t.Fatalf("%d operations in flight after one selection", n)
	}
	next := set.Apply(topology.Observation{Address: "a:1", At: time.Unix(9, 0), Err: errors.New("gone")})
	if n := next.Server(0).InFlight(); n != 1 {
		t.Errorf("the next description counts %d operations", n)
	}
	var releases sync.WaitGroup
	for range 10 {
		releases.Go(choice.Release)
	}
	releases.Wait()
	if n := next.Server(0).InFlight(); n != 0 {
		t.Errorf("%d operations in flight after ten releases", n)
	}
	var zero selection.Choice
	zero.Release()
	if zero.Server().Address != "" {
		t.Error("the zero Choice names a server")
	}
}

// LAT-07: the slower suitable server is preferred to the one that failed.
func TestSelect_deprioritized(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 500*ms), secondary("fast:1", 1*ms), secondary("slow:1", 101*ms))
	request := reads(selection.Secondary())
	wantOnly(t, set, request, "fast:1")
	request.Deprioritized = []string{"fast:1", "nobody:1"}
	wantOnly(t, set, request, "slow:1")
	request.Deprioritized = []string{"slow:1", "fast:1"}
	wantOnly(t, set, request, "fast:1")
	if e, err := selection.Explain(set, request); err != nil || !e.Fallback {
		t.Errorf("fallback %v, %v", e.Fallback, err)
	}
	request.Criteria = selection.Where(func(s selection.ServerInfo) bool { return s.Host == "fast" })
	wantOnly(t, set, request, "fast:1") // never outside the predicate
	wantOnly(t, set, selection.Request{Operation: selection.Write, Deprioritized: []string{"p:1"}}, "p:1")
}

// LAT-08: a preferred role excludes the other one as long as it is there.
func TestSelect_preferredRoles(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 1*ms), secondary("a:1", 5*ms), secondary("b:1", 6*ms))
	wantOnly(t, set, reads(selection.SecondaryPreferred()), "a:1", "b:1")
	wantOnly(t, set, reads(selection.PrimaryPreferred()), "p:1")
	wantOnly(t, replicaSet(t, primary("p:1", ms), down("a:1"), down("b:1")), reads(selection.SecondaryPreferred()), "p:1")
	wantOnly(t, replicaSet(t, down("p:1"), secondary("a:1", 5*ms), secondary("b:1", 6*ms)), reads(selection.PrimaryPreferred()), "a:1", "b:1")
}

// LAT-09: tag sets are tried in order and never pooled.
func TestSelect_tagSets(t *testing.T) {
	t.Parallel()
	east, west := secondary("east:1", 9*ms, tags("dc", "east")), secondary("west:1", 1*ms, tags("dc", "west"))
	bare := secondary("bare:1", 1*ms)
	criteria := selection.Nearest(selection.Tags{"dc": "east"}, selection.Tags{})
	wantOnly(t, replicaSet(t, east, west, bare), reads(criteria), "east:1")
	wantOnly(t, replicaSet(t, down("east:1"), west, bare), reads(criteria), "west:1", "bare:1")
	wantOnly(t, replicaSet(t, bare), reads(criteria), "bare:1")
	wantNone(t, replicaSet(t, west, bare), reads(selection.Nearest(selection.Tags{"dc": "east"})), "dc=west", "no tags")

	many := selection.Tags{}
	for i := range 12 {
		many[fmt.Sprint("k", i)] = "v"
	}
	pairs := []string{"dc", "north"}
	for key, value := range many {
		pairs = append(pairs, key, value)
	}
	set := replicaSet(t, west, secondary("many:1", 9*ms, tags(pairs...)), secondary("few:1", ms, tags(pairs[:8]...)))
	wantOnly(t, set, reads(selection.Nearest(many)), "many:1")
}

// LAG-01: a secondary that follows nobody is not used unless it is asked for,
// and never under a staleness bound it cannot prove.
func TestSelect_detached(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 9*ms), secondary("cut:1", 1*ms, detached))
	bound := selection.MaxStaleness(time.Minute)
	wantOnly(t, set, reads(selection.Nearest()), "p:1")
	wantNone(t, set, reads(selection.Secondary()), "not replicating")
	wantNone(t, set, reads(selection.Secondary(bound)), "not replicating")
	wantNone(t, set, reads(selection.Where(func(s selection.ServerInfo) bool { return s.Detached })), "not replicating")
	wantNone(t, set, reads(selection.Secondary(bound, selection.AllowDetached(true))), "staleness (unknown, limit 1m0s)")
	wantOnly(t, set, reads(selection.Secondary(selection.AllowDetached(true))), "cut:1")
	wantOnly(t, set, reads(selection.Where(func(s selection.ServerInfo) bool { return s.Detached }, selection.AllowDetached(true))), "cut:1")
}

// LAG-02: the primary is never dropped for its own lag.
func TestSelect_primaryHasNoLag(t *testing.T) {
	t.Parallel()
	for _, lag := range []topology.Measurement{{}, topology.Measured(time.Hour)} {
		set := replicaSet(t, primary("p:1", ms, func(s *topology.Server) { s.Staleness = lag }), down("r:1"))
		bound := selection.MaxStaleness(time.Second)
		wantOnly(t, set, selection.Request{Operation: selection.Write}, "p:1")
		for _, criteria := range []selection.Criteria{selection.PrimaryPreferred(bound), selection.Nearest(bound), selection.SecondaryPreferred(bound)} {
			wantOnly(t, set, reads(criteria), "p:1")
		}
	}
}

// LAG-03: zero and unset mean no limit; a measured lag has no floor, MongoDB's
// estimate has one, which the error names.
func TestSelect_stalenessBounds(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", ms), secondary("old:1", ms, behind(time.Hour)))
	wantOnly(t, set, reads(selection.Secondary()), "old:1")
	wantOnly(t, set, reads(selection.Secondary(selection.MaxStaleness(0))), "old:1")
	wantOnly(t, set, reads(selection.Secondary(selection.MaxStaleness(time.Hour))), "old:1")
	wantOnly(t, set, reads(selection.Secondary(selection.MaxStaleness(1<<63-1))), "old:1")
	wantNone(t, set, reads(selection.Secondary(selection.MaxStaleness(time.Hour-1))), "1h0m0s", "limit 59m59.9")
	wantNone(t, set, reads(selection.Secondary(selection.MaxStaleness(1))), "limit 1ns")
	unknown := replicaSet(t, primary("p:1", ms), secondary("new:1", ms))
	wantNone(t, unknown, reads(selection.Secondary(selection.MaxStaleness(1<<63-1))), "staleness (unknown")

	mongo := describe(t, topology.Config{Kind: topology.KindReplicaSetWithPrimary, Heartbeat: 100 * time.Second}, primary("p:1", ms))
	for _, bound := range []time.Duration{0, 1, 90 * time.Second, 110*time.Second - 1} {
		_, err := selection.Select(mongo, reads(selection.Nearest(selection.MaxStaleness(bound))))
		var invalid *selection.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "MaxStaleness" || !strings.Contains(err.Error(), "1m50s") {
			t.Errorf("bound %v: %v", bound, err)
		}
	}
	wantOnly(t, mongo, reads(selection.Nearest(selection.MaxStaleness(110*time.Second))), "p:1")
	wantOnly(t, mongo, selection.Request{Criteria: selection.Nearest(selection.MaxStaleness(1)), Operation: selection.Write}, "p:1")
}

// LAG-06: a server that was never reached does not spoil a staleness bound.
func TestSelect_unknownServerIsIgnored(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, secondary("a:1", ms, behind(time.Second)), topology.Server{Address: "new:1"})
	wantOnly(t, set, reads(selection.Nearest(selection.MaxStaleness(time.Minute))), "a:1")
}

// LAG-07: who falls back to the primary and who does not.
func TestSelect_noSecondaryLeft(t *testing.T) {
	t.Parallel()
	bound := selection.MaxStaleness(time.Minute)
	set := replicaSet(t, primary("p:1", ms), down("dead:1"), secondary("old:1", ms, behind(time.Hour)))
	wantOnly(t, set, reads(selection.SecondaryPreferred(bound)), "p:1")
	wantOnly(t, set, reads(selection.Nearest(bound)), "p:1")
	wantNone(t, set, reads(selection.Secondary(bound)), "role (primary): p:1", "connection refused", "dead:1", "old:1")
	onlyFresh := func(s selection.ServerInfo) bool {
		return s.Role == topology.RoleSecondary && s.Staleness.AtMost(time.Minute)
	}
	wantNone(t, set, reads(selection.Where(onlyFresh)), "predicate", "p:1", "dead:1", "old:1")
}

func TestSelect_writes(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 900*ms), secondary("a:1", ms, tags("zone", "x")))
	for name, criteria := range map[string]selection.Criteria{
		"secondary": selection.Secondary(selection.Tags{"zone": "x"}),
		"nearest":   selection.Nearest(selection.MaxStaleness(1)),
		"predicate": selection.Where(func(selection.ServerInfo) bool { panic("asked for a write") }),
		"prefer":    selection.Nearest(selection.Prefer(func(selection.ServerInfo) bool { panic("asked for a write") })),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantOnly(t, set, selection.Request{Criteria: criteria, Operation: selection.Write}, "p:1")
		})
	}
	wantNone(t, replicaSet(t, down("p:1"), secondary("a:1", ms)), selection.Request{Operation: selection.Write},
		"write", "role (secondary): a:1", "connection refused", "p:1")
}

// Two undecided claims: writes are refused, and both are named.
func TestSelect_conflict(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("a:1", ms), primary("b:1", ms), secondary("c:1", ms))
	err := wantNone(t, set, selection.Request{Operation: selection.Write}, "a:1 (term unknown) and b:1 (term unknown)")
	var conflict *topology.ConflictError
	if !errors.As(err, &conflict) || !conflict.Undecided {
		t.Errorf("error %v is no conflict", err)
	}
	wantNone(t, set, reads(selection.Primary()))
	wantOnly(t, set, reads(selection.Nearest()), "c:1")
}

// ROLE-13: without a primary by design reads work and writes say so.
func TestSelect_readOnlySet(t *testing.T) {
	t.Parallel()
	set := describe(t, topology.Config{Kind: topology.KindReplicaSet, ReadOnly: true}, secondary("a:1", ms), secondary("b:1", ms))
	wantOnly(t, set, reads(selection.SecondaryPreferred()), "a:1", "b:1")
	for _, request := range []selection.Request{{Operation: selection.Write}, {}} {
		if err := wantNone(t, set, request, "no primary configured"); err.Explanation.Final == "" {
			t.Error("waiting is said to help")
		}
	}
}

func TestSelect_emptySet(t *testing.T) {
	t.Parallel()
	for _, request := range []selection.Request{{}, {Operation: selection.Write}, reads(selection.Nearest()), {Deprioritized: []string{"a:1"}}} {
		wantNone(t, topology.Set{}, request, "no servers")
	}
}

func TestSelect_largeSets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{63, 64, 65, 128, 1024, 1025, 3000} {
		list := make([]topology.Server, n)
		for i := range list {
			list[i] = secondary(fmt.Sprintf("s%d:1", i), 100*ms, tags("id", fmt.Sprint(i)))
		}
		list[n-1].AverageRTT, list[n/2].AverageRTT = topology.Measured(ms), topology.Measured(2*ms)
		set := replicaSet(t, list...)
		wantOnly(t, set, reads(selection.Nearest()), list[n-1].Address, list[n/2].Address)
		wantOnly(t, set, reads(selection.Nearest(selection.Tags{"id": fmt.Sprint(n - 2)})), list[n-2].Address)
		wantOnly(t, set, selection.Request{Criteria: selection.Nearest(), Deprioritized: []string{list[n-1].Address}}, list[n/2].Address)
	}
}

func TestSelect_allocatesNothing(t *testing.T) {
	for _, n := range []int{3, 50, 1000} {
		set := benchSet(t, n)
		for _, c := range benchCriteria {
			allocs := testing.AllocsPerRun(100, func() {
				choice, err := selection.Select(set, reads(c.criteria))
				if err != nil {
					t.Fatal(err)
				}
				choice.Release()
			})
			if allocs != 0 {
				t.Errorf("%s of %d servers: %v allocations", c.name, n, allocs)
			}
		}
	}
}

package topology_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/topology"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// newSet describes SQL servers at a:1, b:1, … that nothing is known of.
func newSet(t *testing.T, addresses ...string) topology.Set {
	t.Helper()
	set, err := topology.NewSet(topology.Config{Kind: topology.KindReplicaSet}, servers(addresses...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func servers(addresses ...string) []topology.Server {
	list := make([]topology.Server, len(addresses))
	for i, address := range addresses {
		list[i].Address = address
	}
	return list
}

// roles lists "address=role" in the set's order.
func roles(set topology.Set) []string {
	var list []string
	for _, server := range set.Servers() {
		list = append(list, server.Address+"="+server.Role.String())
	}
	return list
}

func wantRoles(t *testing.T, set topology.Set, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, roles(set)); diff != "" {
		t.Errorf("roles differ (-want +got):\n%s", diff)
	}
}

func primaryIn(ms int, address string, term uint64) topology.Observation {
	return topology.Observation{Address: address, At: at(ms), Role: topology.RolePrimary, Term: topology.Term{Major: term}}
}

func secondaryIn(ms int, address string, term uint64) topology.Observation {
	return topology.Observation{Address: address, At: at(ms), Role: topology.RoleSecondary, Term: topology.Term{Major: term}}
}

func failureIn(ms int, address string) topology.Observation {
	return topology.Observation{Address: address, At: at(ms), Err: errors.New("refused")}
}

func apply(set topology.Set, observations ...topology.Observation) topology.Set {
	for _, o := range observations {
		set = set.Apply(o)
	}
	return set
}

func TestNewSet_refused(t *testing.T) {
	t.Parallel()
	var address *topology.AddressError
	var heartbeat *topology.HeartbeatError
	for name, list := range map[string][]topology.Server{
		"listed twice":               servers("a:1", "b:1", "A:1"),
		"listed twice in two texts":  servers("[::1]:1", "[0::1]:1"),
		"without port":               servers("a"),
		"one bad among good servers": servers("a:1", "b:c:d"),
	} {
		if set, err := topology.NewSet(topology.Config{}, list); !errors.As(err, &address) || set.Len() != 0 {
			t.Errorf("%s: got %v, %v", name, set, err)
		}
	}
	if _, err := topology.NewSet(topology.Config{}, nil); !errors.Is(err, topology.ErrNoServers) {
		t.Errorf("no servers: %v", err)
	}
	for _, interval := range []time.Duration{-1, 1, topology.MinHeartbeat - 1} {
		_, err := topology.NewSet(topology.Config{Heartbeat: interval}, servers("a:1"))
		if !errors.As(err, &heartbeat) || heartbeat.Heartbeat != interval {
			t.Errorf("heartbeat %v: %v", interval, err)
		}
	}
}

func TestSet_zeroValue(t *testing.T) {
	t.Parallel()
	var set topology.Set
	if set.Len() != 0 || set.Kind() != topology.KindUnknown || set.Heartbeat() != topology.DefaultHeartbeat || set.Conflict() != nil {
		t.Errorf("zero Set: %v", set)
	}
	if next := set.Apply(primaryIn(1, "a:1", 1)); next != set {
		t.Errorf("an observation changed the zero Set to %v", next)
	}
	if _, found := set.Primary(); found {
		t.Error("the zero Set has a primary")
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1")
	o := primaryIn(10, "a:1", 3)
	o.RTT, o.Engine, o.Version = topology.Measured(4*time.Millisecond), "postgres", "17.2"
	o.LastWrite, o.Staleness = at(9), topology.Measured(0)
	next := set.Apply(o)

	wantRoles(t, set, "a:1=unknown", "b:1=unknown")
	wantRoles(t, next, "a:1=primary", "b:1=unknown")
	got, _ := next.Find("a:1")
	if got.Host != "a" || got.Port != 1 || !got.LastUpdate.Equal(at(10)) || !got.LastWrite.Equal(at(9)) ||
		got.AverageRTT != topology.Measured(4*time.Millisecond) || got.Engine != "postgres" || got.Version != "17.2" ||
		got.Term.Major != 3 || got.Err != nil || got.Staleness != topology.Measured(0) {
		t.Errorf("after the observation: %+v", got)
	}
}

// LAT-03: descriptions are immutable; the average moves with every sample.
func TestApply_average(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1")
	sample := func(ms int, rtt time.Duration) topology.Observation {
		o := primaryIn(ms, "a:1", 1)
		o.RTT = topology.Measured(rtt)
		return o
	}
	early := set.Apply(sample(1, 5*time.Millisecond))
	late := early
	for i := range 20 {
		late = late.Apply(sample(2+i, 200*time.Millisecond))
	}
	if got := early.Server(0).AverageRTT; got != topology.Measured(5*time.Millisecond) {
		t.Errorf("the early description changed to %v", got)
	}
	if got, _ := late.Server(0).AverageRTT.Value(); got < 195*time.Millisecond || got > 200*time.Millisecond {
		t.Errorf("after 20 samples of 200ms the average is %v", got)
	}

	kept := late.Apply(secondaryIn(50, "a:1", 1))
	if kept.Server(0).AverageRTT != late.Server(0).AverageRTT {
		t.Error("a change between known roles touched the average")
	}
	gone := kept.Apply(failureIn(60, "a:1"))
	if gone.Server(0).AverageRTT.Known() {
		t.Error("the average survived the server becoming unknown")
	}
	back := gone.Apply(sample(70, 3*time.Millisecond))
	if got := back.Server(0).AverageRTT; got != topology.Measured(3*time.Millisecond) {
		t.Errorf("first sample after the failure gave %v", got)
	}
}

// ROLE-06: only an explicit answer makes a primary.
func TestApply_noAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1").Apply(primaryIn(1, "a:1", 1))
	for name, o := range map[string]topology.Observation{
		"empty answer":            {Address: "a:1", At: at(2)},
		"error":                   {Address: "a:1", At: at(2), Err: errors.New("lost")},
		"answer before the error": {Address: "a:1", At: at(2), Role: topology.RolePrimary, Err: errors.New("lost")},
	} {
		next := set.Apply(o)
		if _, found := next.Primary(); found || next.Server(0).Role != topology.RoleUnknown || next.Server(0).Staleness.Known() {
			t.Errorf("%s: %v", name, next)
		}
	}
}

func TestApply_lateOrForeign(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1").Apply(primaryIn(10, "a:1", 1))
	replaced, err := set.Members(servers("b:1"))
	if err != nil {
		t.Fatal(err)
	}
	if replaced, err = replaced.Members(servers("a:1", "b:1")); err != nil {
		t.Fatal(err)
	}
	old := secondaryIn(99, "a:1", 1)
	old.Generation = set.Server(0).Generation
	for name, test := range map[string]struct {
		set topology.Set
		o   topology.Observation
	}{
		"older":              {set, failureIn(9, "a:1")},
		"same instant":       {set, secondaryIn(10, "a:1", 1)},
		"without a time":     {set, topology.Observation{Address: "a:1", Role: topology.RoleSecondary}},
		"server not in set":  {set, primaryIn(99, "c:1", 9)},
		"server was removed": {set, primaryIn(99, "", 9)},
		"server replaced":    {replaced, old},
	} {
		if next := test.set.Apply(test.o); next != test.set {
			t.Errorf("%s: %v became %v", name, test.set, next)
		}
	}
	if next := set.Apply(failureIn(10, "a:1")); next.Server(0).Role != topology.RoleUnknown {
		t.Error("at the same instant the error did not win")
	}
}

// 1,000 random interleavings of late observations end in the same description.
func TestApply_interleavings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 1000 {
		set := newSet(t, "a:1", "b:1", "c:1")
		var observations []topology.Observation
		newest := map[string]topology.Observation{}
		for i := range 12 {
			address := string(rune('a'+random.IntN(3))) + ":1"
			o := []topology.Observation{secondaryIn(i+1, address, 1), failureIn(i+1, address), {Address: address, At: at(i + 1), Role: topology.RoleOther}}[random.IntN(3)]
			observations = append(observations, o)
			newest[address] = o
		}
		random.Shuffle(len(observations), func(i, j int) { observations[i], observations[j] = observations[j], observations[i] })
		set = apply(set, observations...)
		for address, o := range newest {
			got, _ := set.Find(address)
			want := o.Role
			if !got.LastUpdate.Equal(o.At) || got.Role != want || (got.Err == nil) != (o.Err == nil) {
				t.Fatalf("round %d: %s is %v of %v, want %v of %v", round, address, got.Role, got.LastUpdate, want, o.At)
			}
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1").Apply(primaryIn(1, "a:1", 1))
	set.Load(0).Begin()
	list := servers("c:1", "a:1")
	list[1].Tags = topology.NewTags(map[string]string{"zone": "x"})
	next, err := set.Members(list)
	if err != nil {
		t.Fatal(err)
	}
	wantRoles(t, next, "c:1=unknown", "a:1=primary")
	kept, _ := next.Find("a:1")
	if kept.InFlight() != 1 || kept.Generation != set.Server(0).Generation || kept.Tags.String() != "zone=x" {
		t.Errorf("the server that stayed: %+v, in flight %d", kept, kept.InFlight())
	}
	if fresh, _ := next.Find("c:1"); fresh.Generation == set.Server(1).Generation || fresh.Generation == kept.Generation {
		t.Errorf("the new server got generation %d, which was given out before", fresh.Generation)
	}
	if _, err := next.Members(servers("a:1", "a:1")); err == nil {
		t.Error("a server listed twice was accepted")
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	set, err := topology.NewSet(topology.Config{Kind: topology.KindUnknown}, servers("a:1", "b:1"))
	if err != nil {
		t.Fatal(err)
	}
	set.Load(0).Begin()
	described := servers("a:1", "b:1")
	described[0].Role, described[1].Role = topology.RolePrimary, topology.RoleSecondary
	described[0].LastUpdate, described[0].LastWrite = at(20_000), at(19_000)
	described[1].LastUpdate, described[1].LastWrite = at(21_000), at(13_000)
	next, err := set.Describe(topology.KindReplicaSetNoPrimary, described)
	if err != nil {
		t.Fatal(err)
	}
	wantRoles(t, next, "a:1=primary", "b:1=secondary")
	if next.Kind() != topology.KindReplicaSetWithPrimary || next.Server(0).InFlight() != 1 {
		t.Errorf("kind %v, in flight %d", next.Kind(), next.Server(0).InFlight())
	}
	// (21-13) - (20-19) + 10 s heartbeat
	if got := next.Server(1).Staleness; got != topology.Measured(17*time.Second) {
		t.Errorf("staleness %v", got)
	}
	lost := next.Apply(failureIn(30_000, "a:1"))
	if lost.Kind() != topology.KindReplicaSetNoPrimary || lost.Server(1).Staleness != topology.Measured(10*time.Second) {
		t.Errorf("without primary: %v, staleness %v", lost, lost.Server(1).Staleness)
	}
}

func TestSet_find(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 16, 17, 200} {
		list := make([]topology.Server, n)
		for i := range list {
			list[i].Address = fmt.Sprintf("h%d:1", i)
			list[i].Tags = topology.NewTags(map[string]string{"id": fmt.Sprint(i), "odd": fmt.Sprint(i%2 == 1)})
		}
		set, err := topology.NewSet(topology.Config{}, list)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if got := set.Position(list[i].Address); got != i {
				t.Errorf("%d servers: %s is at %d", n, list[i].Address, got)
			}
			bits := set.Index().Tagged(unique.Make(topology.Tag{Key: "id", Value: fmt.Sprint(i)}))
			want := make([]uint64, (n+63)/64)
			want[i/64] = 1 << (i % 64)
			if !slices.Equal(bits, want) {
				t.Errorf("%d servers: tag of server %d is on %b", n, i, bits)
			}
		}
		if set.Position("nobody:1") != -1 || set.Index().Tagged(unique.Make(topology.Tag{Key: "id", Value: "x"})) != nil {
			t.Errorf("%d servers: found what is not there", n)
		}
	}
}

package topology_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/shardway/shardway/topology"
)

func following(o topology.Observation, upstream string) topology.Observation {
	o.Upstream = upstream
	return o
}

func wantConflict(t *testing.T, set topology.Set, undecided bool, parts ...string) {
	t.Helper()
	var conflict *topology.ConflictError
	if !errors.As(set.Conflict(), &conflict) {
		t.Fatalf("no conflict in %v", set)
	}
	if conflict.Undecided != undecided {
		t.Errorf("undecided is %v", conflict.Undecided)
	}
	for _, part := range parts {
		if !strings.Contains(conflict.Error(), part) {
			t.Errorf("error %q does not name %q", conflict, part)
		}
	}
}

// ROLE-03: after term 6 was seen the primary of term 5 never takes writes
// again, whatever it says and however often it comes back.
func TestClaims_newerTermWins(t *testing.T) {
	t.Parallel()
	set := newSet(t, "p1:1", "p2:1")
	set = apply(set, primaryIn(1, "p1:1", 5), secondaryIn(1, "p2:1", 5))
	wantRoles(t, set, "p1:1=primary", "p2:1=secondary")
	set = apply(set, failureIn(2, "p1:1"))
	wantRoles(t, set, "p1:1=unknown", "p2:1=secondary")
	set = apply(set, primaryIn(3, "p2:1", 6))
	wantRoles(t, set, "p1:1=unknown", "p2:1=primary")
	if got := set.Server(0).Demotions; got != 1 {
		t.Errorf("p1 was demoted %d times", got)
	}
	set = apply(set, primaryIn(4, "p1:1", 5))
	wantRoles(t, set, "p1:1=unknown", "p2:1=primary")
	wantConflict(t, set, false, "p1:1 (term 5)", "p2:1 (term 6)")
	if !errors.Is(set.Server(0).Err, set.Conflict()) {
		t.Errorf("the refused server's error is %v", set.Server(0).Err)
	}
	set = apply(set, failureIn(5, "p2:1"), primaryIn(6, "p1:1", 5))
	wantRoles(t, set, "p1:1=unknown", "p2:1=unknown")
	if _, found := set.Primary(); found {
		t.Error("a primary of an older term was accepted while the newer one is silent")
	}
	set = apply(set, primaryIn(7, "p2:1", 6))
	wantRoles(t, set, "p1:1=unknown", "p2:1=primary")
}

// ROLE-10: a secondary that follows the newer primary speaks against the old one.
func TestClaims_secondaryKnowsNewerTerm(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1", "c:1")
	set = apply(set, primaryIn(1, "a:1", 5), secondaryIn(2, "c:1", 6))
	wantRoles(t, set, "a:1=unknown", "b:1=unknown", "c:1=secondary")
	set = apply(set, primaryIn(3, "b:1", 6))
	wantRoles(t, set, "a:1=unknown", "b:1=primary", "c:1=secondary")
}

// ROLE-11: terms are compared part by part, a missing part is the smallest,
// equal claims give no primary, and the reason names both.
func TestClaims_compoundTerms(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a, b topology.Term
		want string // "a", "b" or "" for undecided
	}{
		"first part decides":     {topology.Term{Major: 2, Minor: 1}, topology.Term{Major: 1, Minor: 9}, "a"},
		"second part decides":    {topology.Term{Major: 1, Minor: 1}, topology.Term{Major: 1, Minor: 2}, "b"},
		"missing second part":    {topology.Term{Major: 1}, topology.Term{Major: 1, Minor: 1}, "b"},
		"missing term":           {topology.Term{Major: 1}, topology.Term{}, "a"},
		"missing first part":     {topology.Term{Minor: 9}, topology.Term{Major: 1}, "b"},
		"equal":                  {topology.Term{Major: 3, Minor: 4}, topology.Term{Major: 3, Minor: 4}, ""},
		"both missing":           {topology.Term{}, topology.Term{}, ""},
		"greatest against small": {topology.Term{Major: 1 << 63}, topology.Term{Major: 1}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := primaryIn(1, "a:1", 0), primaryIn(1, "b:1", 0)
			a.Term, b.Term = test.a, test.b
			for _, set := range []topology.Set{apply(newSet(t, "a:1", "b:1"), a, b), apply(newSet(t, "a:1", "b:1"), b, a)} {
				primary, _ := set.Primary()
				if strings.TrimSuffix(primary.Address, ":1") != test.want {
					t.Errorf("primary %q, want %q", primary.Address, test.want)
				}
				wantConflict(t, set, test.want == "", "a:1 (term "+test.a.String()+")", "b:1 (term "+test.b.String()+")")
				if test.want == "" {
					wantRoles(t, set, "a:1=unknown", "b:1=unknown")
				}
			}
		})
	}
}

func TestClaims_undecidedEndsWithTheClaim(t *testing.T) {
	t.Parallel()
	set := apply(newSet(t, "a:1", "b:1"), primaryIn(1, "a:1", 1), primaryIn(1, "b:1", 1))
	wantConflict(t, set, true, "a:1", "b:1")
	set = set.Apply(secondaryIn(2, "b:1", 1))
	wantRoles(t, set, "a:1=primary", "b:1=secondary")
	if set.Conflict() != nil {
		t.Errorf("conflict remains: %v", set.Conflict())
	}
}

// ROLE-02: a restarted replica that is writable but still follows the primary
// is no primary.
func TestClaims_writableFollower(t *testing.T) {
	t.Parallel()
	writable := following(primaryIn(2, "r:1", 0), "p:1")
	set := apply(newSet(t, "p:1", "r:1"), primaryIn(1, "p:1", 0), writable)
	wantRoles(t, set, "p:1=primary", "r:1=unknown")
	wantConflict(t, set, false, "r:1", "p:1", "follows")

	set = set.Apply(failureIn(3, "p:1"))
	wantRoles(t, set, "p:1=unknown", "r:1=unknown")

	promoted := set.Apply(primaryIn(4, "r:1", 0))
	wantRoles(t, promoted, "p:1=unknown", "r:1=primary")
}

// LAG-02: in a pair that follow each other the writer stays primary when the
// other one is down, though its upstream is silent and its lag unknown.
func TestClaims_mutualReplication(t *testing.T) {
	t.Parallel()
	w := following(primaryIn(1, "w:1", 0), "r:1")
	r := following(secondaryIn(1, "r:1", 0), "w:1")
	set := apply(newSet(t, "w:1", "r:1"), w, r)
	wantRoles(t, set, "w:1=primary", "r:1=secondary")
	set = set.Apply(failureIn(2, "r:1"))
	wantRoles(t, set, "w:1=primary", "r:1=unknown")

	fresh := apply(newSet(t, "w:1", "r:1"), failureIn(1, "r:1"), w)
	wantRoles(t, fresh, "w:1=primary", "r:1=unknown")

	both := apply(newSet(t, "w:1", "r:1"), w, following(primaryIn(1, "r:1", 0), "w:1"))
	wantRoles(t, both, "w:1=unknown", "r:1=unknown")
	wantConflict(t, both, true, "w:1", "r:1")
}

func TestClaims_chainOfFollowers(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"a:1", "b:1", "c:1"}, {"c:1", "b:1", "a:1"}} {
		set := apply(newSet(t, order...),
			following(primaryIn(1, "a:1", 0), "b:1"), following(primaryIn(1, "b:1", 0), "c:1"), primaryIn(1, "c:1", 0))
		if primary, _ := set.Primary(); primary.Address != "c:1" {
			t.Errorf("order %v: primary %q in %v", order, primary.Address, set)
		}
	}
}

// ROLE-05: 10,000 heartbeats of which a tenth fails or comes late announce no
// other primary and no demotion.
func TestClaims_noFlapping(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 5))
	set := apply(newSet(t, "a:1", "b:1", "c:1"), primaryIn(1, "a:1", 1), secondaryIn(1, "b:1", 1), secondaryIn(1, "c:1", 1))
	for beat := 2; beat < 10_000; beat++ {
		for _, address := range []string{"a:1", "b:1", "c:1"} {
			o := secondaryIn(beat, address, 1)
			if address == "a:1" {
				o = primaryIn(beat, address, 1)
			}
			switch random.IntN(20) {
			case 0:
				o = failureIn(beat, address)
			case 1:
				o.At = at(beat - 1 - random.IntN(3))
			}
			set = set.Apply(o)
		}
		if primary, found := set.Primary(); found && primary.Address != "a:1" {
			t.Fatalf("heartbeat %d: primary is %s", beat, primary.Address)
		}
	}
	for _, server := range set.Servers() {
		if server.Demotions != 0 {
			t.Errorf("%s was demoted %d times", server.Address, server.Demotions)
		}
	}
}

func TestClaims_demotions(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1").Apply(primaryIn(1, "a:1", 1))
	want := func(a uint64) {
		t.Helper()
		if got := set.Server(0).Demotions; got != a {
			t.Errorf("a:1 was demoted %d times, want %d", got, a)
		}
	}
	set = apply(set, failureIn(2, "a:1"), primaryIn(3, "a:1", 1))
	want(0)
	set = apply(set, secondaryIn(4, "a:1", 1), secondaryIn(5, "a:1", 1))
	want(1)
	set = apply(set, primaryIn(6, "a:1", 2), failureIn(7, "a:1"), primaryIn(8, "b:1", 3))
	want(2)
	set = apply(set, primaryIn(9, "a:1", 4), primaryIn(10, "b:1", 4))
	want(3)
}

// A removed server's term does not hold against those that stay.
func TestClaims_removedServerForgotten(t *testing.T) {
	t.Parallel()
	set := apply(newSet(t, "old:1", "new:1"), primaryIn(1, "old:1", 9))
	next, err := set.Members(servers("new:1"))
	if err != nil {
		t.Fatal(err)
	}
	wantRoles(t, next.Apply(primaryIn(2, "new:1", 1)), "new:1=primary")
}

// ROLE-12: primary down, secondary down, secondary up, primary up.
func TestClaims_doubleFailure(t *testing.T) {
	t.Parallel()
	set := apply(newSet(t, "p:1", "r:1"), primaryIn(1, "p:1", 1), secondaryIn(1, "r:1", 1))
	set = set.Apply(failureIn(2, "p:1"))
	wantRoles(t, set, "p:1=unknown", "r:1=secondary")
	set = set.Apply(failureIn(3, "r:1"))
	wantRoles(t, set, "p:1=unknown", "r:1=unknown")
	set = set.Apply(secondaryIn(4, "r:1", 1))
	wantRoles(t, set, "p:1=unknown", "r:1=secondary")
	set = set.Apply(primaryIn(5, "p:1", 1))
	wantRoles(t, set, "p:1=primary", "r:1=secondary")
}

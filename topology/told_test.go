package topology_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/topology"
)

// telling is an observation of a server that tells of others.
func telling(ms int, address, upstream string, told ...string) topology.Observation {
	o := secondaryIn(ms, address, 1)
	o.Upstream, o.Told = upstream, told
	return o
}

func find(t *testing.T, set topology.Set, address string) topology.Server {
	t.Helper()
	server, found := set.Find(address)
	if !found {
		t.Fatalf("%v has no server %s", set, address)
	}
	return server
}

// What is told changes no membership and no role, follows the order of
// observations, and is gone with the evidence for it.
func TestTold(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1", "b:1")
	words := []string{"d:1", "C:1", "d:1", "no port", "/tmp:1"}
	told := set.Apply(telling(10, "a:1", "b:1", words...))
	words[0] = "overwritten:1"
	check := func(what string, set topology.Set, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, find(t, set, "a:1").Told()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("told", told, "c:1", "d:1")
	check("the description before", set)
	find(t, told, "a:1").Told()[0] = "overwritten:1"
	check("a copy was overwritten", told, "c:1", "d:1")
	check("a late observation", told.Apply(telling(5, "a:1", "", "late:1")), "c:1", "d:1")
	check("of another server", told.Apply(telling(20, "b:1", "", "e:1")), "c:1", "d:1")
	check("a newer observation", told.Apply(telling(20, "a:1", "", "e:1")), "e:1")
	check("nothing told", told.Apply(telling(20, "a:1", "")))
	check("an error", told.Apply(failureIn(20, "a:1")))
	wantRoles(t, told, "a:1=secondary", "b:1=unknown")
	if told.Position("c:1") >= 0 || len(told.Index().Loads) != 2 {
		t.Error("an address that was told became a server of the set")
	}
	kept, err := told.Members(servers("a:1", "c:1"))
	if err != nil {
		t.Fatal(err)
	}
	check("other members", kept, "c:1", "d:1")
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("h%03d:1", i))
	}
	if n := len(find(t, set.Apply(telling(10, "a:1", "", many...)), "a:1").Told()); n != 32 {
		t.Errorf("%d addresses of one server are kept", n)
	}
}

func TestFindUnlisted(t *testing.T) {
	t.Parallel()
	type observations = []topology.Observation
	unlisted := func(address string, by ...string) topology.Unlisted {
		return topology.Unlisted{Address: address, ToldBy: by}
	}
	for name, c := range map[string]struct {
		listed []string
		seen   observations
		want   []topology.Unlisted
	}{
		"nothing told":      {[]string{"a:1"}, observations{telling(1, "a:1", "")}, nil},
		"all listed":        {[]string{"a:1", "b:1"}, observations{telling(1, "b:1", "a:1"), telling(1, "a:1", "", "b:1", "a:1")}, nil},
		"upstream and told": {[]string{"a:1"}, observations{telling(1, "a:1", "c:1", "b:1")}, []topology.Unlisted{unlisted("b:1", "a:1"), unlisted("c:1", "a:1")}},
		"told by both, once each": {
			[]string{"a:1", "b:1"},
			observations{telling(1, "b:1", "c:1", "c:1"), telling(1, "a:1", "c:1")},
			[]topology.Unlisted{unlisted("c:1", "a:1", "b:1")},
		},
		"another port":       {[]string{"a:1"}, observations{telling(1, "a:1", "a:2")}, []topology.Unlisted{unlisted("a:2", "a:1")}},
		"capitals, a dot":    {[]string{"a:1", "db.example:1"}, observations{telling(1, "a:1", "", "DB.Example.:1")}, nil},
		"IPv4 in IPv6":       {[]string{"a:1", "10.0.0.1:1"}, observations{telling(1, "a:1", "[::ffff:10.0.0.1]:1")}, nil},
		"IPv6":               {[]string{"a:1", "[fe80::1]:1"}, observations{telling(1, "a:1", "[fe80:0::1]:1", "[fe80::2]:1")}, []topology.Unlisted{unlisted("[fe80::2]:1", "a:1")}},
		"loopbacks":          {[]string{"127.0.0.1:1", "localhost:2"}, observations{telling(1, "127.0.0.1:1", "localhost:1", "[::1]:2", "127.0.0.2:1")}, nil},
		"loopback of ours":   {[]string{"127.0.0.1:1"}, observations{telling(1, "127.0.0.1:1", "localhost:2")}, []topology.Unlisted{unlisted("localhost:2", "127.0.0.1:1")}},
		"loopback of theirs": {[]string{"a:1"}, observations{telling(1, "a:1", "127.0.0.1:2", "localhost:3", "[::1]:4")}, nil},
		"two new spellings":  {[]string{"a:1", "b:1"}, observations{telling(1, "a:1", "10.0.0.1:1"), telling(1, "b:1", "[::ffff:10.0.0.1]:1")}, []topology.Unlisted{unlisted("10.0.0.1:1", "a:1", "b:1")}},
		"not for elsewhere":  {[]string{"a:1"}, observations{telling(1, "a:1", "/tmp:5432", "[fe80::1%eth0]:1", "0.0.0.0:1", "[::]:1")}, nil},
		"not to be shown":    {[]string{"a:1"}, observations{telling(1, "a:1", "$(id):1", "-h:1", "b\u202e:1", "user@b:1", "tcp://b:1")}, nil},
	} {
		set := apply(newSet(t, c.listed...), c.seen...)
		if diff := cmp.Diff(append([]topology.Unlisted{}, c.want...), topology.FindUnlisted(set.Servers())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Nobody connects to an address because a server tells of it: the login would
// be sent to whoever that is.
func TestMonitor_toldIsNotProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", telling(0, "", "b:1", "c:1"))
		prober.says("b:1", primaryIn(0, "", 1))
		prober.says("c:1", primaryIn(0, "", 2))
		monitor := open(t, prober, "a:1")
		defer monitor.Close()
		later(time.Minute)
		if n := len(topology.FindUnlisted(current(monitor).Servers())); n != 2 {
			t.Errorf("%d addresses are told of, want 2", n)
		}
		if asked := len(prober.times("b:1")) + len(prober.times("c:1")); asked > 0 || len(prober.times("a:1")) < 6 {
			t.Errorf("told addresses were asked %d times", asked)
		}
		wantRoles(t, current(monitor), "a:1=secondary")
	})
}

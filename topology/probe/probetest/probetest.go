// Package probetest helps to test probers on real servers: it waits for
// descriptions of a monitor, never for time.
package probetest

import (
	"context"
	"testing"
	"time"

	"github.com/shardway/shardway/topology"
)

// Limit bounds every wait: machines that test are busy.
const Limit = time.Minute

// Try asks one server.
func Try(t *testing.T, prober topology.Prober, address string) (topology.Observation, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	return prober.Probe(ctx, topology.Server{Address: address})
}

// Once asks one server that must answer.
func Once(t *testing.T, prober topology.Prober, address string) topology.Observation {
	t.Helper()
	o, err := Try(t, prober, address)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Watch is a monitor of a set under test.
type Watch struct{ *topology.Monitor }

// Open watches servers with the smallest heartbeat until the test ends.
func Open(t *testing.T, prober topology.Prober, addresses ...string) Watch {
	t.Helper()
	var servers []topology.Server
	for _, address := range addresses {
		servers = append(servers, topology.Server{Address: address})
	}
	set, err := topology.NewSet(topology.Config{Kind: topology.KindReplicaSet, Heartbeat: topology.MinHeartbeat}, servers)
	if err != nil {
		t.Fatal(err)
	}
	m, err := topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: prober})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return Watch{m}
}

// Await waits for a description, which see may also judge, and returns it.
func (w Watch) Await(t *testing.T, what string, see func(topology.Set) bool) topology.Set {
	t.Helper()
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	for {
		set, changed := w.Current()
		if see(set) {
			return set
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("no description with %s in %v, the last is %v %+v", what, Limit, set, set.Servers())
		}
	}
}

// IsPrimary sees whether the server at the address is the set's primary.
func IsPrimary(address string) func(topology.Set) bool {
	return func(s topology.Set) bool {
		p, ok := s.Primary()
		return ok && p.Address == address
	}
}

// NoPrimary sees whether the set has none.
func NoPrimary(s topology.Set) bool {
	_, ok := s.Primary()
	return !ok
}

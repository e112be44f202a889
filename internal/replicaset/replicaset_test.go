package replicaset_test

import (
	"context"
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// prober says that one server is primary and the others are secondaries.
type prober struct {
	primary string
	closed  int
}

func (p *prober) Probe(_ context.Context, s topology.Server) (topology.Observation, error) {
	role := topology.RoleSecondary
	if s.Address == p.primary {
		role = topology.RolePrimary
	}
	return topology.Observation{Role: role}, nil
}

func (p *prober) Close() error { p.closed++; return nil }

func location(addresses ...string) shardway.Location {
	l := shardway.Location{Engine: "postgres", Database: "d"}
	for _, a := range addresses {
		l.Servers = append(l.Servers, shardway.Server{Address: a, Tags: map[string]string{"zone": "of " + a}})
	}
	return l
}

// Every server is checked before anything is explained; tags come from the
// location; the prober goes with the watch.
func TestWatch(t *testing.T) {
	t.Parallel()
	p := &prober{primary: "b:1"}
	w, err := replicaset.Open(replicaset.Config{Location: location("a:1", "b:1", "c:1"), Prober: p})
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.Explain(t.Context(), selection.Request{Criteria: selection.Secondary(selection.Tags{"zone": "of c:1"})})
	if chosen, ok := e.Chosen(); err != nil || !ok || chosen.Server.Address != "c:1" || e.Servers[1].Server.Role != topology.RolePrimary {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := w.Explain(t.Context(), selection.Request{LocalThreshold: -5}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a bad request: %v", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := w.Explain(ended, selection.Request{}); err == nil || err.Error() != "checking servers: enough" {
		t.Errorf("an ended context: %v", err)
	}
	choice, err := w.Selector.Select(t.Context(), selection.Request{})
	if err != nil || choice.Server().Address != "b:1" || !replicaset.InFlight(choice.Set()) {
		t.Fatalf("%v, %v", choice.Server(), err)
	}
	choice.Release()
	if set, _ := w.Monitor.Current(); replicaset.InFlight(set) {
		t.Error("an operation is counted that has ended")
	}
	w.Close()
	if set, _ := w.Monitor.Current(); p.closed != 1 || !set.Closed() {
		t.Errorf("the prober was closed %d times, the monitor: %t", p.closed, set.Closed())
	}
}

// What cannot be watched is refused, and the prober closed.
func TestOpen_refused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]replicaset.Config{
		"no servers":         {},
		"a server twice":     {Location: location("a:1", "a:1")},
		"a bad address":      {Location: location("a:b")},
		"a short heartbeat":  {Location: location("a:1"), Heartbeat: 1},
		"a negative timeout": {Location: location("a:1"), SelectionTimeout: -1},
	} {
		p := &prober{}
		cfg.Prober = p
		if _, err := replicaset.Open(cfg); err == nil || p.closed != 1 {
			t.Errorf("%s: error %v, the prober was closed %d times", name, err, p.closed)
		}
	}
}

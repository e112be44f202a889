package selection_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ selection.Source = (*topology.Monitor)(nil)

// fakeSource hands out what the test puts in.
type fakeSource struct {
	mu       sync.Mutex
	set      topology.Set
	changed  chan struct{}
	requests int
	reads    int
}

func newSource(set topology.Set) *fakeSource {
	return &fakeSource{set: set, changed: make(chan struct{})}
}

func (s *fakeSource) Current() (topology.Set, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.set, s.changed
}

func (s *fakeSource) RequestCheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
}

func (s *fakeSource) put(set topology.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.set, s.changed = set, make(chan struct{})
}

func (s *fakeSource) counts() (reads, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.requests
}

func newSelector(t *testing.T, config selection.Config) *selection.Selector {
	t.Helper()
	selector, err := selection.NewSelector(config)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func TestSelector_selectsAtOnce(t *testing.T) {
	t.Parallel()
	set := replicaSet(t, primary("p:1", 1*ms), secondary("a:1", 3*ms), secondary("b:1", 9*ms))
	source := newSource(set)
	selector := newSelector(t, selection.Config{Source: source, LocalThreshold: selection.FastestOnly, Random: rand.NewPCG(1, 2)})
	for range 20 {
		choice, err := selector.Select(t.Context(), reads(selection.Secondary()))
		if err != nil || choice.Server().Address != "a:1" || set.Load(1).InFlight() != 1 {
			t.Fatalf("selected %q, error %v", choice.Server().Address, err)
		}
		choice.Release()
	}
	choice, err := selector.Select(t.Context(), selection.Request{Criteria: selection.Secondary(), LocalThreshold: time.Second, Deprioritized: []string{"a:1"}})
	if err != nil || choice.Server().Address != "b:1" {
		t.Errorf("selected %q, error %v", choice.Server().Address, err)
	}
	choice.Release()
	if _, requests := source.counts(); requests != 0 {
		t.Errorf("%d checks were requested", requests)
	}
}

func TestSelector_waitsForAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSource(replicaSet(t, down("p:1"), secondary("a:1", ms)))
		selector := newSelector(t, selection.Config{Source: source})
		began := time.Now()
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				choice, err := selector.Select(t.Context(), selection.Request{Operation: selection.Write})
				if err != nil || choice.Server().Address != "a:1" || time.Since(began) != 7*time.Second {
					t.Errorf("selected %q after %v, error %v", choice.Server().Address, time.Since(began), err)
				}
				choice.Release()
			})
		}
		time.Sleep(3 * time.Second) // fake time
		synctest.Wait()
		if reads, requests := source.counts(); reads != 20 || requests != 20 {
			t.Errorf("20 waiting selections looked %d times and asked for %d checks", reads, requests)
		}
		source.put(replicaSet(t, down("p:1"), down("a:1")))
		time.Sleep(4 * time.Second) // fake time
		source.put(replicaSet(t, down("p:1"), primary("a:1", ms)))
		work.Wait()
		if reads, requests := source.counts(); reads != 60 || requests != 40 {
			t.Errorf("20 selections over two changes looked %d times and asked for %d checks", reads, requests)
		}
	})
}

func TestSelector_timesOut(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 2 * time.Second} {
		want := timeout
		if want == 0 {
			want = 30 * time.Second
		}
		synctest.Test(t, func(t *testing.T) {
			source := newSource(replicaSet(t, down("p:1"), secondary("a:1", ms)))
			selector := newSelector(t, selection.Config{Source: source, SelectionTimeout: timeout})
			began := time.Now()
			_, err := selector.Select(t.Context(), selection.Request{})
			var none *selection.Error
			if !errors.As(err, &none) || !errors.Is(err, selection.ErrTimeout) || !errors.Is(err, selection.ErrNoServer) {
				t.Fatalf("error %v", err)
			}
			if took := time.Since(began); took != want || none.Waited != want {
				t.Errorf("waited %v, the error says %v, want %v", took, none.Waited, want)
			}
			for _, part := range []string{want.String(), "connection refused): p:1", "role (secondary): a:1"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestSelector_contextEnds(t *testing.T) {
	t.Parallel()
	cause := errors.New("request was withdrawn")
	synctest.Test(t, func(t *testing.T) {
		selector := newSelector(t, selection.Config{Source: newSource(replicaSet(t, down("p:1")))})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := selector.Select(ctx, selection.Request{})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || !errors.Is(err, selection.ErrNoServer) || errors.Is(err, selection.ErrTimeout) {
			t.Errorf("error %v", err)
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := selector.Select(short, selection.Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
	set := replicaSet(t, primary("p:1", ms))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newSelector(t, selection.Config{Source: newSource(set)}).Select(ended, selection.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	if set.Load(0).InFlight() != 0 {
		t.Error("an operation was counted for an ended context")
	}
}

// What waiting cannot mend fails at once.
func TestSelector_failsAtOnce(t *testing.T) {
	t.Parallel()
	up := replicaSet(t, primary("p:1", ms))
	readOnly := describe(t, topology.Config{Kind: topology.KindReplicaSet, ReadOnly: true}, secondary("a:1", ms))
	mongo := describe(t, topology.Config{Kind: topology.KindReplicaSetNoPrimary}, secondary("a:1", ms))
	for name, test := range map[string]struct {
		set     topology.Set
		request selection.Request
		part    string
	}{
		"invalid criteria":     {up, reads(selection.Where(nil)), "neither"},
		"bound too small":      {mongo, reads(selection.Nearest(selection.MaxStaleness(time.Second))), "1m30s"},
		"predicate panics":     {up, reads(selection.Where(func(selection.ServerInfo) bool { panic("boom") })), "boom"},
		"set without servers":  {topology.Set{}, selection.Request{}, "no servers"},
		"no primary by design": {readOnly, selection.Request{Operation: selection.Write}, "no primary configured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newSource(test.set)
			_, err := newSelector(t, selection.Config{Source: source}).Select(t.Context(), test.request)
			if err == nil || !strings.Contains(err.Error(), test.part) || errors.Is(err, selection.ErrTimeout) {
				t.Errorf("error %v", err)
			}
			if reads, requests := source.counts(); reads != 1 || requests != 0 {
				t.Errorf("looked %d times and asked for %d checks", reads, requests)
			}
		})
	}
}

func TestSelector_closedMonitor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, err := topology.NewSet(topology.Config{Kind: topology.KindReplicaSet}, []topology.Server{{Address: "a:1"}})
		if err != nil {
			t.Fatal(err)
		}
		monitor, err := topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: refusing{}})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() { monitor.Close() })
		began := time.Now()
		_, err = newSelector(t, selection.Config{Source: monitor}).Select(t.Context(), selection.Request{})
		if took := time.Since(began); took != 3*time.Second || !strings.Contains(err.Error(), "monitor is closed") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A failover seen by a real Monitor: writes wait, flow again as soon as the
// promotion is visible, and never reach the demoted primary.
func TestSelector_failover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := []topology.Server{{Address: "p1:1"}, {Address: "p2:1"}}
		set, err := topology.NewSet(topology.Config{Kind: topology.KindReplicaSet}, list)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		monitor, err := topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: failover{began: began}})
		if err != nil {
			t.Fatal(err)
		}
		defer monitor.Close()
		selector := newSelector(t, selection.Config{Source: monitor})
		write := func() (string, time.Duration) {
			choice, err := selector.Select(t.Context(), selection.Request{Operation: selection.Write})
			if err != nil {
				t.Fatal(err)
			}
			defer choice.Release()
			return choice.Server().Address, time.Since(began)
		}
		if address, after := write(); address != "p1:1" || after != 0 {
			t.Errorf("before: %s after %v", address, after)
		}
		time.Sleep(time.Minute - time.Since(began)) // fake time
		monitor.Report(topology.Observation{Address: "p1:1", At: time.Now(), Err: errors.New("read-only")})
		if address, after := write(); address != "p2:1" || after < 65*time.Second || after > 66*time.Second {
			t.Errorf("after the promotion at 1m5s: %s after %v", address, after)
		}
		for time.Since(began) < 5*time.Minute {
			if address, after := write(); address != "p2:1" {
				t.Errorf("a write went to %s after %v", address, after)
			}
			time.Sleep(time.Second) // fake time
		}
	})
}

// failover: p1 is primary, is cut off at one minute, and comes back at two,
// still writable in its old term; p2 is promoted at 65 seconds.
type failover struct{ began time.Time }

func (f failover) Probe(_ context.Context, server topology.Server) (topology.Observation, error) {
	age := time.Since(f.began)
	o := topology.Observation{Role: topology.RolePrimary, RTT: topology.Measured(ms), Term: topology.Term{Major: 5}}
	switch {
	case server.Address == "p1:1" && age >= time.Minute && age < 2*time.Minute:
		return topology.Observation{}, errors.New("no route to host")
	case server.Address == "p2:1" && age < 65*time.Second:
		o.Role = topology.RoleSecondary
	case server.Address == "p2:1":
		o.Term.Major = 6
	}
	return o, nil
}

type refusing struct{}

func (refusing) Probe(context.Context, topology.Server) (topology.Observation, error) {
	return topology.Observation{}, errors.New("connection refused")
}

// ROLE-12: primary down, secondary down, secondary up, primary up; at each step
// the right server or a bounded error, without a busy loop.
func TestSelector_doubleFailure(t *testing.T) {
	t.Parallel()
	p, r := primary("p:1", ms), secondary("r:1", ms)
	synctest.Test(t, func(t *testing.T) {
		source := newSource(replicaSet(t, p, r))
		selector := newSelector(t, selection.Config{Source: source, SelectionTimeout: time.Second})
		for i, step := range []struct {
			set         topology.Set
			read, write string // "" means an error at the timeout
		}{
			{replicaSet(t, p, r), "r:1", "p:1"},
			{replicaSet(t, down("p:1"), r), "r:1", ""},
			{replicaSet(t, down("p:1"), down("r:1")), "", ""},
			{replicaSet(t, down("p:1"), r), "r:1", ""},
			{replicaSet(t, p, r), "r:1", "p:1"},
		} {
			source.put(step.set)
			before, _ := source.counts()
			for operation, want := range map[selection.Operation]string{selection.Read: step.read, selection.Write: step.write} {
				began := time.Now()
				choice, err := selector.Select(t.Context(), selection.Request{Criteria: selection.SecondaryPreferred(), Operation: operation})
				if got := choice.Server().Address; got != want || (err == nil) != (want != "") {
					t.Errorf("step %d: %v went to %q, error %v", i, operation, got, err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("step %d: %v took %v", i, operation, took)
				}
				choice.Release()
			}
			if after, _ := source.counts(); after-before != 2 {
				t.Errorf("step %d: looked %d times", i, after-before)
			}
		}
	})
}

func TestSelector_logs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		source := newSource(replicaSet(t, down("p:1")))
		selector := newSelector(t, selection.Config{Source: source, Logger: logger})
		if _, err := selector.Select(t.Context(), selection.Request{Operation: selection.Write}); err == nil {
			t.Fatal("selected a dead server")
		}
		source.put(replicaSet(t, primary("p:1", ms)))
		choice, err := selector.Select(t.Context(), selection.Request{})
		if err != nil {
			t.Fatal(err)
		}
		choice.Release()
		want := [][]string{
			{"selection started", "operation=write", "criteria=primary"},
			{"selection waiting", "timeout=30s"},
			{"selection failed", "connection refused"},
			{"selection started", "operation=read"},
			{"selection succeeded", "server=p:1", "role=primary"},
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines:\n%s", len(lines), text.String())
		}
		for i, parts := range want {
			for _, part := range append(parts, "level=DEBUG") {
				if !strings.Contains(lines[i], part) {
					t.Errorf("line %d %q does not say %q", i, lines[i], part)
				}
			}
		}
	})
}

func TestNewSelector_refused(t *testing.T) {
	t.Parallel()
	source := newSource(topology.Set{})
	for field, config := range map[string]selection.Config{
		"Source":           {},
		"SelectionTimeout": {Source: source, SelectionTimeout: -1},
		"LocalThreshold":   {Source: source, LocalThreshold: -2},
	} {
		var invalid *selection.InvalidError
		if _, err := selection.NewSelector(config); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

package topology_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardway/shardway/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeProber answers by a function per address and notes when it was asked.
type fakeProber struct {
	mu      sync.Mutex
	answers map[string]func(ctx context.Context) (topology.Observation, error)
	asked   map[string][]time.Time // address → start of every probe
}

func newProber() *fakeProber {
	return &fakeProber{
		answers: make(map[string]func(context.Context) (topology.Observation, error)),
		asked:   make(map[string][]time.Time),
	}
}

func (p *fakeProber) Probe(ctx context.Context, server topology.Server) (topology.Observation, error) {
	p.mu.Lock()
	p.asked[server.Address] = append(p.asked[server.Address], time.Now())
	answer := p.answers[server.Address]
	p.mu.Unlock()
	if answer == nil {
		return topology.Observation{}, errors.New("connection refused")
	}
	return answer(ctx)
}

func (p *fakeProber) set(address string, answer func(context.Context) (topology.Observation, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[address] = answer
}

func (p *fakeProber) says(address string, o topology.Observation) {
	o.At = time.Time{}
	p.set(address, func(context.Context) (topology.Observation, error) { return o, nil })
}

func (p *fakeProber) times(address string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.asked[address]...)
}

func hang(ctx context.Context) (topology.Observation, error) {
	<-ctx.Done()
	return topology.Observation{}, ctx.Err()
}

func open(t *testing.T, prober topology.Prober, addresses ...string) *topology.Monitor {
	t.Helper()
	monitor, err := topology.OpenMonitor(topology.MonitorConfig{Set: newSet(t, addresses...), Prober: prober})
	if err != nil {
		t.Fatal(err)
	}
	return monitor
}

func current(m *topology.Monitor) topology.Set {
	set, _ := m.Current()
	return set
}

// later lets fake time pass until every goroutine waits again.
func later(d time.Duration) {
	time.Sleep(d) // fake time: every caller runs in a synctest bubble
	synctest.Wait()
}

func TestMonitor_heartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		prober.says("b:1", secondaryIn(0, "", 1))
		monitor := open(t, prober, "a:1", "b:1")
		synctest.Wait()
		wantRoles(t, current(monitor), "a:1=primary", "b:1=secondary")
		later(10 * time.Minute)
		monitor.Close()
		for _, address := range []string{"a:1", "b:1"} {
			times := prober.times(address)
			if n := len(times); n < 60 || n > 68 {
				t.Errorf("%s: %d probes in 10 minutes at 10 s", address, n)
			}
			jittered := false
			for i := 1; i < len(times); i++ {
				gap := times[i].Sub(times[i-1])
				if gap < 9*time.Second || gap > 10*time.Second {
					t.Errorf("%s: %v between two probes", address, gap)
				}
				jittered = jittered || gap != 10*time.Second
			}
			if !jittered {
				t.Errorf("%s: no jitter", address)
			}
		}
		if stats := monitor.Stats(); stats.Errors != 0 || stats.Probes < 120 {
			t.Errorf("stats %+v", stats)
		}
	})
}

func TestMonitor_requestsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		monitor := open(t, prober, "a:1")
		defer monitor.Close()
		later(3 * time.Second)
		if n := len(prober.times("a:1")); n != 1 {
			t.Fatalf("%d probes before the request", n)
		}
		monitor.RequestCheck()
		synctest.Wait()
		if n := len(prober.times("a:1")); n != 2 {
			t.Fatalf("%d probes right after the request", n)
		}
		for range 500 { // 5 seconds of requests
			monitor.RequestCheck()
			later(10 * time.Millisecond)
		}
		times := prober.times("a:1")
		for i := 2; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < topology.MinHeartbeat {
				t.Errorf("%v between two probes", gap)
			}
		}
		if n := len(times) - 2; n < 9 || n > 11 {
			t.Errorf("%d probes in 5 seconds of requests", n)
		}
	})
}

func TestMonitor_backOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		monitor := open(t, prober, "a:1")
		defer monitor.Close()
		synctest.Wait()
		prober.set("a:1", nil)
		monitor.RequestCheck()
		later(2 * time.Minute)
		times := prober.times("a:1")[1:]
		for i := 1; i < len(times); i++ {
			most := min(topology.MinHeartbeat<<(i-1), topology.DefaultHeartbeat)
			if gap := times[i].Sub(times[i-1]); gap > most || gap < min(most*9/10, topology.MinHeartbeat) {
				t.Errorf("failure %d: next probe after %v, want at most %v", i, gap, most)
			}
		}
		if n := len(times); n < 16 {
			t.Errorf("%d probes of a dead server in 2 minutes", n)
		}
		prober.says("a:1", primaryIn(0, "", 1))
		later(topology.DefaultHeartbeat)
		wantRoles(t, current(monitor), "a:1=primary")
	})
}

// ROLE-14: a silent server is unknown within two heartbeats, delays nobody and
// comes back.
func TestMonitor_hungServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		prober.says("b:1", secondaryIn(0, "", 1))
		monitor := open(t, prober, "a:1", "b:1")
		defer monitor.Close()
		later(time.Second)
		prober.set("a:1", hang)
		before := len(prober.times("b:1"))
		later(2 * topology.DefaultHeartbeat)
		wantRoles(t, current(monitor), "a:1=unknown", "b:1=secondary")
		if err := current(monitor).Server(0).Err; !errors.Is(err, topology.ErrProbeTimeout) {
			t.Errorf("error of the hung server: %v", err)
		}
		if n := len(prober.times("b:1")) - before; n < 2 {
			t.Errorf("the other server was probed %d times meanwhile", n)
		}
		if monitor.Stats().Timeouts == 0 {
			t.Error("no timeout was counted")
		}
		prober.says("a:1", primaryIn(0, "", 1))
		later(2 * topology.DefaultHeartbeat)
		wantRoles(t, current(monitor), "a:1=primary", "b:1=secondary")
	})
}

// A prober that ignores its context is asked once, not once a heartbeat, and
// its late answer is not believed.
func TestMonitor_deafProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		release := make(chan struct{})
		prober.set("a:1", func(context.Context) (topology.Observation, error) {
			<-release
			return topology.Observation{Role: topology.RolePrimary}, nil
		})
		monitor := open(t, prober, "a:1")
		later(5 * time.Minute)
		if n := len(prober.times("a:1")); n != 1 {
			t.Errorf("%d probes are stuck", n)
		}
		wantRoles(t, current(monitor), "a:1=unknown")
		prober.says("a:1", secondaryIn(0, "", 1))
		close(release)
		synctest.Wait()
		wantRoles(t, current(monitor), "a:1=unknown")
		later(topology.DefaultHeartbeat)
		wantRoles(t, current(monitor), "a:1=secondary")
		monitor.Close()
	})
}

func TestMonitor_closeDoesNotWaitForADeafProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		release := make(chan struct{})
		prober.set("a:1", func(context.Context) (topology.Observation, error) {
			<-release
			return topology.Observation{}, nil
		})
		monitor := open(t, prober, "a:1")
		synctest.Wait()
		began := time.Now()
		monitor.Close()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("Close took %v", waited)
		}
		close(release)
	})
}

func TestMonitor_panickingProber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.set("a:1", func(context.Context) (topology.Observation, error) { panic("boom") })
		prober.says("b:1", secondaryIn(0, "", 1))
		monitor := open(t, prober, "a:1", "b:1")
		defer monitor.Close()
		synctest.Wait()
		wantRoles(t, current(monitor), "a:1=unknown", "b:1=secondary")
		var panicked *topology.PanicError
		if err := current(monitor).Server(0).Err; !errors.As(err, &panicked) || panicked.Value != "boom" || panicked.Address != "a:1" {
			t.Errorf("error %v", err)
		}
		prober.says("a:1", primaryIn(0, "", 1))
		later(topology.DefaultHeartbeat)
		wantRoles(t, current(monitor), "a:1=primary", "b:1=secondary")
	})
}

// ROLE-04: the old primary's check fails, the new one is known three seconds later.
func TestMonitor_oldEvidenceLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 0))
		prober.says("b:1", secondaryIn(0, "", 0))
		monitor := open(t, prober, "a:1", "b:1")
		defer monitor.Close()
		later(time.Second)
		prober.set("a:1", hang)
		prober.says("b:1", primaryIn(0, "", 0))
		monitor.Report(topology.Observation{Address: "a:1", At: time.Now(), Err: errors.New("connection reset")})
		wantRoles(t, current(monitor), "a:1=unknown", "b:1=secondary")
		monitor.RequestCheck()
		later(3 * time.Second)
		wantRoles(t, current(monitor), "a:1=unknown", "b:1=primary")
		if got := current(monitor).Server(0).Demotions; got != 1 {
			t.Errorf("a:1 was demoted %d times", got)
		}
	})
}

func TestMonitor_report(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		monitor := open(t, prober, "a:1")
		defer monitor.Close()
		opened := time.Now()
		later(2 * time.Second)
		monitor.RequestCheck()
		later(time.Second)
		before := current(monitor)
		monitor.Report(topology.Observation{Address: "a:1", At: opened, Err: errors.New("old news")})
		if current(monitor) != before {
			t.Error("a report older than the last check changed the description")
		}
		monitor.Report(topology.Observation{Address: "a:1", At: time.Now(), Err: errors.New("reset")})
		wantRoles(t, current(monitor), "a:1=unknown")
		later(topology.MinHeartbeat)
		wantRoles(t, current(monitor), "a:1=primary")
		monitor.Report(topology.Observation{Address: "nobody:1", At: time.Now(), Err: errors.New("reset")})
	})
}

func TestMonitor_changed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		monitor := open(t, prober, "a:1")
		defer monitor.Close()
		later(time.Minute)
		var woken sync.WaitGroup
		for range 100 {
			_, changed := monitor.Current()
			woken.Go(func() { <-changed })
		}
		prober.says("a:1", primaryIn(0, "", 1))
		monitor.RequestCheck()
		woken.Wait()
		wantRoles(t, current(monitor), "a:1=primary")
		_, changed := monitor.Current()
		select {
		case <-changed:
			t.Error("the channel of the newest description is closed")
		default:
		}
	})
}

func TestMonitor_setServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		prober.says("b:1", secondaryIn(0, "", 1))
		monitor := open(t, prober, "a:1")
		synctest.Wait()
		if err := monitor.SetServers(servers("a:1", "a:1")); err == nil {
			t.Error("a server listed twice was accepted")
		}
		wantRoles(t, current(monitor), "a:1=primary")
		if err := monitor.SetServers(servers("b:1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantRoles(t, current(monitor), "b:1=secondary")
		asked := len(prober.times("a:1"))
		later(time.Minute)
		if got := len(prober.times("a:1")); got != asked {
			t.Errorf("the removed server was probed %d times more", got-asked)
		}
		monitor.Close()
		if err := monitor.SetServers(servers("a:1")); !errors.Is(err, topology.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestMonitor_close(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		prober.says("a:1", primaryIn(0, "", 1))
		prober.set("b:1", hang)
		monitor := open(t, prober, "a:1", "b:1")
		synctest.Wait()
		_, changed := monitor.Current()
		var closing sync.WaitGroup
		for range 10 {
			closing.Go(func() {
				if err := monitor.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		<-changed
		set := current(monitor)
		if !set.Closed() || !errors.Is(set.Server(0).Err, topology.ErrClosed) {
			t.Errorf("after Close: %v, error %v", set, set.Server(0).Err)
		}
		wantRoles(t, set, "a:1=unknown", "b:1=unknown")
		asked := len(prober.times("a:1"))
		monitor.RequestCheck()
		monitor.Report(topology.Observation{Address: "a:1", At: time.Now(), Role: topology.RolePrimary})
		later(time.Minute)
		if current(monitor) != set || len(prober.times("a:1")) != asked {
			t.Error("something happened after Close")
		}
	})
}

func TestOpenMonitor_refused(t *testing.T) {
	t.Parallel()
	set := newSet(t, "a:1")
	for name, config := range map[string]topology.MonitorConfig{
		"no prober":        {Set: set},
		"no servers":       {Prober: newProber()},
		"negative timeout": {Set: set, Prober: newProber(), ProbeTimeout: -1},
	} {
		if monitor, err := topology.OpenMonitor(config); err == nil {
			monitor.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}

// Many writers and readers at once; run with -race.
func TestMonitor_concurrentUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prober := newProber()
		for i := range 5 {
			prober.says(fmt.Sprintf("s%d:1", i), secondaryIn(0, "", 1))
		}
		monitor := open(t, prober, "s0:1", "s1:1", "s2:1", "s3:1", "s4:1")
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				for j := range 50 {
					address := fmt.Sprintf("s%d:1", (i+j)%5)
					monitor.Report(topology.Observation{Address: address, At: time.Now(), Err: errors.New("reset")})
					set, _ := monitor.Current()
					position := set.Position(address)
					set.Load(position).Begin()
					_ = set.String()
					set.Load(position).End()
					time.Sleep(100 * time.Millisecond) // fake time
				}
			})
		}
		work.Wait()
		later(topology.DefaultHeartbeat)
		for _, server := range current(monitor).Servers() {
			if server.Role != topology.RoleSecondary || server.InFlight() != 0 {
				t.Errorf("%s is %v with %d operations", server.Address, server.Role, server.InFlight())
			}
		}
		monitor.Close()
	})
}

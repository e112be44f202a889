package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Prober asks a server what it is, in one round trip.
type Prober interface {
	// Probe returns what it saw. The monitor fills in Address and Generation,
	// and At if it is zero. Probe must end when ctx does; one that does not is
	// abandoned and counts as an error until it ends. Probe is called
	// concurrently for different servers, never for one.
	Probe(ctx context.Context, server Server) (Observation, error)
}

// MonitorConfig says what to watch. Set and Prober are required.
type MonitorConfig struct {
	// Set is the first description; its Heartbeat is the monitor's.
	Set Set
	// Prober asks the servers.
	Prober Prober
	// ProbeTimeout bounds one probe; 0 means the heartbeat, so that a server
	// that falls silent is unknown within two heartbeats.
	ProbeTimeout time.Duration
}

func (c *MonitorConfig) validate() error {
	if c.Prober == nil {
		return errors.New("opening topology monitor: no prober")
	}
	if c.Set.Len() == 0 {
		return fmt.Errorf("opening topology monitor: %w", ErrNoServers)
	}
	if c.ProbeTimeout < 0 {
		return fmt.Errorf("opening topology monitor: probe timeout %v is negative", c.ProbeTimeout)
	}
	if c.ProbeTimeout == 0 {
		c.ProbeTimeout = c.Set.Heartbeat()
	}
	return nil
}

// Monitor keeps a Set current. Each server has one goroutine, and one more
// while it is being probed, so a silent server delays no other. All methods may
// be called concurrently. Close ends it.
type Monitor struct {
	prober  Prober
	timeout time.Duration
	state   atomic.Pointer[published]
	stats   counters

	mu      sync.Mutex // serialises changes of state and guards the fields below
	watches map[string]*watch
	closed  bool
	running sync.WaitGroup
}

type published struct {
	set     Set
	changed chan struct{}
}

// OpenMonitor starts to check every server of the set at once.
func OpenMonitor(config MonitorConfig) (*Monitor, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Monitor{prober: config.Prober, timeout: config.ProbeTimeout, watches: make(map[string]*watch)}
	m.state.Store(&published{set: config.Set, changed: make(chan struct{})})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startWatches(config.Set)
	return m, nil
}

// Current returns the newest description and a channel that is closed when a
// newer one replaces it. Any number of goroutines may wait on the channel.
func (m *Monitor) Current() (Set, <-chan struct{}) {
	p := m.state.Load()
	return p.set, p.changed
}

// RequestCheck asks for a check of every server now, or MinHeartbeat after the
// end of its last one. Requests made meanwhile are one request.
func (m *Monitor) RequestCheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.watches {
		w.request()
	}
}

// Report applies what somebody else saw of a server, such as a statement's
// error. Take Generation and At from the moment the connection was opened or
// the statement sent: an older report than the last check changes nothing. An
// error also requests a check of that server.
func (m *Monitor) Report(o Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(o)
	if w := m.watches[o.Address]; w != nil && o.Err != nil {
		w.request()
	}
}

// SetServers replaces the list of servers. Those that stay keep what is known
// of them; errors are those of NewSet and change nothing.
func (m *Monitor) SetServers(servers []Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	next, err := m.state.Load().set.Members(servers)
	if err != nil {
		return fmt.Errorf("replacing servers: %w", err)
	}
	for address, w := range m.watches {
		if _, kept := next.Find(address); !kept {
			w.stop()
			delete(m.watches, address)
		}
	}
	m.publish(next)
	m.startWatches(next)
	return nil
}

// Close ends all checks and waits for them; then every server is unknown with
// ErrClosed. A probe that ignores its context is waited for at most a second.
// Close may be called more than once, and always returns nil.
func (m *Monitor) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		for _, w := range m.watches {
			w.stop()
		}
		m.publish(m.state.Load().set.close())
	}
	m.mu.Unlock()
	m.running.Wait()
	return nil
}

// Stats counts what a Monitor has done since it was opened.
type Stats struct {
	// Probes were started; Errors of them failed, whatever the reason.
	Probes, Errors int64
	// Timeouts are errors of probes that did not answer in time, Panics those
	// of probers that panicked.
	Timeouts, Panics int64
	// Conflicts counts descriptions in which a claim to be primary was newly refused.
	Conflicts int64
}

type counters struct{ probes, errors, timeouts, panics, conflicts atomic.Int64 }

// Stats returns the counts so far.
func (m *Monitor) Stats() Stats {
	return Stats{
		Probes:    m.stats.probes.Load(),
		Errors:    m.stats.errors.Load(),
		Timeouts:  m.stats.timeouts.Load(),
		Panics:    m.stats.panics.Load(),
		Conflicts: m.stats.conflicts.Load(),
	}
}

// apply needs mu.
func (m *Monitor) apply(o Observation) {
	if m.closed {
		return
	}
	old := m.state.Load().set
	next := old.Apply(o)
	if next == old {
		return
	}
	if next.Conflict() != nil && old.Conflict() == nil {
		m.stats.conflicts.Add(1)
	}
	m.publish(next)
}

// publish needs mu.
func (m *Monitor) publish(next Set) {
	old := m.state.Swap(&published{set: next, changed: make(chan struct{})})
	close(old.changed)
}

// startWatches needs mu.
func (m *Monitor) startWatches(set Set) {
	for _, server := range set.Servers() {
		if m.watches[server.Address] != nil {
			continue
		}
		ctx, stop := context.WithCancel(context.Background())
		w := &watch{
			monitor:    m,
			address:    server.Address,
			generation: server.Generation,
			heartbeat:  set.Heartbeat(),
			requested:  make(chan struct{}, 1),
			stop:       stop,
		}
		m.watches[server.Address] = w
		m.running.Go(func() { w.run(ctx) })
	}
}

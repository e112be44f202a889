package topology

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// closeGrace is how long a probe may outlive its monitor before it is abandoned.
const closeGrace = time.Second

// jitterShare is the part of an interval that is left to chance. Intervals only
// shrink, so that the promise of two heartbeats holds.
const jitterShare = 0.1

// ErrProbeTimeout means that a server did not answer a probe in time.
var ErrProbeTimeout = errors.New("probe timed out")

// PanicError is the error of a probe that panicked.
type PanicError struct {
	// Address is the probed server's.
	Address string
	// Value is what the prober panicked with.
	Value any
}

// Error names the server and the value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("prober panicked on server %s: %v", e.Address, e.Value)
}

// watch checks one server until it is stopped.
type watch struct {
	monitor    *Monitor
	address    string
	generation uint64
	heartbeat  time.Duration
	requested  chan struct{} // holds at most one request
	stop       context.CancelFunc

	pending chan answer // of a probe that was abandoned; only run uses it
}

type answer struct {
	observation Observation
	err         error
}

func (w *watch) request() {
	select {
	case w.requested <- struct{}{}:
	default: // one is waiting already
	}
}

func (w *watch) run(ctx context.Context) {
	defer w.stop()
	defer w.leave()
	failures := 0
	for ctx.Err() == nil {
		if w.check(ctx) {
			failures = 0
		} else {
			failures++
		}
		if !pause(ctx, MinHeartbeat, nil) {
			return
		}
		if rest := w.interval(failures) - MinHeartbeat; rest > 0 && !pause(ctx, rest, w.requested) {
			return
		}
	}
}

// interval is the heartbeat while the server answers. After an error it is
// MinHeartbeat and doubles with each further one, up to the heartbeat.
func (w *watch) interval(failures int) time.Duration {
	interval := w.heartbeat
	if failures > 0 && failures < 16 {
		interval = min(interval, MinHeartbeat<<(failures-1))
	}
	return interval - time.Duration(rand.Float64()*jitterShare*float64(interval))
}

// pause waits for d or a request and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration, requested <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-requested:
		return true
	case <-ctx.Done():
		return false
	}
}

// check probes once, applies the result and reports whether the server answered.
func (w *watch) check(ctx context.Context) bool {
	m := w.monitor
	set, _ := m.Current()
	server, found := set.Find(w.address)
	if !found {
		return false
	}
	m.stats.probes.Add(1)
	began := time.Now()
	o, err := w.probe(ctx, server)
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		err = o.Err
	}
	if err != nil {
		m.count(err)
		o = Observation{At: time.Now(), Err: err}
	}
	if o.At.IsZero() {
		o.At = began
	}
	o.Address, o.Generation = w.address, w.generation
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(o)
	return err == nil
}

// probe asks the prober and waits at most the probe timeout for it.
func (w *watch) probe(ctx context.Context, server Server) (Observation, error) {
	timeout := w.monitor.timeout
	if w.pending != nil {
		select {
		case <-w.pending: // too late to be believed
			w.pending = nil
		default:
			return Observation{}, fmt.Errorf("%w: an earlier probe is still waiting for an answer", ErrProbeTimeout)
		}
	}
	probeCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answered := make(chan answer, 1)
	go func() { answered <- w.guarded(probeCtx, server) }()
	select {
	case a := <-answered:
		if a.err != nil && probeCtx.Err() != nil && ctx.Err() == nil {
			a.err = fmt.Errorf("%w after %v: %w", ErrProbeTimeout, timeout, a.err)
		}
		return a.observation, a.err
	case <-probeCtx.Done():
	}
	return w.abandon(ctx, answered)
}

// abandon leaves a probe behind that did not answer.
func (w *watch) abandon(ctx context.Context, answered chan answer) (Observation, error) {
	w.pending = answered
	if ctx.Err() != nil {
		return Observation{}, ErrClosed
	}
	return Observation{}, fmt.Errorf("%w after %v", ErrProbeTimeout, w.monitor.timeout)
}

// leave gives an abandoned probe time to end, so that Close leaves nothing behind.
func (w *watch) leave() {
	if w.pending == nil {
		return
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-w.pending:
	case <-grace.C:
	}
}

// guarded turns a panic of the prober into an error.
func (w *watch) guarded(ctx context.Context, server Server) (a answer) {
	defer func() {
		if value := recover(); value != nil {
			a = answer{err: &PanicError{Address: w.address, Value: value}}
		}
	}()
	o, err := w.monitor.prober.Probe(ctx, server)
	return answer{observation: o, err: err}
}

func (m *Monitor) count(err error) {
	m.stats.errors.Add(1)
	var panicked *PanicError
	switch {
	case errors.As(err, &panicked):
		m.stats.panics.Add(1)
	case errors.Is(err, ErrProbeTimeout):
		m.stats.timeouts.Add(1)
	}
}

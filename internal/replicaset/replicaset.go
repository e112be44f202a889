// Package replicaset watches the servers of one location of a shard map and
// chooses among them, for adapters and stores alike: the location as a
// [topology.Set], a monitor over it, and a selector over the monitor are a
// [Watch]. For adapters, [Places] keeps the pools of sessions to the locations of
// all shards, and has work done on them, on another server where one fails. What
// a pool is only they know. The package knows no keys, no sessions and no driver.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// minProbeTimeout leaves a distant server the time for the first connection,
// which takes several round trips.
const minProbeTimeout = 2 * time.Second

// Describe returns the servers of a location, of which nothing is known yet. A
// heartbeat of 0 is the default of package topology. Errors match
// [shardway.ErrInvalid].
func Describe(l shardway.Location, heartbeat time.Duration) (topology.Set, error) {
	servers := make([]topology.Server, len(l.Servers))
	for i, s := range l.Servers {
		servers[i] = topology.Server{Address: s.Address, Tags: topology.NewTags(s.Tags)}
	}
	set, err := topology.NewSet(topology.Config{Kind: topology.KindReplicaSet, Heartbeat: heartbeat}, servers)
	if err != nil {
		return set, fmt.Errorf("%w: %w", shardway.ErrInvalid, err)
	}
	return set, nil
}

// Config says what is watched and how it is chosen from. Prober is required and
// belongs to the Watch, also after an error; zero durations are the defaults of
// packages topology and selection.
type Config struct {
	Location         shardway.Location
	Prober           topology.Prober
	Heartbeat        time.Duration
	LocalThreshold   time.Duration
	SelectionTimeout time.Duration
	Logger           *slog.Logger
}

// Settle gives the durations of an adapter's configuration their presets where
// they are 0, and refuses what is below the least; the error names them as fields
// of Servers.
func Settle(localThreshold, selectionTimeout, heartbeat *time.Duration) error {
	for _, d := range []struct {
		name   string
		value  *time.Duration
		least  time.Duration
		preset time.Duration
	}{
		{"Servers.LocalThreshold", localThreshold, selection.FastestOnly, selection.DefaultLocalThreshold},
		{"Servers.SelectionTimeout", selectionTimeout, 0, selection.DefaultSelectionTimeout},
		{"Servers.Heartbeat", heartbeat, topology.MinHeartbeat, topology.DefaultHeartbeat},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < d.least {
			return &shardway.ArgumentError{Argument: d.name, Value: d.value.String(), Reason: "is below the minimum of " + d.least.String()}
		}
	}
	return nil
}

// Watch watches the servers of a location until Close. It is safe for concurrent
// use.
type Watch struct {
	Monitor  *topology.Monitor
	Selector *selection.Selector
	prober   topology.Prober
}

// Open begins to watch, at once.
func Open(cfg Config) (*Watch, error) {
	w := &Watch{prober: cfg.Prober}
	set, err := Describe(cfg.Location, cfg.Heartbeat)
	if err == nil {
		w.Monitor, err = topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: cfg.Prober, ProbeTimeout: max(minProbeTimeout, set.Heartbeat())})
	}
	if err != nil {
		w.closeProber()
		return nil, err
	}
	w.Selector, err = selection.NewSelector(selection.Config{
		Source: w.Monitor, Logger: cfg.Logger, LocalThreshold: cfg.LocalThreshold, SelectionTimeout: cfg.SelectionTimeout,
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the checks, waits for them, and closes the prober. It is called
// once.
func (w *Watch) Close() {
	_ = w.Monitor.Close() // always nil
	w.closeProber()
}

func (w *Watch) closeProber() {
	if c, ok := w.prober.(io.Closer); ok {
		_ = c.Close() // its connections only read
	}
}

// InFlight reports whether an operation is counted on any server of a set.
func InFlight(set topology.Set) bool {
	for i := range set.Len() {
		if set.Load(i).InFlight() > 0 {
			return true
		}
	}
	return false
}

// Explain checks every server once, unless ctx ends earlier, and says what a
// selection would do. Requests that are refused match [shardway.ErrInvalid].
func (w *Watch) Explain(ctx context.Context, r selection.Request) (selection.Explanation, error) {
	set := w.await(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return selection.Explanation{}, fmt.Errorf("checking servers: %w", context.Cause(ctx))
	}
	explanation, err := selection.Explain(set, r)
	if err != nil {
		return selection.Explanation{}, fmt.Errorf("%w: %w", shardway.ErrInvalid, err)
	}
	return explanation, nil
}

// await waits until every server was checked once, or ctx ends.
func (w *Watch) await(ctx context.Context) topology.Set {
	for {
		set, changed := w.Monitor.Current()
		checked := 0
		for i := range set.Len() {
			if !set.Server(i).LastUpdate.IsZero() {
				checked++
			}
		}
		if checked == set.Len() || set.Closed() {
			return set
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return set
		}
	}
}

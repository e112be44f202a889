package sqlshard

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// replicaSet watches the servers of one location, because there is a choice to
// make. It begins with the first choice and ends when nobody has made one for
// long, when its shard is elsewhere, or with the DB.
type replicaSet struct {
	places   *places
	logger   *slog.Logger
	location shardway.Location
	watch    *replicaset.Watch
	pools    []atomic.Pointer[pool] // by position of the server; nil where none was needed yet
	used     atomic.Bool            // since the last tick
	ended    atomic.Bool            // set under places.mu
	cancel   context.CancelFunc
}

// watch returns a new replica set of a shard. places.mu is held: nothing here waits.
func (pl *places) watch(shard *shardway.Shard) (*replicaSet, error) {
	l := shard.Location
	e, err := pl.engine(l.Engine)
	if err != nil {
		return nil, err
	}
	if e.replicated == nil {
		return nil, &shardway.ArgumentError{Argument: "Engines", Value: l.Engine, Reason: "has no prober, which choosing among servers needs"}
	}
	rs := &replicaSet{places: pl, location: l, pools: make([]atomic.Pointer[pool], len(l.Servers))}
	rs.logger = pl.cfg.Logger.With("shard", shard.Name)
	prober, err := e.replicated.Prober(l.Database, pl.cfg.Servers.Credentials)
	if err != nil {
		return nil, fmt.Errorf("opening a prober: %w", err)
	}
	rs.watch, err = replicaset.Open(replicaset.Config{
		Location: l, Prober: prober, Logger: rs.logger, Heartbeat: pl.cfg.Servers.Heartbeat,
		LocalThreshold: pl.cfg.Servers.LocalThreshold, SelectionTimeout: pl.cfg.Servers.SelectionTimeout,
	})
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, rs.cancel = context.WithCancel(context.Background())
	rs.used.Store(true)
	pl.watching.Go(func() { rs.run(ctx) })
	return rs, nil
}

// stop ends the set soon. places.mu is held.
func (rs *replicaSet) stop() {
	rs.ended.Store(true)
	rs.cancel()
}

// run has the sessions of demoted servers dropped, until the set ends or nobody
// uses it.
func (rs *replicaSet) run(ctx context.Context) {
	defer rs.watch.Close()
	var tick <-chan time.Time
	if life := rs.places.cfg.MaxIdleTime; life > 0 {
		ticker := time.NewTicker(life/2 + 1)
		defer ticker.Stop()
		tick = ticker.C
	}
	for idle := 0; ; {
		set, changed := rs.watch.Monitor.Current()
		rs.heed(set)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick:
			if idle++; rs.busy(set) {
				idle = 0
			}
			if idle >= 2 && rs.places.dismiss(rs) {
				return
			}
		}
	}
}

// busy reports whether the set was used since it was asked the last time, or is now.
func (rs *replicaSet) busy(set topology.Set) bool {
	return rs.used.Swap(false) || replicaset.InFlight(set)
}

// heed drops the idle sessions to servers that have stopped being primary.
func (rs *replicaSet) heed(set topology.Set) {
	for i := range set.Len() {
		p := rs.pools[i].Load()
		if p == nil {
			continue
		}
		if s := set.Server(i); p.heed(rs, s.Demotions) {
			rs.logger.Warn("dropping the sessions to a server that is no longer primary", "server", s.Address, "role", s.Role.String())
			p.host.closeIdle(p, func(s *session) bool { return !s.current() })
		}
	}
}

// pool returns the pool of the server at a position, or errRetired when the set
// has ended.
func (rs *replicaSet) pool(i int) (*pool, error) {
	if p := rs.pools[i].Load(); p != nil {
		return p, nil
	}
	pl := rs.places
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if rs.ended.Load() {
		return nil, errRetired
	}
	p, err := pl.open(keyOf(rs.location, i))
	if err == nil {
		rs.pools[i].Store(p)
	}
	return p, err
}

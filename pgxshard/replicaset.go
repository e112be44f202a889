package pgxshard

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
	rs := &replicaSet{places: pl, location: l, pools: make([]atomic.Pointer[pool], len(l.Servers))}
	rs.logger = pl.cfg.Logger.With("shard", shard.Name)
	prober, err := pl.cfg.Engine.Prober(l.Database, pl.cfg.Servers.Credentials)
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
	if life := rs.places.cfg.Servers.IdleTime; life > 0 {
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

// heed drops the sessions to servers that have stopped being primary.
func (rs *replicaSet) heed(set topology.Set) {
	for i := range set.Len() {
		p := rs.pools[i].Load()
		if p == nil {
			continue
		}
		if s := set.Server(i); p.heed(rs, s.Demotions) {
			rs.logger.Warn("dropping the sessions to a server that is no longer primary", "server", s.Address, "role", s.Role.String())
		}
	}
}

// heeded is what a pool knows of its server.
type heeded struct {
	set       *replicaSet
	demotions uint64
}

// heed has the sessions opened so far closed if their server has stopped being
// primary since it was called the last time; it reports whether that is so.
func (p *pool) heed(rs *replicaSet, demotions uint64) bool {
	for {
		known := p.heeded.Load()
		if known != nil && known.set == rs && known.demotions >= demotions {
			return false
		}
		if p.heeded.CompareAndSwap(known, &heeded{rs, demotions}) {
			if demotions > 0 {
				p.suspect()
			}
			return demotions > 0
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

// tell makes a server unknown, unless the monitor has heard of it since then,
// and has it checked at once. One that answers may speak for itself.
func (rs *replicaSet) tell(server topology.Server, began time.Time, err error) {
	if fromServer(err) != nil && !postgres.ReadOnly(err) {
		rs.watch.Monitor.RequestCheck()
		return
	}
	rs.watch.Monitor.Report(topology.Observation{Address: server.Address, Generation: server.Generation, At: began, Err: err})
}

package replicaset

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/topology"
)

// Set is the servers of one location and the pools to them, watched because
// there is a choice to make. It begins with the first choice and ends when nobody
// has made one for long, when its shard is elsewhere, or with its places.
type Set[P any] struct {
	places   *Places[P]
	logger   *slog.Logger
	location shardway.Location
	watch    *Watch
	pools    []atomic.Pointer[opened[P]] // by position of the server; nil where none was needed yet
	used     atomic.Bool                 // since the last tick
	ended    atomic.Bool                 // set under places.mu
	cancel   context.CancelFunc
}

// watch returns a new set of a shard. pl.mu is held: nothing here waits.
func (pl *Places[P]) watch(shard *shardway.Shard) (*Set[P], error) {
	l := shard.Location
	s := &Set[P]{places: pl, location: l, pools: make([]atomic.Pointer[opened[P]], len(l.Servers))}
	s.logger = pl.cfg.Logger.With("shard", shard.Name)
	prober, err := pl.cfg.Prober(l)
	if err != nil {
		return nil, err
	}
	s.watch, err = Open(Config{
		Location: l, Prober: prober, Logger: s.logger, Heartbeat: pl.cfg.Heartbeat,
		LocalThreshold: pl.cfg.LocalThreshold, SelectionTimeout: pl.cfg.SelectionTimeout,
	})
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.used.Store(true)
	pl.watching.Go(func() { s.run(ctx) })
	return s, nil
}

// stop ends the set soon. places.mu is held.
func (s *Set[P]) stop() {
	s.ended.Store(true)
	s.cancel()
}

// dismiss ends a set unless it was used again. It reports whether it has ended.
func (pl *Places[P]) dismiss(s *Set[P]) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if s.used.Load() && !s.ended.Load() {
		return false
	}
	for id, k := range *pl.placed.Load() {
		if k.set == s {
			k.set = nil
			pl.store(id, k)
		}
	}
	s.stop()
	return true
}

// run has the sessions of demoted servers dropped, until the set ends or nobody
// uses it.
func (s *Set[P]) run(ctx context.Context) {
	defer s.watch.Close()
	var tick <-chan time.Time
	if life := s.places.cfg.IdleTime; life > 0 {
		ticker := time.NewTicker(life/2 + 1)
		defer ticker.Stop()
		tick = ticker.C
	}
	for idle := 0; ; {
		now, changed := s.watch.Monitor.Current()
		s.heed(now)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick:
			if idle++; s.busy(now) {
				idle = 0
			}
			if idle >= 2 && s.places.dismiss(s) {
				return
			}
		}
	}
}

// busy reports whether the set was used since it was asked the last time, or is now.
func (s *Set[P]) busy(now topology.Set) bool { return s.used.Swap(false) || InFlight(now) }

// touch keeps the set from ending for want of use.
func (s *Set[P]) touch() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// heed drops the sessions to servers that have stopped being primary.
func (s *Set[P]) heed(now topology.Set) {
	for i := range now.Len() {
		o := s.pools[i].Load()
		if o == nil {
			continue
		}
		server := now.Server(i)
		if !s.heedOne(o, server.Demotions) {
			continue
		}
		s.logger.Warn("dropping the sessions to a server that is no longer primary", "server", server.Address, "role", server.Role.String())
		if s.places.cfg.Demoted != nil {
			s.places.cfg.Demoted(o.pool)
		}
	}
}

// heeded is how often the server of a pool was seen to stop being primary, by
// the set that has told it last.
type heeded[P any] struct {
	set       *Set[P]
	demotions uint64
}

// heedOne makes the sessions of a pool suspect if their server has stopped being
// primary since it was called the last time; it reports whether that is so.
func (s *Set[P]) heedOne(o *opened[P], demotions uint64) bool {
	for {
		known := o.heeded.Load()
		if known != nil && known.set == s && known.demotions >= demotions {
			return false
		}
		if o.heeded.CompareAndSwap(known, &heeded[P]{s, demotions}) {
			if demotions > 0 {
				s.places.cfg.Suspect(o.pool)
			}
			return demotions > 0
		}
	}
}

// Pool returns the pool of the server at a position, without sessions from
// before the last demotion in the description that it was chosen from. The error
// is [ErrRetired] when the set has ended.
func (s *Set[P]) Pool(position int, demotions uint64) (*P, error) {
	o := s.pools[position].Load()
	if o == nil {
		var err error
		if o, err = s.open(position); err != nil {
			return nil, err
		}
	}
	s.heedOne(o, demotions)
	return o.pool, nil
}

func (s *Set[P]) open(position int) (*opened[P], error) {
	pl := s.places
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if s.ended.Load() {
		return nil, ErrRetired
	}
	o, err := pl.open(placeOf(s.location, position))
	if err == nil {
		s.pools[position].Store(o)
	}
	return o, err
}

// Now describes the servers as they are known now.
func (s *Set[P]) Now() topology.Set {
	now, _ := s.watch.Monitor.Current()
	return now
}

package pgxshard

import (
	"cmp"
	"slices"
	"time"
)

// Stats are the pools of a [DB] at one moment.
type Stats struct {
	Pools []PoolStats // ordered by shard, server, database
}

// PoolStats are the state and the counters, since the pool was opened, of the
// sessions to one database on one server.
type PoolStats struct {
	Shard    string // name of the shard
	Server   string // address
	Database string

	Open  int // sessions, being opened, in use or idle
	InUse int // sessions given out, or about to be
	Idle  int

	WaitCount          uint64        // callers who have had to wait
	WaitTime           time.Duration // that they have waited, together
	Opened             uint64        // sessions
	Closed             uint64        // sessions
	ValidationFailures uint64        // uses refused because the shard did not have the mapping online
}

func (pl *places) stats() Stats {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	var all Stats
	named := map[poolKey]string{}
	for _, k := range *pl.placed.Load() {
		for i := range k.shard.Location.Servers {
			named[keyOf(k.shard.Location, i)] = k.shard.Name
		}
	}
	for key, p := range pl.pools {
		s := p.stats()
		s.Shard = named[key]
		all.Pools = append(all.Pools, s)
	}
	slices.SortFunc(all.Pools, func(a, b PoolStats) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Database, b.Database))
	})
	return all
}

func (p *pool) stats() PoolStats {
	px := p.px.Stat()
	return PoolStats{
		Server: p.address, Database: p.database,
		Open: int(px.TotalConns()), InUse: int(p.inUse.Load()), Idle: int(px.IdleConns()),
		WaitCount: uint64(p.waits.Load()), WaitTime: time.Duration(p.waited.Load()),
		Opened: p.opened.Load(), Closed: p.closed.Load(), ValidationFailures: uint64(p.failedChecks.Load()),
	}
}

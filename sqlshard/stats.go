package sqlshard

import (
	"cmp"
	"slices"
	"time"

	"github.com/shardway/shardway/internal/replicaset"
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

	Open    int // sessions, being opened, in use or idle
	InUse   int // sessions given out, or about to be
	Idle    int
	Waiting int // callers who wait for a session now

	WaitCount          uint64        // callers who have had to wait
	WaitTime           time.Duration // that they have waited, together
	Opened             uint64        // sessions
	Closed             uint64        // sessions
	ValidationFailures uint64        // checkouts refused because the shard did not have the mapping online
}

func statsOf(pl *replicaset.Places[pool]) Stats {
	var all Stats
	pl.Each(func(shard string, p *pool) {
		s := p.stats()
		s.Shard = shard
		all.Pools = append(all.Pools, s)
	})
	slices.SortFunc(all.Pools, func(a, b PoolStats) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Database, b.Database))
	})
	return all
}

func (p *pool) stats() PoolStats {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	return PoolStats{
		Server: p.address, Database: p.database,
		Open: p.books.permits + len(p.books.idle) + p.books.closing, InUse: p.books.permits,
		Idle: len(p.books.idle), Waiting: p.books.waiting,
		WaitCount: p.waits.Load(), WaitTime: time.Duration(p.waited.Load()),
		Opened: p.opened.Load(), Closed: p.closed.Load(), ValidationFailures: p.failedChecks.Load(),
	}
}

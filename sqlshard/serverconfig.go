package sqlshard

import (
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// ServerConfig says how the servers of shards with several servers are watched
// and chosen. The zero value of every field is a safe choice.
type ServerConfig struct {
	// LocalThreshold is the width of the latency window: servers whose average
	// round trip is at most that of the fastest suitable one plus this. 0 is
	// 15 ms; [selection.FastestOnly] is no width.
	LocalThreshold time.Duration
	// SelectionTimeout bounds the wait for a suitable server, such as for a new
	// primary after a failover, and then that for its answer. 0 is 30 s.
	SelectionTimeout time.Duration
	// Heartbeat is the time between two checks of a server; after an error or
	// while a server is waited for it is 500 ms, which is also the least. The
	// answer may take as long, and at least 2 s. 0 is 10 s.
	Heartbeat time.Duration
	// TokenWait bounds the wait for a secondary to reach a [Token] before the
	// primary is used. 0 is 500 ms; negative does not wait.
	TokenWait time.Duration
	// Credentials of the checks, whose login may see more of a server than the
	// application's. The zero value is those of the application.
	Credentials shardway.Credentials
}

// ReplicatedEngine is what an engine is besides whose shards may have several
// servers. Those of packages postgres, mysql, sqlserver and sqlite are.
type ReplicatedEngine interface {
	shardway.Engine
	// Prober returns a prober of the servers of one database. It is closed when
	// it has a method Close() error.
	Prober(database string, c shardway.Credentials) (topology.Prober, error)
}

// validate checks c and fills in defaults. The application's credentials are
// the preset of the checks'.
func (c *ServerConfig) validate(application shardway.Credentials) error {
	if err := replicaset.Settle(&c.LocalThreshold, &c.SelectionTimeout, &c.Heartbeat); err != nil {
		return err
	}
	setDuration(&c.TokenWait, 500*time.Millisecond)
	if c.Credentials.User == "" && c.Credentials.Password == "" && c.Credentials.PasswordFunc == nil {
		c.Credentials = application
	}
	return nil
}

package pgxshard

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// Validation says what is checked before the shard of a key is used.
type Validation uint8

// The levels of validation.
const (
	// Validate asks the shard, on the very session and in the same round trip as
	// the work, whether the mapping that led there still stands and is online.
	// Writes and transactions hold the mapping where it is until they are
	// committed.
	Validate Validation = 0
	// None trusts the cache. Work may then be done on a shard that has given the
	// key away, or whose mapping is offline.
	None Validation = 1
)

// String returns "validate" or "none".
func (v Validation) String() string {
	switch v {
	case Validate:
		return "validate"
	case None:
		return "none"
	}
	return "invalid"
}

// Engine configures the pools of PostgreSQL databases. postgres.Engine is one.
type Engine interface {
	// Name returns "postgres".
	Name() string
	// PoolConfig returns the configuration of a pool to one database on one
	// server, and what gives errors of connecting a text without secrets.
	PoolConfig(address, database string, c shardway.Credentials) (*pgxpool.Config, func(error) error, error)
	// Prober returns a prober of the servers of one database. It is closed when
	// it has a method Close() error.
	Prober(database string, c shardway.Credentials) (topology.Prober, error)
}

// Config says how a [DB] connects. Only Engine must be set; the zero value of
// every other field is a safe choice.
type Config struct {
	// Engine of the shards: a postgres.Engine.
	Engine Engine
	// Credentials of the application on the shards: a user and a secret. Where
	// to connect to comes from the shard map alone.
	Credentials shardway.Credentials
	// Validation of the route to a shard.
	Validation Validation
	// MaxOpenPerShard bounds the sessions in use on one shard, on each of its
	// servers. 0 is 16, or MaxOpenPerServer if that is less; negative is no bound.
	MaxOpenPerShard int
	// MaxOpenPerServer bounds the sessions, in use and idle, on one server
	// address over all shards it serves. Idle sessions of one shard make room
	// for another. 0 is 64; negative is no bound.
	MaxOpenPerServer int
	// MaxWait bounds the wait for a free session, besides the caller's context.
	// 0 is 30 s; negative is no bound.
	MaxWait time.Duration
	// Criteria of work that is not asked for with others, see [DB.With]. The zero
	// value is the primary, for reads and writes.
	Criteria selection.Criteria
	// Servers says how a server is chosen where a shard has several.
	Servers ServerConfig
	// Retry says when [DB.InTx] repeats a transaction. The zero value is that of
	// [retry.Policy].
	Retry retry.Policy
	// Pooler says that servers stand behind a pooler that gives a client another
	// session for each transaction, such as PgBouncer in transaction mode. Then
	// [DB.Hold] is refused, sessions are not tagged, and unless Configure says
	// otherwise statements are not prepared under a name
	// ([pgx.QueryExecModeCacheDescribe]).
	Pooler bool
	// Configure, when set, changes the configuration of each pool before it
	// opens: tracer, type map by AfterConnect, exec mode, lifetimes. MaxConns is
	// set by the fields above, and no session is opened in advance.
	Configure func(*pgxpool.Config) error
	// Logger gets what no caller is told: pools closed because their shard has
	// moved, sessions found broken, primaries that are no more; at debug level
	// each choice of a server. Nil is no logging.
	Logger *slog.Logger
}

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
	// while a server is waited for it is 500 ms, which is also the least. 0 is
	// 10 s.
	Heartbeat time.Duration
	// IdleTime is how long the servers of a shard that nobody uses are watched.
	// 0 is 5 min; negative is for ever.
	IdleTime time.Duration
	// Credentials of the checks, whose login may see more of a server than the
	// application's. The zero value is those of the application.
	Credentials shardway.Credentials
}

// validate checks c and fills in defaults.
func (c *Config) validate() error {
	if c.Engine == nil {
		return &shardway.ArgumentError{Argument: "Engine", Reason: "is missing"}
	}
	if name := c.Engine.Name(); name != engineName {
		return &shardway.ArgumentError{Argument: "Engine", Value: name, Reason: "is not " + engineName}
	}
	if err := c.Criteria.Err(); err != nil {
		return fmt.Errorf("%w: %w", shardway.ErrInvalid, err)
	}
	if err := c.Servers.validate(c.Credentials); err != nil {
		return err
	}
	if c.Validation > None {
		return &shardway.ArgumentError{Argument: "Validation", Value: fmt.Sprint(uint8(c.Validation)), Reason: "is neither Validate nor None"}
	}
	setInt(&c.MaxOpenPerServer, 64)
	perShard := 16
	if c.MaxOpenPerServer > 0 {
		perShard = min(perShard, c.MaxOpenPerServer)
	}
	setInt(&c.MaxOpenPerShard, perShard)
	setDuration(&c.MaxWait, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// engineName is that of the shards' locations.
const engineName = "postgres"

// validate checks c and fills in defaults. The application's credentials are
// the preset of the checks'.
func (c *ServerConfig) validate(application shardway.Credentials) error {
	if err := replicaset.Settle(&c.LocalThreshold, &c.SelectionTimeout, &c.Heartbeat); err != nil {
		return err
	}
	setDuration(&c.IdleTime, 5*time.Minute)
	if c.Credentials.User == "" && c.Credentials.Password == "" && c.Credentials.PasswordFunc == nil {
		c.Credentials = application
	}
	return nil
}

// setInt gives a limit its preset when it is 0, and makes 0 of "no limit".
func setInt(v *int, preset int) {
	if *v == 0 {
		*v = preset
	}
	*v = max(*v, 0)
}

// setDuration is setInt for times.
func setDuration(v *time.Duration, preset time.Duration) {
	if *v == 0 {
		*v = preset
	}
	*v = max(*v, 0)
}

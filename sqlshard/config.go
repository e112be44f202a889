package sqlshard

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/selection"
)

// Validation says what is checked before a connection is handed out.
type Validation uint8

// The levels of validation.
const (
	// Validate asks the shard, on the very session that is handed out, whether
	// the mapping that led there still stands and is online: one round trip at
	// every checkout.
	Validate Validation = 0
	// None trusts the cache. A connection may then lead to a shard that has
	// given the key away, or to one whose mapping is offline.
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

// Config says how a [DB] connects. Only Engines must be set; the zero value of
// every other field is a safe choice.
type Config struct {
	// Engines that shards may be of, at most one for each name. Packages
	// postgres, mysql, sqlserver and sqlite have them.
	Engines []shardway.Engine
	// Credentials of the application on the shards: a user and a secret. Where
	// to connect to comes from the shard map alone.
	Credentials shardway.Credentials
	// Validation of connections at checkout.
	Validation Validation
	// MaxOpenPerShard bounds the sessions in use on one shard, on each of its
	// servers. 0 is 16, or MaxOpenPerServer if that is less; negative is no bound.
	MaxOpenPerShard int
	// MaxOpenPerServer bounds the sessions, in use and idle, on one server
	// address over all shards it serves. Idle sessions of one shard make room
	// for another. 0 is 64; negative is no bound.
	MaxOpenPerServer int
	// MaxIdlePerShard bounds the idle sessions kept for one shard, on each of its
	// servers. 0 is 4; negative keeps none.
	MaxIdlePerShard int
	// MaxIdleTime is how long an idle session is kept, and how long the servers
	// of a shard that nobody uses are watched. 0 is 5 min; negative is for ever.
	MaxIdleTime time.Duration
	// MaxLifetime bounds the age of a session at checkout. Each session draws
	// its own bound when it is opened, between 80 and 100 % of MaxLifetime, so
	// that sessions opened together do not end together. 0 is 30 min; negative
	// is for ever.
	MaxLifetime time.Duration
	// MaxWait bounds the wait for a free session, besides the caller's context.
	// 0 is 30 s; negative is no bound.
	MaxWait time.Duration
	// Criteria of connections that are not asked for with others, see [DB.With].
	// The zero value is the primary, for reads and writes.
	Criteria selection.Criteria
	// Servers says how a server is chosen where a shard has several.
	Servers ServerConfig
	// Logger gets what no caller is told: pools closed because their shard has
	// moved, sessions found broken, primaries that are no more; at debug level
	// each choice of a server. Nil is no logging.
	Logger *slog.Logger
}

// engine is an engine and what its SQL says.
type engine struct {
	shardway.Engine
	dialect    *dialect.Dialect
	replicated ReplicatedEngine // nil when the engine has no prober
}

// validate checks c, fills in defaults and returns the engines by name.
func (c *Config) validate() (map[string]engine, error) {
	if len(c.Engines) == 0 {
		return nil, &shardway.ArgumentError{Argument: "Engines", Reason: "is empty"}
	}
	engines := map[string]engine{}
	for _, e := range c.Engines {
		if e == nil {
			return nil, &shardway.ArgumentError{Argument: "Engines", Reason: "holds a nil engine"}
		}
		name := e.Name()
		d, err := dialect.For(name)
		if err != nil {
			return nil, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is none of postgres, mysql, sqlserver, sqlite"}
		}
		if _, twice := engines[name]; twice {
			return nil, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is given twice"}
		}
		replicated, _ := e.(ReplicatedEngine)
		engines[name] = engine{e, d, replicated}
	}
	if err := c.Criteria.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", shardway.ErrInvalid, err)
	}
	if err := c.Servers.validate(c.Credentials); err != nil {
		return nil, err
	}
	if c.Validation > None {
		return nil, &shardway.ArgumentError{Argument: "Validation", Value: fmt.Sprint(uint8(c.Validation)), Reason: "is neither Validate nor None"}
	}
	setInt(&c.MaxOpenPerServer, 64)
	perShard := 16
	if c.MaxOpenPerServer > 0 {
		perShard = min(perShard, c.MaxOpenPerServer)
	}
	setInt(&c.MaxOpenPerShard, perShard)
	setInt(&c.MaxIdlePerShard, 4)
	setDuration(&c.MaxIdleTime, 5*time.Minute)
	setDuration(&c.MaxLifetime, 30*time.Minute)
	setDuration(&c.MaxWait, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return engines, nil
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

package mongoshard

import (
	"context"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
)

// KeyMap is a typed handle of a shard map: [shardway.ListShardMap] and
// [shardway.RangeShardMap] are ones.
type KeyMap[K shardway.KeyType] interface {
	// Map returns the untyped handle.
	Map() *shardway.Map
	// Key returns the key for a value.
	Key(k K) (shardway.Key, error)
}

// Deployments are what shards on MongoDB are; package mongodb's Engine is one.
type Deployments interface {
	// Name is the engine's name in locations.
	Name() string
	// ClientOptions returns the driver's options for a location.
	ClientOptions(ctx context.Context, l shardway.Location, c shardway.Credentials) (*options.ClientOptions, error)
}

// ShardConfig says how [Shards] connect. Only Engine must be set; the zero value
// of every other field is a safe choice.
type ShardConfig struct {
	// Engine makes clients for the locations of shards.
	Engine Deployments
	// Credentials of the application on the shards.
	Credentials shardway.Credentials
	// Criteria of reads through handles that were not asked for with others, see
	// [Shards.With]. The zero value is the primary.
	Criteria selection.Criteria
	// MongosForWrites is that of [Config].
	MongosForWrites bool
	// Unchecked trusts the cache: a database may then be that of a shard that has
	// given the key away, or whose mapping is offline. Transactions are checked
	// all the same.
	Unchecked bool
	// Mixed says that the map has shards on other engines too, and that the
	// program connects to those by another adapter: a key of such a shard is
	// then a plain [*EngineError], without advice for who did not know.
	Mixed bool
	// Retry is how [Shards.InTx] repeats transactions after transient faults.
	Retry retry.Policy
	// Logger is that of [Config].
	Logger *slog.Logger
}

// Shards leads to the MongoDB databases behind one shard map. It is safe for
// concurrent use; a program has one for each shard map and login.
type Shards[K shardway.KeyType] struct {
	keys     KeyMap[K]
	opener   *shardOpener
	criteria selection.Criteria
}

// For returns the shards of a map. It connects to nothing: clients are made when
// a shard is first needed, one for each deployment, so one dead shard keeps
// nobody from the others.
func For[K shardway.KeyType](m KeyMap[K], cfg ShardConfig) (*Shards[K], error) {
	switch {
	case m == nil:
		return nil, &shardway.ArgumentError{Argument: "m", Reason: "is missing"}
	case cfg.Engine == nil:
		return nil, &shardway.ArgumentError{Argument: "Engine", Reason: "is missing: package mongodb has one"}
	}
	if err := cfg.Criteria.Err(); err != nil {
		return nil, err
	}
	if cfg.Retry.Budget == nil {
		cfg.Retry.Budget = new(retry.Budget)
	}
	o := &shardOpener{m: m.Map(), cfg: cfg, clients: map[clientKey]*mongo.Client{}}
	return &Shards[K]{keys: m, opener: o, criteria: cfg.Criteria}, nil
}

// With returns a handle whose reads use the servers that suit the criteria. All
// else is shared, so closing one closes both. The first use of criteria on a
// deployment makes a client that lasts until Close, so make a handle once, not
// for each request; for one operation there is [WithCriteria].
func (s *Shards[K]) With(criteria selection.Criteria) *Shards[K] {
	return &Shards[K]{keys: s.keys, opener: s.opener, criteria: criteria}
}

// Database returns the database of the shard that has a key, on a client that
// belongs to the shards: do not disconnect it. The shard's primary was asked
// whether the mapping that led there stands and is online. That holds for the
// moment of the question: ask again for each request, and write in [Shards.InTx]
// where a key may move. Collections of the database read by the handle's
// criteria and write as [Connect] says.
//
// When the shard says that it does not have the key's mapping, the store is
// asked once and the shard once more; when the shard cannot be reached, the
// same happens unless it happened a moment ago. Errors are a
// [*shardway.LookupError] around
//
//   - ErrKeyNotMapped, ErrKeyRequired, ErrWrongType, ErrMapNotFound: of the lookup
//   - ErrMappingOffline: the mapping is there and offline
//   - ErrStale: the map says the shard has the mapping, the shard says it has
//     not: a change is under way, or was left unfinished
//   - ErrNoStore: the shard's database has no local map
//   - ErrUnavailable: the deployment cannot be reached, has no primary, or does
//     not let us in; the [*Error] below it says it server by server
//   - an [*EngineError]: the shard is on another engine
//   - an [*OptionError] or ErrInvalid: options or criteria that are refused
//   - the end of ctx
func (s *Shards[K]) Database(ctx context.Context, k K) (*mongo.Database, error) {
	key, err := s.keys.Key(k)
	if err != nil {
		return nil, &shardway.LookupError{Map: s.opener.m.ShardMap().Name, Err: err}
	}
	return s.opener.database(ctx, key, s.criteria)
}

// DatabaseByContext is [Shards.Database] for the key that ctx carries, see
// [shardway.WithKey].
func (s *Shards[K]) DatabaseByContext(ctx context.Context) (*mongo.Database, error) {
	key, ok := shardway.KeyFromContext(ctx)
	if !ok {
		return nil, &shardway.LookupError{Map: s.opener.m.ShardMap().Name, Err: shardway.ErrKeyRequired}
	}
	return s.opener.database(ctx, key, s.criteria)
}

// InTx runs fn in a transaction on the shard that has the key, with a session in
// fn's context, and commits if fn returns nil. If it commits, the shard owned
// the key at that moment: the transaction writes a document that each change of
// the mapping writes too. Options may be nil. Every operation of fn takes the
// context that fn is given, and the database or another one of its client.
//
// After a transient fault (TransientTransactionError, a mapping that is just
// being changed) the whole unit is run again, as ShardConfig.Retry says: routed,
// begun, fn called anew. A commit whose outcome is unknown is repeated, which
// MongoDB allows, and if the outcome stays unknown the error matches
// [retry.ErrCommitUnknown], unless options.Applied finds out.
//
// A deployment without transactions, a standalone server, is a
// [*TransactionError]. Other errors are those of [Shards.Database], and fn's,
// wrapped. A transaction that fn ends by itself is a [*shardway.ArgumentError].
func (s *Shards[K]) InTx(ctx context.Context, k K, options *TxOptions, fn func(ctx context.Context, db *mongo.Database) error) error {
	key, err := s.keys.Key(k)
	if err != nil {
		return &shardway.LookupError{Map: s.opener.m.ShardMap().Name, Err: err}
	}
	return s.opener.inTx(ctx, key, options, fn)
}

// Servers returns every server of a shard's deployment: its role, tags, round
// trip and staleness, the operations on it now, and which step keeps it from
// reads by the handle's criteria. The shard is read from the store; servers are
// waited for until ctx ends.
func (s *Shards[K]) Servers(ctx context.Context, shard string) (selection.Explanation, error) {
	return s.opener.servers(ctx, shard, s.criteria)
}

// Close disconnects all clients: operations under way fail. It is idempotent.
func (s *Shards[K]) Close() error { return s.opener.close() }

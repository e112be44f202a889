package sqlshard

import (
	"context"

	"github.com/shardway/shardway"
)

// KeyMap is a typed handle of a shard map: [shardway.ListShardMap] and
// [shardway.RangeShardMap] are ones.
type KeyMap[K shardway.KeyType] interface {
	// Map returns the untyped handle.
	Map() *shardway.Map
	// Key returns the key for a value.
	Key(k K) (shardway.Key, error)
}

// DB opens connections to the databases behind one shard map. It is safe for
// concurrent use; a program has one for each shard map and login.
type DB[K shardway.KeyType] struct {
	keys   KeyMap[K]
	opener *opener
}

// New returns a DB for a shard map. It connects to nothing: pools open when
// they are first needed, so one dead shard keeps nobody from the others.
func New[K shardway.KeyType](m KeyMap[K], cfg Config) (*DB[K], error) {
	if m == nil {
		return nil, &shardway.ArgumentError{Argument: "m", Reason: "is missing"}
	}
	engines, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	o := &opener{m: m.Map(), cfg: cfg}
	o.places = newPlaces(&o.cfg, engines)
	return &DB[K]{keys: m, opener: o}, nil
}

// OpenConnectionForKey returns a connection to the database that holds a key:
// one session, open, and validated on that session unless the configuration
// says otherwise. Close it when the work for the key is done.
//
// When the shard says that it does not have the key's mapping, the store is
// asked once and the connection tried once more; when the shard cannot be
// reached, the same happens unless it happened a moment ago. Errors are a
// [*shardway.LookupError] around
//
//   - ErrKeyNotMapped, ErrKeyRequired, ErrWrongType, ErrMapNotFound: of the lookup
//   - ErrMappingOffline: the mapping is there and offline
//   - ErrStale: the map says the shard has the mapping, the shard says it has
//     not: a change is under way, or was left unfinished
//   - ErrNoStore: the shard's database has no local store
//   - ErrUnavailable: the server cannot be reached or does not let us in
//   - ErrPoolExhausted: no session came free in time
//   - the end of ctx
func (d *DB[K]) OpenConnectionForKey(ctx context.Context, k K) (*Conn, error) {
	key, err := d.keys.Key(k)
	if err != nil {
		return nil, &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	return d.opener.forKey(ctx, key)
}

// OpenConnectionForShard returns a connection to the database of the shard
// with the given name, for work on a shard as a whole. Validation checks that
// the database still is this shard in the state that was read; when it is not,
// the shard is read once more. Errors are those of OpenConnectionForKey,
// ErrShardNotFound, and ErrStale for a database that is another shard.
func (d *DB[K]) OpenConnectionForShard(ctx context.Context, name string) (*Conn, error) {
	return d.opener.forShard(ctx, name)
}

// ByContext returns a view for code that cannot pass a key; see [ContextDB].
func (d *DB[K]) ByContext() *ContextDB { return &ContextDB{d.opener} }

// Stats returns the state of all pools.
func (d *DB[K]) Stats() Stats { return d.opener.places.stats() }

// Close closes idle sessions, and those in use when they are given back. It
// waits for nobody, is idempotent and returns nil. Opening fails from then on
// with [shardway.ErrUnavailable].
func (d *DB[K]) Close() error {
	d.opener.places.close()
	return nil
}

package sqlshard

import (
	"context"

	"github.com/shardway/shardway"
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

// DB opens connections to the databases behind one shard map. It is safe for
// concurrent use; a program has one for each shard map and login.
type DB[K shardway.KeyType] struct {
	keys   KeyMap[K]
	opener *opener
	want   want
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
	return &DB[K]{keys: m, opener: o, want: wantOf(cfg.Criteria)}, nil
}

// With returns a DB whose connections are for reads, on servers that suit the
// criteria; [selection.Primary] gives back the one for writes. It is cheap
// enough to be called for each connection. All else is shared, so closing one
// closes both.
//
//	reports := db.With(selection.Nearest(selection.MaxStaleness(30*time.Second), selection.Tags{"zone": "eu-1a"}))
//
// Nothing keeps statements that write from a connection for reads: a secondary
// refuses them, a primary does not, and after a failover they may get lost.
// Criteria that were refused when they were built fail each opening.
func (d *DB[K]) With(criteria selection.Criteria) *DB[K] {
	want := wantOf(criteria)
	want.retry = d.want.retry
	return &DB[K]{keys: d.keys, opener: d.opener, want: want}
}

// OpenConnectionForKey returns a connection to the database that holds a key:
// one session, open, and validated on that session unless the configuration
// says otherwise. Close it when the work for the key is done.
//
// It is a session of the primary, unless [DB.With] or Config.Criteria say
// otherwise. A shard with one server and nothing to choose is not watched: that
// server is used. A server that fails is replaced by another one that suits, as
// long as there is time; without a primary, it is waited for.
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
//   - a [*selection.Error]: no server suited in time; it says for each one why.
//     It matches ErrUnavailable if a server that does not answer is the reason
//   - ErrInvalid: the criteria were refused, or a [*TokenError]
//   - ErrPoolExhausted: no session came free in time
//   - the end of ctx
func (d *DB[K]) OpenConnectionForKey(ctx context.Context, k K) (*Conn, error) {
	key, err := d.keys.Key(k)
	if err != nil {
		return nil, &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	return d.opener.forKey(ctx, key, d.want)
}

// OpenConnectionForShard returns a connection to the database of the shard
// with the given name, for work on a shard as a whole. Validation checks that
// the database still is this shard in the state that was read; when it is not,
// the shard is read once more. Errors are those of OpenConnectionForKey,
// ErrShardNotFound, and ErrStale for a database that is another shard.
func (d *DB[K]) OpenConnectionForShard(ctx context.Context, name string) (*Conn, error) {
	return d.opener.forShard(ctx, name, d.want)
}

// ByContext returns a view for code that cannot pass a key; see [ContextDB].
func (d *DB[K]) ByContext() *ContextDB { return &ContextDB{d.opener, d.want} }

// Stats returns the state of all pools.
func (d *DB[K]) Stats() Stats { return statsOf(d.opener.places) }

// Servers returns every server of a shard: its role, tags, round trip and
// staleness, the operations on it now, and whether a connection with the
// criteria of d could be given to it or which step keeps it out. The shard is
// read from the store; each server is checked before, unless ctx ends earlier.
func (d *DB[K]) Servers(ctx context.Context, shard string) (selection.Explanation, error) {
	return d.opener.explain(ctx, shard, d.want)
}

// Close closes idle sessions, and those in use when they are given back. It
// waits for the checks of servers to end and for nobody else, is idempotent and
// returns nil. Opening fails from then on with [shardway.ErrUnavailable].
func (d *DB[K]) Close() error {
	d.opener.places.Close()
	return nil
}

package pgxshard

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// DB works on the PostgreSQL databases behind one shard map. It is safe for
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
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := &opener{m: m.Map(), cfg: cfg}
	o.places = newPlaces(&o.cfg)
	return &DB[K]{keys: m, opener: o, want: wantOf(cfg.Criteria)}, nil
}

// With returns a DB for reads, on servers that suit the criteria;
// [selection.Primary] gives back the one for writes. It is cheap enough to be
// called for each read. All else is shared, so closing one closes both.
//
// On a DB for reads nothing holds the mapping, for secondaries take no locks.
// Nothing keeps statements that write from it: a secondary refuses them, a
// primary does not. Transactions are read-only. Criteria that were refused when
// they were built fail each use.
func (d *DB[K]) With(criteria selection.Criteria) *DB[K] {
	return &DB[K]{keys: d.keys, opener: d.opener, want: wantOf(criteria)}
}

// Exec runs a statement for a key and returns what it did. The statement and its
// validation travel together: if the shard does not have the key's mapping
// online, the statement does not run. Then the store is asked once where the key
// is and everything is done once more.
//
// A statement that may write holds the mapping where it is until it is
// committed. Several statements in one text, without arguments, are one
// transaction. What PostgreSQL refuses behind another statement (VACUUM, CREATE
// INDEX CONCURRENTLY, COPY and the like) is validated by a round trip before it;
// see the package documentation. Statements that begin or end a transaction are
// refused.
//
// Errors of the way to the shard are a [*shardway.LookupError] around
//
//   - ErrKeyNotMapped, ErrKeyRequired, ErrWrongType, ErrMapNotFound: of the lookup
//   - ErrMappingOffline: the mapping is there and offline
//   - ErrStale: the map says the shard has the mapping, the shard says it has
//     not: a change is under way, or was left unfinished
//   - ErrNoStore: the shard's database has no local store
//   - ErrUnavailable: the server cannot be reached or does not let us in
//   - a [*selection.Error]: no server suited in time; it says for each one why.
//     It matches ErrUnavailable if a server that does not answer is the reason
//   - ErrInvalid: the criteria, or the statement, were refused
//   - ErrPoolExhausted: no session came free in time
//   - the end of ctx
//
// Errors of the statement are the driver's own. When the connection breaks while
// the statement is on its way, nobody knows whether it ran: that is the driver's
// error too, and nothing is repeated.
func (d *DB[K]) Exec(ctx context.Context, k K, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	c := newCall(sql, args)
	err = d.at(ctx, k, c.check(), func(ctx, _ context.Context, v *visit) error {
		t, err := v.exec(ctx, c)
		if err == nil {
			tag = t
			v.release()
		}
		return err
	})
	return tag, err
}

// Query runs a query for a key. It does what Exec does; the rows keep their
// session until they are closed, and a query with RETURNING is committed when
// they are.
func (d *DB[K]) Query(ctx context.Context, k K, sql string, args ...any) (pgx.Rows, error) {
	c := newCall(sql, args)
	var got *rows
	err := d.at(ctx, k, c.check(), func(ctx, _ context.Context, v *visit) (err error) {
		got, err = v.query(ctx, c)
		return err
	})
	if err != nil {
		return failedRows{err}, err
	}
	return got, nil
}

// QueryRow runs a query for at most one row. Errors come with Scan, which must
// be called.
func (d *DB[K]) QueryRow(ctx context.Context, k K, sql string, args ...any) pgx.Row {
	got, _ := d.Query(ctx, k, sql, args...) // its error is that of the rows too
	return row{got}
}

// at does work where a key is. refused is an error of the arguments, or nil.
func (d *DB[K]) at(ctx context.Context, k K, refused error, work work) error {
	key, err := d.keys.Key(k)
	if err == nil {
		err = refused
	}
	if err != nil {
		return &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	w := opening{want: d.want}
	return d.opener.forKey(ctx, key, &w, work)
}

// Servers returns every server of a shard: its role, tags, round trip and
// staleness, the operations on it now, and whether work with the criteria of d
// could be given to it or which step keeps it out. The shard is read from the
// store; each server is checked before, unless ctx ends earlier.
func (d *DB[K]) Servers(ctx context.Context, shard string) (selection.Explanation, error) {
	return d.opener.explain(ctx, shard, d.want)
}

// Stats returns the state of all pools.
func (d *DB[K]) Stats() Stats { return statsOf(d.opener.places) }

// Close closes idle sessions, and those in use when they are given back. It
// waits for the checks of servers to end and for nobody else, is idempotent and
// returns nil. All use fails from then on with [shardway.ErrUnavailable].
func (d *DB[K]) Close() error {
	d.opener.places.Close()
	return nil
}

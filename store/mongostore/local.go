// Package mongostore keeps the local store of a shard in a MongoDB database. It
// implements [store.Local] with nothing but changes of single documents, so it
// works on a standalone server, a replica set and a sharded cluster alike, and
// leaves transactions to the application. It never keeps a global store.
//
//	local := mongostore.NewLocal(client.Database("tenants"), nil)
//
// A step changes many documents and takes effect with one: rows to add and rows
// to remove are marked with the attempt of the executor first, then the store's
// document, compared and set, names the attempt as the last commit. Marks of
// other attempts count for nothing, whenever they are written. Documents are
// tidied after the commit, by whoever comes first, before the next one.
//
// Writes wait for the majority of a replica set and reads ask its primary for
// what the majority has, whatever the client's defaults: a commit that was
// acknowledged survives a failover, and a primary of the past cannot commit.
package mongostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// Local is the local store in a MongoDB database. It implements [store.Local]
// and is safe for concurrent use.
type Local struct {
	db      *mongo.Database
	release func() error
	turn    chan struct{} // held by the one step that runs here: others could only get in its way
}

var _ store.Local = (*Local)(nil)

// NewLocal returns the local store in a database. It does no I/O. Close calls
// release, once, which may be nil: then the client stays connected.
func NewLocal(db *mongo.Database, release func() error) *Local {
	strict := options.Database().SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
	if release == nil {
		release = func() error { return nil }
	}
	return &Local{db: db.Client().Database(db.Name(), strict), release: sync.OnceValue(release), turn: make(chan struct{}, 1)}
}

// Close frees what the store was given to free. It is idempotent.
func (l *Local) Close() error { return l.release() }

// Describe returns version and the id of the global store.
func (l *Local) Describe(ctx context.Context) (store.Description, error) {
	d, err := l.head(ctx)
	if err != nil {
		return store.Description{}, fmt.Errorf("describing local store: %w", err)
	}
	return store.Description{ID: d.Global, Version: version(d), Forgotten: d.Forgotten}, nil
}

// head reads the store's document and checks that this program can use it.
func (l *Local) head(ctx context.Context) (mongomap.StoreDocument, error) {
	if err := ctx.Err(); err != nil {
		return mongomap.StoreDocument{}, err
	}
	d, err := mongomap.ReadStore(ctx, l.db)
	if err != nil {
		return d, mongomap.Fault(ctx, err)
	}
	if d.Major != store.Current.Major {
		advice := "use a newer program"
		if d.Major < store.Current.Major {
			advice = "upgrade the store"
		}
		return d, fmt.Errorf("local store has version %d.%d, this program works with %d.x: %s: %w",
			d.Major, d.Minor, store.Current.Major, advice, shardway.ErrStoreVersion)
	}
	return d, nil
}

func version(d mongomap.StoreDocument) store.Version {
	return store.Version{Major: d.Major, Minor: d.Minor}
}

// Deploy creates indexes and the store's document when they are missing.
func (l *Local) Deploy(ctx context.Context, globalID string) error {
	if globalID == "" {
		return &shardway.ArgumentError{Argument: "global store id", Reason: "is empty"}
	}
	if err := l.deploy(ctx, globalID); err != nil {
		return fmt.Errorf("deploying local store: %w", err)
	}
	return nil
}

func (l *Local) deploy(ctx context.Context, globalID string) error {
	d, err := l.head(ctx)
	if err == nil || !errors.Is(err, shardway.ErrNoStore) {
		return cmp.Or(err, checkOwner(d, globalID))
	}
	for collection, fields := range map[string][]string{
		mongomap.Rows: mongomap.RowIndexes, mongomap.Operations: mongomap.OperationIndexes,
	} {
		for _, f := range fields { // one by one: FerretDB fails where some of several are there already
			index := mongo.IndexModel{Keys: bson.D{{Key: f, Value: 1}}}
			if _, err := l.db.Collection(collection).Indexes().CreateOne(ctx, index); err != nil {
				return mongomap.Fault(ctx, err)
			}
		}
	}
	_, err = l.db.Collection(mongomap.Store).InsertOne(ctx, mongomap.StoreDocument{
		ID: mongomap.StoreID, Global: globalID, Major: store.Current.Major, Minor: store.Current.Minor, Last: mongomap.Commit{Settled: true},
	})
	if !mongo.IsDuplicateKeyError(err) {
		return mongomap.Fault(ctx, err)
	}
	d, err = l.head(ctx)
	return cmp.Or(err, checkOwner(d, globalID))
}

func checkOwner(d mongomap.StoreDocument, globalID string) error {
	if d.Global != globalID {
		return fmt.Errorf("database belongs to global store %s, not %s: %w", d.Global, globalID, shardway.ErrForeignStore)
	}
	return nil
}

// Upgrade brings a store of an older minor version to the current one and
// returns both: only the number changes. It can be run at any time.
func (l *Local) Upgrade(ctx context.Context) (from, to store.Version, err error) {
	d, err := l.head(ctx)
	if err != nil {
		return from, to, fmt.Errorf("upgrading local store: %w", err)
	}
	if from = version(d); d.Minor >= store.Current.Minor {
		return from, from, nil
	}
	_, err = l.db.Collection(mongomap.Store).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: mongomap.StoreID}, {Key: "minor", Value: bson.D{{Key: "$lt", Value: store.Current.Minor}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "minor", Value: store.Current.Minor}}}})
	if err != nil {
		return from, from, fmt.Errorf("upgrading local store: %w", mongomap.Fault(ctx, err))
	}
	return from, store.Current, nil
}

// Read returns one consistent state, ordered by the bytes of the maps' names.
func (l *Local) Read(ctx context.Context, m shardway.MapID) ([]store.LocalMap, error) {
	maps, err := l.read(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("reading local store: %w", err)
	}
	return maps, nil
}

// read reads the rows between two looks at the store that find the same last
// commit: what was written in between were marks that do not count, and the
// tidying of those that did.
func (l *Local) read(ctx context.Context, m shardway.MapID) ([]store.LocalMap, error) {
	filter := bson.D{}
	if m != 0 {
		filter = bson.D{{Key: "map", Value: int64(m)}}
	}
	d, err := l.head(ctx)
	for {
		if err != nil {
			return nil, err
		}
		rows, err := l.rows(ctx, filter)
		if err != nil {
			return nil, err
		}
		again, err := l.head(ctx)
		if err == nil && again.Last.Attempt == d.Last.Attempt {
			return localMaps(rows, d.Last.Attempt)
		}
		if d = again; err != nil {
			return nil, err
		}
	}
}

func (l *Local) rows(ctx context.Context, filter bson.D) ([]mongomap.Row, error) {
	cursor, err := l.db.Collection(mongomap.Rows).Find(ctx, filter)
	if err != nil {
		return nil, mongomap.Fault(ctx, err)
	}
	var rows []mongomap.Row
	return rows, mongomap.Fault(ctx, cursor.All(ctx, &rows))
}

// localMaps makes maps of the rows that count.
func localMaps(rows []mongomap.Row, last string) ([]store.LocalMap, error) {
	byID := map[int64]*store.LocalMap{}
	for i := range rows {
		if r := &rows[i]; r.Shard != nil && r.Counts(last) {
			byID[r.Map] = &store.LocalMap{Map: rowMap(r), Shard: rowShard(r)}
		}
	}
	seen := map[string]bool{} // _id: a row that moves while it is read may come twice
	for i := range rows {
		r := &rows[i]
		lm := byID[r.Map]
		if r.Mapping == nil || lm == nil || !r.Counts(last) || seen[r.ID] {
			continue
		}
		seen[r.ID] = true
		mapping, err := rowMapping(r, lm.Map.KeyKind)
		if err != nil {
			return nil, err
		}
		lm.Mappings = append(lm.Mappings, mapping)
	}
	var maps []store.LocalMap
	for _, lm := range byID {
		slices.SortFunc(lm.Mappings, func(a, b shardway.Mapping) int {
			return cmp.Or(a.Range.Low.Compare(b.Range.Low), cmp.Compare(a.ID, b.ID))
		})
		maps = append(maps, *lm)
	}
	slices.SortFunc(maps, func(a, b store.LocalMap) int {
		return cmp.Or(strings.Compare(a.Map.Name, b.Map.Name), cmp.Compare(a.Map.ID, b.Map.ID))
	})
	return maps, nil
}

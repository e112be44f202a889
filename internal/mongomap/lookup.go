package mongomap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
)

// Answer says what the database has of a mapping.
type Answer struct {
	Owned  bool
	Status shardway.MappingStatus // of an owned one
	// Leaving is set when somebody is about to remove it: the database owns it
	// at this moment, and may not at the next.
	Leaving bool
}

// ReadStore returns the document that describes the local store, or
// [shardway.ErrNoStore].
func ReadStore(ctx context.Context, db *mongo.Database) (StoreDocument, error) {
	var d StoreDocument
	err := db.Collection(Store).FindOne(ctx, bson.D{{Key: "_id", Value: StoreID}}).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return d, fmt.Errorf("database %q: %w", db.Name(), shardway.ErrNoStore)
	}
	return d, err
}

// Ask tells whether the database owns a mapping. Most answers take one read:
// only a mapping with a mark, or one that is not there, takes more. In a
// transaction it answers for the transaction's snapshot.
//
// A database without a local store is [shardway.ErrNoStore]. Other errors are
// the driver's.
func Ask(ctx context.Context, db *mongo.Database, id shardway.MappingID) (Answer, error) {
	rows, err := mappingRows(ctx, db, id)
	if err != nil {
		return Answer{}, err
	}
	for {
		for i := range rows {
			if rows[i].Clean() {
				return answer(&rows[i], false), nil
			}
		}
		d, err := ReadStore(ctx, db)
		if err != nil || len(rows) == 0 {
			return Answer{}, err
		}
		// Marks that stand before and after stood in between.
		again, err := mappingRows(ctx, db, id)
		if err != nil {
			return Answer{}, err
		}
		if sameMarks(rows, again) {
			return decide(ctx, db, rows, d)
		}
		rows = again
	}
}

func mappingRows(ctx context.Context, db *mongo.Database, id shardway.MappingID) (rows []Row, err error) {
	filter := bson.D{{Key: "of", Value: int64(id)}, {Key: "row", Value: MappingRow}}
	cursor, err := db.Collection(Rows).Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	return rows, cursor.All(ctx, &rows)
}

func sameMarks(a, b []Row) bool {
	return slices.EqualFunc(a, b, func(x, y Row) bool {
		return x.ID == y.ID && x.Added == y.Added && slices.Equal(x.Removed, y.Removed)
	})
}

func decide(ctx context.Context, db *mongo.Database, rows []Row, d StoreDocument) (Answer, error) {
	for i := range rows {
		if !rows[i].Counts(d.Last.Attempt) {
			continue
		}
		for _, mark := range rows[i].Removed {
			alive, err := alive(ctx, db, mark, d)
			if err != nil || alive {
				return answer(&rows[i], true), err
			}
		}
		return answer(&rows[i], false), nil
	}
	return Answer{}, nil
}

func answer(r *Row, leaving bool) Answer {
	a := Answer{Owned: true, Leaving: leaving}
	if r.Mapping != nil {
		a.Status = shardway.MappingStatus(r.Mapping.Status)
	}
	return a
}

// alive reports whether an attempt that is not the last commit may still become
// one. What it says of one that is, or was, a commit means nothing. Nobody can
// commit for an operation that is forgotten, or has ended.
func alive(ctx context.Context, db *mongo.Database, mark string, d StoreDocument) (bool, error) {
	op, want, ok := ParseAttempt(mark)
	if !ok {
		return false, nil
	}
	seq, dated := seqOf(mark)
	if dated && seq <= d.Ended {
		return false, nil
	}
	var known OperationDocument
	err := db.Collection(Operations).FindOne(ctx, bson.D{{Key: "_id", Value: op}}).Decode(&known)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return !dated || seq > d.Forgotten, nil
	}
	return err == nil && want > known.State, err
}

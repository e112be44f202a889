package mongomap

import (
	"context"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
)

// Hold is [Ask] for a transaction that must not commit after the mapping is
// gone: it also writes one of the mapping's lanes. ctx carries the session of
// the transaction. A mapping that is not owned, not online or leaving holds
// nothing: abort the transaction.
func Hold(ctx context.Context, db *mongo.Database, id shardway.MappingID) (Answer, error) {
	a, err := Ask(ctx, db, id)
	if err != nil || !a.Owned || a.Leaving || a.Status != shardway.Online {
		return a, err
	}
	_, err = db.Collection(Lanes).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: LaneOf(id, rand.IntN(LanesOfMapping))}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "turns", Value: int64(1)}}}},
		options.UpdateOne().SetUpsert(true))
	return a, err
}

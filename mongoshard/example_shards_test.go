package mongoshard_test

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/mongodb"
	"github.com/shardway/shardway/mongoshard"
)

// The database of a customer, on whichever deployment it is.
func ExampleFor() {
	lookUp := func(ctx context.Context, customers *shardway.RangeShardMap[int64], customerID int64, secret string) error {
		shards, err := mongoshard.For(customers, mongoshard.ShardConfig{
			Engine:      mongodb.Engine{Options: "replicaSet=rs0"},
			Credentials: shardway.Credentials{User: "app", Password: secret},
		})
		if err != nil {
			return err
		}
		defer shards.Close()
		var order bson.M
		db, err := shards.Database(ctx, customerID)
		if err != nil {
			return err
		}
		err = db.Collection("orders").FindOne(ctx, bson.D{{Key: "customer", Value: customerID}}).Decode(&order)
		return err
	}
	_ = lookUp
}

// A transaction that cannot commit on a deployment that no longer has the key.
func ExampleShards_InTx() {
	add := func(ctx context.Context, shards *mongoshard.Shards[int64], customerID int64) (err error) {
		err = shards.InTx(ctx, customerID, nil, func(ctx context.Context, db *mongo.Database) error {
			_, err := db.Collection("orders").InsertOne(ctx, bson.D{{Key: "customer", Value: customerID}})
			return err
		})
		return err
	}
	_ = add
}

package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// leastWait is the time for transactions to give way that a step has even if it
// is not to wait, and laneTime what writing a lane may take besides.
const (
	leastWait = time.Second
	laneTime  = 20 * time.Millisecond
)

// stopTransactions writes the lanes of all mappings that the attempt removes,
// where there are transactions: it waits for those that rely on one, as the
// step's Drain says, and ends those that have not seen the mark. See
// [mongomap.LanesOfMapping]. MongoDB lets nobody but an administrator end the
// transactions of others, so those that stay are [store.ErrMappingBusy].
func (a *attempt) stopTransactions(ctx context.Context) error {
	if a.lanes || len(a.change().Remove) == 0 {
		return nil
	}
	var hello struct {
		SetName string `bson:"setName"`
		Message string `bson:"msg"`
	}
	if err := a.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return mongomap.Fault(ctx, err)
	}
	if hello.SetName == "" && hello.Message != "isdbgrid" {
		return nil
	}
	writes := a.laneWrites()
	limited, cancel := context.WithTimeout(ctx, max(a.s.Drain.Wait(), leastWait)+time.Duration(len(writes))*laneTime)
	defer cancel()
	err := a.writeLanes(limited, writes)
	if err != nil && ctx.Err() == nil && (errors.Is(limited.Err(), context.DeadlineExceeded) || mongo.IsTimeout(err)) {
		return &store.BusyError{
			Map: a.s.Map, Mappings: a.change().Remove, Users: []string{"a transaction"},
			Reason: "it is not for others to end; MongoDB does it after transactionLifetimeLimitSeconds",
		}
	}
	a.lanes = err == nil
	return mongomap.Fault(ctx, err)
}

func (a *attempt) laneWrites() (writes []mongo.WriteModel) {
	seen := map[int32]bool{}
	for _, m := range a.change().Remove {
		for n := range mongomap.LanesOfMapping {
			if lane := mongomap.LaneOf(m.ID, n); !seen[lane] {
				seen[lane] = true
				writes = append(writes, mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: lane}}).
					SetUpdate(bson.D{{Key: "$inc", Value: bson.D{{Key: "turns", Value: int64(1)}}}}))
			}
		}
	}
	return writes
}

func (a *attempt) writeLanes(ctx context.Context, writes []mongo.WriteModel) error {
	for {
		_, err := a.db.Collection(mongomap.Lanes).BulkWrite(ctx, writes, options.BulkWrite().SetOrdered(false))
		if !mongo.IsDuplicateKeyError(err) { // else a transaction has just written one for the first time
			return err
		}
	}
}

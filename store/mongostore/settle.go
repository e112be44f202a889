package mongostore

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// keepOperations is how many operations that changed nothing a local store
// remembers, at least, when steps come without a horizon.
const keepOperations = 1000

// forgetEvery is the number of commits between two looks at which documents of
// forgotten operations can go, and forgetAtOnce how many of those that have
// ended go then.
const (
	forgetEvery  = 256
	forgetAtOnce = 1000
)

// withdrawLimit bounds the tidying of an attempt that failed.
const withdrawLimit = 5 * time.Second

// settled reads the last commit after making sure that documents say by
// themselves what it says. Only then may there be a next one.
func (l *Local) settled(ctx context.Context) (mongomap.StoreDocument, error) {
	d, err := l.head(ctx)
	if err != nil || d.Last.Settled {
		return d, err
	}
	return d, l.settle(ctx, d)
}

// settle tidies up after the commit d.Last. It may be done by several at once,
// and late: all that it changes carries the mark of that commit, and nothing
// gets that mark any more.
func (l *Local) settle(ctx context.Context, d mongomap.StoreDocument) error {
	if err := l.keepState(ctx, d); err != nil {
		return mongomap.Fault(ctx, err)
	}
	last, rows := d.Last, l.db.Collection(mongomap.Rows)
	if store.StepState(last.State) != store.StepSeen {
		added, removed := bson.D{{Key: "added", Value: last.Attempt}}, bson.D{{Key: "removed", Value: last.Attempt}}
		if _, err := rows.UpdateMany(ctx, added, bson.D{{Key: "$unset", Value: bson.D{{Key: "added", Value: ""}}}}); err != nil {
			return mongomap.Fault(ctx, err)
		}
		if _, err := rows.DeleteMany(ctx, removed); err != nil {
			return mongomap.Fault(ctx, err)
		}
	}
	if last.Epoch > 1 || store.StepState(last.State) == store.StepUndone { // an attempt before this one may have died
		if err := l.sweep(ctx, last); err != nil {
			return err
		}
	}
	_, err := l.db.Collection(mongomap.Store).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: mongomap.StoreID}, {Key: "last.attempt", Value: last.Attempt}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "last.settled", Value: true}}}})
	return mongomap.Fault(ctx, err)
}

// keepState writes the state of the commit's operation, unless a later one is
// there already.
func (l *Local) keepState(ctx context.Context, d mongomap.StoreDocument) error {
	filter := bson.D{{Key: "_id", Value: d.Last.Operation}, {Key: "commits", Value: bson.D{{Key: "$lt", Value: d.Commits}}}}
	_, err := l.db.Collection(mongomap.Operations).UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{
		{Key: "seq", Value: d.Last.Seq}, {Key: "epoch", Value: d.Last.Epoch}, {Key: "state", Value: d.Last.State}, {Key: "commits", Value: d.Commits},
	}}}, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

// sweep removes the marks of attempts that the commit has made hopeless, and
// the rows that only they would have added.
func (l *Local) sweep(ctx context.Context, last mongomap.Commit) error {
	low, high := mongomap.AttemptsOf(last.Operation)
	within := bson.D{{Key: "$gte", Value: low}, {Key: "$lt", Value: high}}
	marked, err := l.rows(ctx, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "added", Value: within}}, bson.D{{Key: "removed", Value: within}},
	}}})
	if err != nil {
		return err
	}
	var dead []string
	for _, r := range marked {
		for _, mark := range append(r.Removed, r.Added) {
			op, want, ok := mongomap.ParseAttempt(mark)
			if ok && op == last.Operation && want <= last.State && mark != last.Attempt {
				dead = append(dead, mark)
			}
		}
	}
	slices.Sort(dead)
	return l.erase(ctx, slices.Compact(dead))
}

// erase removes marks that never count. A row whose marks others have changed
// meanwhile is looked at again.
func (l *Local) erase(ctx context.Context, marks []string) error {
	if len(marks) == 0 {
		return nil
	}
	rows := l.db.Collection(mongomap.Rows)
	among := bson.D{{Key: "$in", Value: marks}}
	if _, err := rows.DeleteMany(ctx, bson.D{{Key: "added", Value: among}}); err != nil {
		return mongomap.Fault(ctx, err)
	}
	for {
		marked, err := l.rows(ctx, bson.D{{Key: "removed", Value: among}})
		if err != nil || len(marked) == 0 {
			return err
		}
		var writes []mongo.WriteModel
		for _, r := range marked {
			rest := slices.DeleteFunc(slices.Clone(r.Removed), func(mark string) bool { return slices.Contains(marks, mark) })
			change := bson.D{{Key: "$set", Value: bson.D{{Key: "removed", Value: rest}}}}
			if len(rest) == 0 {
				change = bson.D{{Key: "$unset", Value: bson.D{{Key: "removed", Value: ""}}}}
			}
			as := bson.D{{Key: "_id", Value: r.ID}, {Key: "removed", Value: r.Removed}}
			writes = append(writes, mongo.NewUpdateOneModel().SetFilter(as).SetUpdate(change))
		}
		if _, err := rows.BulkWrite(ctx, writes, options.BulkWrite().SetOrdered(false)); err != nil {
			return mongomap.Fault(ctx, err)
		}
	}
}

// withdraw erases the marks of an attempt that was not committed. What it does
// not manage counts for nothing, and is swept later.
func (a *attempt) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	_ = a.erase(ctx, []string{a.id})
}

// forget drops, now and then, documents of operations that are forgotten, and
// returns up to which Seq the next commit forgets those that changed nothing.
// What has ended is forgotten by the commit itself, see
// [mongomap.StoreDocument]: somebody late may write a document again.
func (a *attempt) forget(ctx context.Context, d mongomap.StoreDocument) (int64, error) {
	if (d.Commits+1)%forgetEvery != 0 {
		return d.Forgotten, nil
	}
	if err := a.forgetEnded(ctx, d.Ended); err != nil {
		return 0, mongomap.Fault(ctx, err)
	}
	operations := a.db.Collection(mongomap.Operations)
	idle := bson.E{Key: "state", Value: bson.D{{Key: "$ne", Value: int32(store.StepApplied)}}}
	_, err := operations.DeleteMany(ctx, bson.D{idle, {Key: "seq", Value: bson.D{{Key: "$lte", Value: d.Forgotten}}}})
	if err != nil || a.s.Horizon > 0 {
		return d.Forgotten, mongomap.Fault(ctx, err)
	}
	var oldest mongomap.OperationDocument
	err = operations.FindOne(ctx, bson.D{idle}, options.FindOne().SetSort(bson.D{{Key: "seq", Value: -1}}).SetSkip(keepOperations)).Decode(&oldest)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return d.Forgotten, nil
	}
	return max(oldest.Seq, d.Forgotten), mongomap.Fault(ctx, err)
}

// forgetEnded drops documents of operations up to a Seq, the oldest first.
func (l *Local) forgetEnded(ctx context.Context, upTo int64) error {
	operations := l.db.Collection(mongomap.Operations)
	cursor, err := operations.Find(ctx, bson.D{{Key: "seq", Value: bson.D{{Key: "$lte", Value: upTo}}}},
		options.Find().SetSort(bson.D{{Key: "seq", Value: 1}}).SetLimit(forgetAtOnce))
	if err != nil {
		return err
	}
	var ended []mongomap.OperationDocument
	if err := cursor.All(ctx, &ended); err != nil || len(ended) == 0 {
		return err
	}
	ids := make([]int64, len(ended))
	for i, op := range ended {
		ids[i] = op.ID
	}
	_, err = operations.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	return err
}

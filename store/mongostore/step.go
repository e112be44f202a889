package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// untouched is the state of an operation that the local store has not met.
const untouched store.StepState = 0

// Step brings the database to the wanted state of one step.
//
// An acknowledgement of the commit that does not arrive is
// [store.ErrUnknownOutcome]; the same step again tells.
func (l *Local) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	state, err := l.step(ctx, s)
	if err != nil {
		return untouched, fmt.Errorf("changing local store of shard %q: operation %s: %w", s.Step.Shard.Name, s.Operation, err)
	}
	return state, nil
}

func (l *Local) step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return untouched, ctx.Err()
	}
	a := &attempt{Local: l, s: s, id: mongomap.NewAttempt(int64(s.Operation), s.Seq, int32(s.Want))}
	state, err := a.run(ctx)
	if a.marked && !a.counts && !errors.Is(err, store.ErrUnknownOutcome) {
		a.withdraw(ctx)
	}
	return state, err
}

// attempt is one executor's try to bring an operation to a state.
type attempt struct {
	*Local

	s      store.LocalStep
	id     string // the mark
	marked bool   // marks were written
	counts bool   // and committed
	lanes  bool   // and after them the lanes of all mappings to remove
}

// run looks at the last commit, decides, and commits. When somebody else has
// committed meanwhile it looks again: what it has written stays, for what it is
// worth after that commit.
func (a *attempt) run(ctx context.Context) (store.StepState, error) {
	for {
		d, err := a.settled(ctx)
		if err != nil {
			return untouched, err
		}
		known, op, err := a.operation(ctx)
		if err != nil {
			return untouched, err
		}
		if known && a.s.Epoch < op.Epoch {
			return untouched, fmt.Errorf("it has epoch %d here, not %d: %w", op.Epoch, a.s.Epoch, store.ErrLostLease)
		}
		found := store.StepState(op.State)
		// What was forgotten has ended, or had changed nothing and never will.
		forgotten := a.s.Seq <= d.Ended || found != store.StepApplied && a.s.Seq <= d.Forgotten
		if forgotten {
			found = store.StepUndone
		}
		next, change, err := decide(found, a.s.Want)
		if err != nil || forgotten || known && next == found && a.s.Epoch == op.Epoch {
			return next, err
		}
		if change {
			if ready, err := a.prepare(ctx, d.Last.Attempt); err != nil {
				return untouched, err
			} else if !ready {
				continue
			}
		}
		mark := a.id
		if !change { // what was written before somebody else changed the rows must not count
			mark = mongomap.NewAttempt(int64(a.s.Operation), a.s.Seq, int32(next))
		}
		done, err := a.commit(ctx, d, mark, next)
		a.counts = done && change
		if done || err != nil {
			return next, err
		}
	}
}

// decide returns the state after a step and whether rows change for it.
func decide(state, want store.StepState) (next store.StepState, change bool, err error) {
	switch want {
	case store.StepSeen:
		return max(state, store.StepSeen), false, nil
	case store.StepApplied:
		if state == store.StepUndone {
			return untouched, false, store.ErrLostLease
		}
		return want, state != store.StepApplied, nil
	case store.StepUndone:
		return want, state == store.StepApplied, nil
	}
	return untouched, false, &shardway.ArgumentError{Argument: "wanted state", Value: fmt.Sprint(want), Reason: "is no state of a step"}
}

func (a *attempt) operation(ctx context.Context) (known bool, op mongomap.OperationDocument, err error) {
	err = a.db.Collection(mongomap.Operations).FindOne(ctx, bson.D{{Key: "_id", Value: int64(a.s.Operation)}}).Decode(&op)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, op, nil
	}
	return err == nil, op, mongomap.Fault(ctx, err)
}

// commit makes the mark that of the last commit if the one in d still is. That
// is the moment of the step: before it nothing, after it everything of
// the step has happened.
func (a *attempt) commit(ctx context.Context, d mongomap.StoreDocument, mark string, next store.StepState) (done bool, err error) {
	forgotten, err := a.forget(ctx, d)
	if err != nil {
		return false, err
	}
	ended := max(d.Ended, min(a.s.Horizon, a.s.Seq)-1)
	last := mongomap.Commit{Attempt: mark, Operation: int64(a.s.Operation), Seq: a.s.Seq, Epoch: a.s.Epoch, State: int32(next)}
	err = a.db.Collection(mongomap.Store).FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: mongomap.StoreID}, {Key: "last.attempt", Value: d.Last.Attempt}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "last", Value: last}, {Key: "forgotten", Value: max(forgotten, ended)}, {Key: "ended", Value: ended}}},
			{Key: "$inc", Value: bson.D{{Key: "commits", Value: int64(1)}}},
		},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&d)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments): // somebody else was faster
		return false, nil
	case err != nil: // whatever it says: a write concern that failed, too, is the error of a command that was done
		return false, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, mongomap.Fault(ctx, err))
	}
	d.Last = last
	_ = a.settle(ctx, d) // else whoever comes next does it
	return true, nil
}

package mongostore

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// soon makes the next commit but one a commit that drops documents.
func (s *scene) soon(l *Local) {
	s.Helper()
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "commits", Value: int64(forgetEvery - 2)}}}}
	if _, err := l.db.Collection(mongomap.Store).UpdateOne(s.Context(), bson.D{{Key: "_id", Value: mongomap.StoreID}}, set); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) documents(l *Local) int {
	s.Helper()
	cursor, err := l.db.Collection(mongomap.Operations).Find(s.Context(), bson.D{})
	var all []mongomap.OperationDocument
	if err == nil {
		err = cursor.All(s.Context(), &all)
	}
	if err != nil {
		s.Fatal(err)
	}
	return len(all)
}

// Documents of operations that have ended go, applied ones too. One that
// somebody slow writes again, after they have gone, is not believed (I2, I6).
func TestForgetDocuments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		s := newScene(t, d)
		l := s.program()
		op := s.operation(store.Step{Remove: s.have[1:2], Add: []shardway.Mapping{s.mapping(10, 20)}})
		s.step(l, op, store.StepApplied)
		want := []shardway.Mapping{s.have[0], op.Step.Add[0], s.have[2], s.have[3]}
		s.soon(l)
		for range 2 {
			next := s.operation(store.Step{})
			next.Horizon = next.Seq
			s.step(l, next, store.StepApplied)
		}
		if n := s.documents(l); n != 2 { // of the last two commits
			t.Errorf("%d documents of operations are left, want 2", n)
		}
		again := mongomap.OperationDocument{ID: int64(op.Operation), Seq: op.Seq, Epoch: 1, State: int32(store.StepApplied)}
		if _, err := l.db.Collection(mongomap.Operations).InsertOne(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		for _, want := range []store.StepState{store.StepSeen, store.StepUndone} {
			op.Epoch, op.Want = 2, want
			s.step(l, op, store.StepUndone)
		}
		op.Want = store.StepApplied
		if got, err := l.Step(t.Context(), op); !errors.Is(err, store.ErrLostLease) {
			t.Errorf("a late step = %d, %v, want ErrLostLease", got, err)
		}
		s.holds("after late steps", l, want...)
		s.clean("after late steps", l)
	})
}

// A mark that a dead executor has left on a mapping keeps nobody from relying
// on it once its operation is forgotten.
func TestForgottenMark(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		s := newScene(t, d)
		l := s.program()
		op := s.operation(store.Step{Remove: s.have[1:2]})
		mark := mongomap.NewAttempt(int64(op.Operation), op.Seq, int32(op.Want))
		dead := &attempt{Local: s.program(), s: op, id: mark}
		before, err := dead.settled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ready, err := dead.prepare(t.Context(), before.Last.Attempt); ready || err != nil {
			t.Fatalf("prepare = %v, %v", ready, err)
		}
		leaving := func(want bool) {
			t.Helper()
			a, err := mongomap.Ask(t.Context(), l.db, s.have[1].ID)
			if err != nil || !a.Owned || a.Leaving != want {
				t.Errorf("Ask = %+v, %v, want owned and leaving: %t", a, err, want)
			}
		}
		leaving(true)
		pending := s.operation(store.Step{})
		pending.Horizon = op.Seq
		s.step(l, pending, store.StepApplied)
		leaving(true) // it may go on
		ended := s.operation(store.Step{})
		ended.Horizon = pending.Seq
		s.step(l, ended, store.StepApplied)
		leaving(false)
		s.holds("with the mark", l, s.have...)
	})
}

// So it is with the mark of one who died while taking back an operation that
// was applied, and then given up: it stays applied here.
func TestForgottenMarkOfUndoing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		s := newScene(t, d)
		l := s.program()
		added := s.mapping(40, 50)
		op := s.operation(store.Step{Add: []shardway.Mapping{added}})
		s.step(l, op, store.StepApplied)
		op.Epoch, op.Want = 2, store.StepUndone
		dead := &attempt{Local: s.program(), s: op, id: mongomap.NewAttempt(int64(op.Operation), op.Seq, int32(op.Want))}
		before, err := dead.settled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ready, err := dead.prepare(t.Context(), before.Last.Attempt); ready || err != nil {
			t.Fatalf("prepare = %v, %v", ready, err)
		}
		ended := s.operation(store.Step{})
		for _, want := range []bool{true, false} {
			if !want {
				ended.Horizon = ended.Seq
			}
			s.step(l, ended, store.StepApplied)
			a, err := mongomap.Ask(t.Context(), l.db, added.ID)
			if err != nil || !a.Owned || a.Leaving != want {
				t.Errorf("Ask = %+v, %v, want owned and leaving: %t", a, err, want)
			}
			ended = s.operation(store.Step{})
		}
		s.holds("with the mark", l, append(s.have, added)...)
	})
}

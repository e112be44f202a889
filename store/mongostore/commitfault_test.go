package mongostore

import (
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongotest"
	"github.com/shardway/shardway/store"
)

// A commit that was done and answered with an error, whichever one, keeps its
// rows: the executor does not tidy up after itself what counts.
func TestCommitAnsweredWithError(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int32{"write concern failed": 64, "wait interrupted": 11601, "unknown": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 1})
			s := newScene(t, deployment{name: "replica set", uri: func(*testing.T) (string, string) { return cluster.URI(), "shard" }})
			op := s.operation(store.Step{Remove: s.have[1:2], Add: []shardway.Mapping{s.mapping(10, 15), s.mapping(15, 20)}})
			l := s.program()
			cluster.Server(0).Fail("findAndModify", mongotest.Fault{Code: code, AfterReply: true})
			if state, err := l.Step(t.Context(), op); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("Step = %d, %v, want ErrUnknownOutcome", state, err)
			}
			s.holds("after the error", s.program(), s.have[0], op.Step.Add[0], op.Step.Add[1], s.have[2], s.have[3])
			s.step(l, op, store.StepApplied)
			s.holds("after another try", l, s.have[0], op.Step.Add[0], op.Step.Add[1], s.have[2], s.have[3])
		})
	}
}

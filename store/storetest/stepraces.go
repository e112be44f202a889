package storetest

import (
	"errors"

	"github.com/shardway/shardway/store"
)

// testForgetting ends many operations and then meets the first ones again.
// Whether the store has forgotten them or not, nothing is applied twice.
func testForgetting(l *site) {
	st := l.stage()
	undone := l.next(st.m, st.step)
	undone.Want = store.StepUndone
	l.want(undone, store.StepUndone)
	undoneLater := l.reach(st, store.StepUndone)
	a := st.before.Mappings[0]
	first := l.apply(st.m, replace(st.step.Shard, list(a), list(next(a))))
	a = first.Step.Add[0]
	for range 60 {
		s := l.apply(st.m, replace(st.step.Shard, list(a), list(next(a))))
		a = s.Step.Add[0]
	}
	before := l.read()
	for _, s := range list(undone, undoneLater) {
		for _, epoch := range list(s.Epoch, s.Epoch+1) {
			s.Want, s.Epoch = store.StepApplied, epoch
			l.refused("applying an operation that was undone long ago", s, store.ErrLostLease)
		}
	}
	if _, err := l.Step(l.Context(), first); err != nil && !errors.Is(err, store.ErrLostLease) {
		l.Errorf("applying an operation that was applied long ago = %v, want success or ErrLostLease", err)
	}
	same(l.T, "old operations changed the maps", before, l.read())
}

func testStepAtOnce(l *site) {
	st := l.stage()
	s := l.next(st.m, st.step)
	for _, r := range atOnce(5, func(int) (store.StepState, error) { return l.Step(l.Context(), s) }) {
		if r.err != nil || r.value != store.StepApplied {
			l.Errorf("Step = %d, %v, want applied", r.value, r.err)
		}
	}
	l.holds("applied at once", st.after)
}

// testStepRace applies and undoes at once: the order is open, the end is not.
func testStepRace(l *site) {
	st := l.stage()
	for range 4 {
		s := l.next(st.m, st.step)
		results := atOnce(4, func(n int) (store.StepState, error) {
			s := s
			if n%2 == 0 {
				s.Want, s.Epoch = store.StepUndone, 2
			}
			return l.Step(l.Context(), s)
		})
		for n, r := range results {
			switch {
			case n%2 == 0 && (r.err != nil || r.value != store.StepUndone):
				l.Errorf("undoing = %d, %v, want undone", r.value, r.err)
			case n%2 == 1 && r.err != nil && !errors.Is(r.err, store.ErrLostLease):
				l.Errorf("applying = %v, want success or ErrLostLease", r.err)
			}
		}
		l.holds("applied and undone at once", st.before)
	}
}

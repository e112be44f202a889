package storetest

import (
	"sync"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// stride is between the sequence numbers of these tests: a store may wait until
// forgetting is worth it.
const stride = 1000

// far returns the request to apply a step as a new operation, far behind the
// one before.
func (l *site) far(m shardway.ShardMap, step store.Step) store.LocalStep {
	l.seq += stride
	return l.next(m, step)
}

func (l *site) forgotten() int64 {
	l.Helper()
	d, err := l.Describe(l.Context())
	if err != nil {
		l.Fatalf("Describe = %v", err)
	}
	return d.Forgotten
}

// late takes all steps that somebody may still want of an operation that has
// ended: none of them changes a row, and none that would is believed to have.
func (l *site) late(what string, s store.LocalStep) {
	l.Helper()
	before := l.read()
	for _, epoch := range list(s.Epoch, s.Epoch+1) {
		s.Epoch, s.Want = epoch, store.StepApplied
		l.refused(what+": applying", s, store.ErrLostLease)
		for _, want := range list(store.StepSeen, store.StepUndone) {
			s.Want = want
			l.want(s, store.StepUndone)
		}
	}
	same(l.T, what+": late steps changed the maps", before, l.read())
}

// testHorizon ends operations in every way, lets the store forget them, and
// meets them again: stalled executors that wake, those who take over late, and
// who undoes what has ended (I2, I5, I6). Those that are pending stay whole.
func testHorizon(l *site) {
	st := l.stage()
	s, have := st.step.Shard, st.before.Mappings
	move := func(n int) store.Step { return replace(s, have[n:n+1], list(next(have[n]))) }
	ended := map[string]store.LocalStep{
		"applied": l.far(st.m, move(0)), "undone": l.far(st.m, move(1)), "applied and undone": l.far(st.m, move(1)),
		"fenced": l.far(st.m, move(1)), "never met": l.far(st.m, move(1)),
	}
	highest := l.seq
	for name, want := range map[string][]store.StepState{
		"applied": {store.StepApplied}, "undone": {store.StepUndone},
		"applied and undone": {store.StepApplied, store.StepUndone}, "fenced": {store.StepSeen},
	} {
		s := ended[name]
		for _, s.Want = range want {
			l.want(s, s.Want)
		}
	}
	applied, unknown := l.far(st.m, move(1)), l.far(st.m, move(2))
	l.want(applied, store.StepApplied)
	before := l.read()
	other := l.far(st.m, store.Step{Shard: s})
	l.want(other, store.StepApplied)
	if f := l.forgotten(); f != 0 {
		l.Fatalf("without a horizon, %d are forgotten", f)
	}

	last := l.far(st.m, store.Step{Shard: s})
	last.Horizon = applied.Seq
	l.want(last, store.StepApplied)
	if f := l.forgotten(); f < highest || f >= applied.Seq {
		l.Errorf("forgotten are those up to %d, want at least %d and less than %d", f, highest, applied.Seq)
	}
	for name, s := range ended {
		l.late("an operation that was "+name+" and forgotten", s)
	}
	same(l.T, "late steps", before, l.read())

	// What is pending can be looked at, taken back and applied.
	applied.Epoch, applied.Want = 5, store.StepSeen
	l.want(applied, store.StepApplied)
	applied.Epoch, applied.Want = 4, store.StepUndone
	l.refused("undoing with a lost lease", applied, store.ErrLostLease)
	applied.Epoch = 5
	l.want(applied, store.StepUndone)
	l.want(unknown, store.StepApplied)
	unknown.Want = store.StepUndone
	l.want(unknown, store.StepUndone)
	last.Want = store.StepUndone
	l.want(last, store.StepUndone)
}

// testHorizonBounds checks what a horizon must not do.
func testHorizonBounds(l *site) {
	st := l.stage()
	a := st.before.Mappings[0]
	first := l.far(st.m, replace(st.step.Shard, list(a), list(next(a))))
	first.Horizon = first.Seq + 5*stride // wrong: it has not ended itself
	l.want(first, store.StepApplied)
	if f := l.forgotten(); f >= first.Seq {
		l.Errorf("an operation of Seq %d lets the store forget up to %d", first.Seq, f)
	}
	first.Want = store.StepUndone
	l.want(first, store.StepUndone)
	l.holds("after undoing", st.before)

	f := l.forgotten()
	refused := l.far(st.m, replace(st.step.Shard, list(next(a)), nil))
	refused.Horizon = refused.Seq
	l.refused("a step whose mapping is missing", refused, store.ErrMapsDiffer)
	if now := l.forgotten(); now != f {
		l.Errorf("a refused step lets the store forget up to %d instead of %d", now, f)
	}
	step := l.far(st.m, store.Step{Shard: st.step.Shard})
	step.Horizon = step.Seq
	l.want(step, store.StepApplied)
	f = l.forgotten()
	lower := l.far(st.m, store.Step{Shard: st.step.Shard})
	lower.Horizon = 1
	l.want(lower, store.StepApplied)
	if now := l.forgotten(); now != f || f < first.Seq {
		l.Errorf("forgotten up to %d, then, with a lower horizon, up to %d", f, now)
	}
	adopter, ok := l.Local.(store.Adopter)
	if !ok {
		return
	}
	if err := adopter.Adopt(l.Context(), globalID, "another"); err != nil {
		l.Fatalf("Adopt = %v", err)
	}
	if now := l.forgotten(); now != f {
		l.Errorf("another owner makes the store forget up to %d instead of %d", now, f)
	}
	l.late("an operation of the owner before", first)
}

// testHorizonOfOperations checks what a global store says of the operations
// before one: in all maps, at its preparation and when it is taken over.
func testHorizonOfOperations(w *world) {
	m1, m2 := w.addMap("m1", shardway.RangeMap, shardway.KindInt64), w.addMap("m2", shardway.ListMap, shardway.KindInt64)
	nothing := func(m shardway.ShardMap) store.Step { return store.Step{Shard: newShard(m, "unused")} }
	horizon := func(what string, o *store.Operation, want int64) {
		w.Helper()
		if o.Horizon != want {
			w.Errorf("%s: the horizon of operation %d is %d, want %d", what, o.Seq, o.Horizon, want)
		}
	}
	first := w.prepare(m1, nothing(m1))
	horizon("nothing is pending", first, first.Seq)
	second := w.prepare(m2, nothing(m2))
	horizon("one of another map is pending", second, first.Seq)
	w.must(m1.ID, store.Delta{Publish: first})
	third := w.prepare(m1, nothing(m1))
	horizon("the first has ended", third, second.Seq)
	taken := store.Operation{ID: third.ID, Epoch: 2, Owner: "somebody else", LeaseUntil: instant}
	w.must(m1.ID, store.Delta{Lease: &taken})
	horizon("taken over", &taken, second.Seq)
	w.must(m2.ID, store.Delta{Abort: second})
	w.must(m1.ID, store.Delta{Lease: &taken})
	horizon("taken over, and the second has ended", &taken, third.Seq)
	for _, o := range w.operations(store.OperationQuery{}) {
		horizon("read", &o, 0)
	}

	raised := newOperation(m2, nothing(m2))
	raised.Seq = third.Seq + 5000
	given := raised.Seq
	w.must(m2.ID, store.Delta{Prepare: raised})
	horizon("above what is given", raised, third.Seq)
	after := w.prepare(m1, nothing(m1))
	if raised.Seq <= given || after.Seq <= raised.Seq {
		w.Errorf("Seq above %d = %d, then %d", given, raised.Seq, after.Seq)
	}
	low := newOperation(m2, nothing(m2))
	low.Seq = 1
	w.must(m2.ID, store.Delta{Prepare: low})
	if low.Seq <= after.Seq {
		w.Errorf("Seq above 1 = %d, after %d", low.Seq, after.Seq)
	}
}

// testHorizonAtOnce prepares and ends operations of several maps at once: no
// horizon is above one that is pending.
func testHorizonAtOnce(w *world) {
	var mu sync.Mutex // guards pending
	pending := map[int64]bool{}
	var maps []shardway.ShardMap
	for _, name := range list("m1", "m2", "m3", "m4") {
		maps = append(maps, w.addMap(name, shardway.RangeMap, shardway.KindInt64))
	}
	atOnce(len(maps), func(n int) (struct{}, error) {
		m := maps[n]
		var kept *store.Operation
		for range 12 {
			o := newOperation(m, store.Step{Shard: newShard(m, "unused")})
			if err := w.try(m.ID, store.Delta{Prepare: o}); err != nil {
				w.Errorf("preparing = %v", err)
				return struct{}{}, nil
			}
			mu.Lock()
			pending[o.Seq] = true
			for seq := range pending {
				if seq < o.Horizon {
					w.Errorf("the horizon of %d is %d, and %d has not ended", o.Seq, o.Horizon, seq)
				}
			}
			if kept != nil {
				delete(pending, kept.Seq)
			}
			mu.Unlock()
			if kept != nil {
				if err := w.try(m.ID, store.Delta{Publish: kept}); err != nil {
					w.Errorf("publishing = %v", err)
				}
			}
			kept = o
		}
		return struct{}{}, nil
	})
	if len(pending) != len(maps) {
		w.Errorf("%d operations are pending, want one of each map", len(pending))
	}
}

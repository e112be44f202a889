package storetest

import (
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

const untouched store.StepState = 0

// stage is a local map and a step that changes shard and mappings of it.
type stage struct {
	m             shardway.ShardMap
	step          store.Step
	before, after store.LocalMap
}

// stage deploys the store and fills it.
func (l *site) stage() stage {
	l.Helper()
	l.deploy()
	m := newMap("m", shardway.RangeMap, shardway.KindInt64)
	return l.stageMap(m)
}

func (l *site) stageMap(m shardway.ShardMap) stage {
	l.Helper()
	s := newShard(m, "s")
	a, b, c := newMapping(s, span(0, 10)), newMapping(s, span(10, 20)), newMapping(s, spanFrom(20))
	l.apply(m, store.Step{Shard: s, After: &s, Add: list(a, b, c)})
	after := changed(s)
	b1, b2 := newMapping(s, span(10, 15)), newMapping(s, span(15, 20))
	b1.Status = shardway.Offline
	return stage{
		m: m, step: store.Step{Shard: s, Before: &s, After: after, Remove: list(b), Add: list(b2, b1)},
		before: localMap(m, s, a, b, c), after: localMap(m, *after, a, b1, b2, c),
	}
}

// reach brings a new operation to a state in epoch 5.
func (l *site) reach(st stage, found store.StepState) store.LocalStep {
	l.Helper()
	s := l.next(st.m, st.step)
	s.Epoch = 5
	if found == store.StepUndone { // the long way: applied first
		l.want(s, store.StepApplied)
	}
	if s.Want = found; found != untouched {
		l.want(s, found)
	}
	return s
}

// testStepTable goes through the table of store.StepState, in the same and in
// a higher epoch.
func testStepTable(l *site) {
	l.deploy()
	for _, c := range []struct{ found, want, result store.StepState }{
		{untouched, store.StepSeen, store.StepSeen},
		{untouched, store.StepApplied, store.StepApplied},
		{untouched, store.StepUndone, store.StepUndone},
		{store.StepSeen, store.StepSeen, store.StepSeen},
		{store.StepSeen, store.StepApplied, store.StepApplied},
		{store.StepSeen, store.StepUndone, store.StepUndone},
		{store.StepApplied, store.StepSeen, store.StepApplied},
		{store.StepApplied, store.StepApplied, store.StepApplied},
		{store.StepApplied, store.StepUndone, store.StepUndone},
		{store.StepUndone, store.StepSeen, store.StepUndone},
		{store.StepUndone, store.StepApplied, 0}, // ErrLostLease
		{store.StepUndone, store.StepUndone, store.StepUndone},
	} {
		for _, epoch := range list[int64](5, 6) {
			name := fmt.Sprintf("found %d, wanted %d in epoch %d after 5", c.found, c.want, epoch)
			st := l.stageMap(newMap(name, shardway.RangeMap, shardway.KindInt64))
			s := l.reach(st, c.found)
			s.Want, s.Epoch = c.want, epoch
			got, err := l.Step(l.Context(), s)
			if c.result == 0 {
				wantError(l.T, name, err, store.ErrLostLease)
			} else if err != nil || got != c.result {
				l.Errorf("%s: Step = %d, %v, want %d", name, got, err, c.result)
			}
			want := st.before
			if c.result == store.StepApplied {
				want = st.after
			}
			maps, err := l.Read(l.Context(), st.m.ID)
			if err != nil {
				l.Errorf("%s: Read = %v", name, err)
			}
			same(l.T, name, list(want), maps)

			// The state stays: it is found again.
			s.Want = store.StepSeen
			l.want(s, max(c.result, c.found))
		}
	}
}

// testStepEpochs checks I6: who has lost the operation cannot write, from the
// first step of the next executor on, whatever that step wanted.
func testStepEpochs(l *site) {
	l.deploy()
	all := list(store.StepSeen, store.StepApplied, store.StepUndone)
	for _, found := range append(list(untouched), all...) {
		for _, fence := range all {
			if found == store.StepUndone && fence == store.StepApplied {
				continue
			}
			name := fmt.Sprintf("found %d, then %d in epoch 7", found, fence)
			st := l.stageMap(newMap(name, shardway.RangeMap, shardway.KindInt64))
			s := l.reach(st, found)
			fenced := s
			fenced.Epoch, fenced.Want = 7, fence
			if _, err := l.Step(l.Context(), fenced); err != nil {
				l.Fatalf("%s: Step = %v", name, err)
			}
			for _, old := range list[int64](5, 6) {
				for _, want := range all {
					s.Epoch, s.Want = old, want
					l.refused(fmt.Sprintf("%s: wanting %d in epoch %d", name, want, old), s, store.ErrLostLease)
				}
			}
			l.want(fenced, max(found, fence)) // it still goes on
			// Every operation has epochs of its own.
			other := l.next(st.m, store.Step{Shard: st.step.Shard})
			other.Want = store.StepSeen
			l.want(other, store.StepSeen)
		}
	}
}

// testStepDiffers applies and undoes steps in maps that are not as the global
// map says.
func testStepDiffers(l *site) {
	st := l.stage()
	s := st.step.Shard
	stale, fresh := *changed(s), newMapping(s, span(-10, 0))
	have := st.before.Mappings
	second := newShard(st.m, "second")
	second.Version = s.Version // the id counts too
	elsewhere := newMap("elsewhere", shardway.RangeMap, shardway.KindInt64)
	se := newShard(elsewhere, "s")
	for what, c := range map[string]struct {
		m    shardway.ShardMap
		step store.Step
	}{
		"a mapping to remove is missing":              {st.m, store.Step{Shard: s, Remove: list(fresh)}},
		"one of the mappings to remove is missing":    {st.m, store.Step{Shard: s, Remove: list(have[0], fresh), Add: list(next(fresh))}},
		"a mapping to remove has another id":          {st.m, store.Step{Shard: s, Remove: list(next(have[0]))}},
		"a mapping to add is there":                   {st.m, store.Step{Shard: s, Add: list(fresh, have[0])}},
		"the shard to change has another version":     {st.m, store.Step{Shard: s, Before: &stale, After: changed(s), Add: list(fresh)}},
		"the shard to change is another one":          {st.m, store.Step{Shard: second, Before: &second, After: changed(second)}},
		"the shard to add is there":                   {st.m, store.Step{Shard: s, After: &s}},
		"the shard to remove has another version":     {st.m, store.Step{Shard: s, Before: &stale, Remove: have}},
		"the shard to remove has more mappings":       {st.m, store.Step{Shard: s, Before: &s, Remove: have[:2]}},
		"the map to add mappings to is not there":     {elsewhere, store.Step{Shard: se, Add: list(newMapping(se, span(0, 1)))}},
		"the map to change the shard of is not there": {elsewhere, store.Step{Shard: se, Before: &se, After: changed(se)}},
	} {
		request := l.next(c.m, c.step)
		l.refused(what, request, store.ErrMapsDiffer)
		request.Want = store.StepSeen
		l.want(request, store.StepSeen) // it was not applied
		request.Want = store.StepUndone
		l.want(request, store.StepUndone) // and there is nothing to change back
	}
	l.holds("after refused steps", st.before)

	applied := l.apply(st.m, st.step)
	intruder := l.apply(st.m, store.Step{Shard: s, Remove: list(st.step.Add[0])})
	applied.Want = store.StepUndone
	l.refused("undoing when a mapping to take back is missing", applied, store.ErrMapsDiffer)
	applied.Want = store.StepSeen
	l.want(applied, store.StepApplied)
	intruder.Want = store.StepUndone
	l.want(intruder, store.StepUndone)
	applied.Want = store.StepUndone
	l.want(applied, store.StepUndone)
	l.holds("after undoing both", st.before)
}

// testStepChanges makes every shape of change, finds the rows as they should
// be, takes it back, and finds the rows as they were.
func testStepChanges(l *site) {
	st := l.stage()
	s, m, have := st.step.Shard, st.m, st.before.Mappings
	after := changed(s)
	after.Name, after.Location = "renamed ü", shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "/a"}, {Address: "/b"}}}
	locked := newMapping(s, span(-10, 0))
	locked.Lock = shardway.Lock{Token: "t"}
	merged := newMapping(s, spanFrom(0))
	offline := next(have[1])
	offline.Status = shardway.Offline
	elsewhere := newMap("m", shardway.ListMap, shardway.KindUUID) // the same name
	se := newShard(elsewhere, "s")
	point0 := newMapping(se, point(shardway.MinKey(shardway.KindUUID)))
	for what, c := range map[string]struct {
		m     shardway.ShardMap
		step  store.Step
		after []store.LocalMap
	}{
		"shard and mappings":          {m, st.step, list(st.after)},
		"shard alone":                 {m, store.Step{Shard: *after, Before: &s, After: after}, list(localMap(m, *after, have...))},
		"a mapping added":             {m, add(s, locked), list(localMap(m, s, locked, have[0], have[1], have[2]))},
		"a mapping removed":           {m, replace(s, have[2:], nil), list(localMap(m, s, have[0], have[1]))},
		"all mappings removed":        {m, replace(s, have, nil), list(localMap(m, s))},
		"the same range, another id":  {m, replace(s, have[1:2], list(offline)), list(localMap(m, s, have[0], offline, have[2]))},
		"mappings merged":             {m, replace(s, have, list(merged)), list(localMap(m, s, merged))},
		"shard removed with mappings": {m, store.Step{Shard: s, Before: &s, Remove: have}, nil},
		"nothing":                     {m, store.Step{Shard: s}, list(st.before)},
		"another map added": {elsewhere, store.Step{Shard: se, After: &se, Add: list(point0)},
			list(st.before, localMap(elsewhere, se, point0))},
	} {
		request := l.apply(c.m, c.step)
		l.holds(what+", applied", c.after...)
		l.want(request, store.StepApplied)
		l.holds(what+", applied twice", c.after...)
		request.Want = store.StepUndone
		l.want(request, store.StepUndone)
		l.holds(what+", undone", st.before)
		l.want(request, store.StepUndone)
		l.holds(what+", undone twice", st.before)
	}
}

// testTwoMaps keeps two maps apart whose names, ranges and shard names are equal.
func testTwoMaps(l *site) {
	l.deploy()
	m1 := newMap("m", shardway.RangeMap, shardway.KindInt64)
	m2 := newMap("m", shardway.RangeMap, shardway.KindInt64)
	st1, st2 := l.stageMap(m1), l.stageMap(m2)
	// One operation id for steps in both maps would be two operations.
	first := l.apply(m1, st1.step)
	l.holds("one map changed", st1.after, st2.before)
	second := l.apply(m2, st2.step)
	l.holds("both maps changed", st1.after, st2.after)
	first.Want = store.StepUndone
	l.want(first, store.StepUndone)
	l.holds("one change undone", st1.before, st2.after)
	second.Want = store.StepSeen
	l.want(second, store.StepApplied)
	shard := st1.before.Shard
	l.apply(m1, store.Step{Shard: shard, Before: &shard, Remove: st1.before.Mappings})
	l.holds("one map removed", st2.after)
}

func testLargeStep(l *site) {
	l.deploy()
	m := newMap("m", shardway.RangeMap, shardway.KindInt64)
	s := newShard(m, "s")
	const n = 2000
	before, after := make([]shardway.Mapping, n), make([]shardway.Mapping, n)
	for at := range int64(n) {
		before[at] = newMapping(s, span(at, at+1))
		after[at] = next(before[at])
		after[at].Status = shardway.Offline
	}
	l.apply(m, store.Step{Shard: s, After: &s, Add: before})
	l.holds("added", localMap(m, s, before...))
	request := l.apply(m, replace(s, before, after))
	l.holds("replaced", localMap(m, s, after...))
	last := l.next(m, replace(s, append(after[:n-1:n-1], before[n-1]), nil))
	l.refused("the last of many rows is missing", last, store.ErrMapsDiffer)
	request.Want = store.StepUndone
	l.want(request, store.StepUndone)
	l.holds("undone", localMap(m, s, before...))
}

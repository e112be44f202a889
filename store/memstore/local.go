package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Local is a local store in memory. It is safe for concurrent use. The zero
// value is usable and, like that of [NewLocal], not deployed. It forgets all
// operations below the horizon of a step, and no other.
type Local struct {
	mu        sync.Mutex // guards the fields below
	globalID  string     // empty: not deployed
	maps      map[shardway.MapID]localMap
	steps     map[store.OperationID]localState
	forgotten int64
}

type localMap struct {
	shardMap shardway.ShardMap
	shard    shardway.Shard
	mappings map[shardway.MappingID]shardway.Mapping
}

type localState struct {
	state store.StepState
	epoch int64 // the highest so far
	seq   int64
}

var _ store.Local = (*Local)(nil)

// NewLocal returns a local store that is not deployed.
func NewLocal() *Local { return &Local{} }

// Deploy binds the store to a global store, see [store.Local].
func (l *Local) Deploy(ctx context.Context, globalID string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("deploying the local store: %w", ctx.Err())
	case globalID == "":
		return &shardway.ArgumentError{Argument: "global store id", Reason: "is empty"}
	case l.globalID != "" && l.globalID != globalID:
		return fmt.Errorf("deploying the local store: %w", shardway.ErrForeignStore)
	}
	l.globalID = globalID
	return nil
}

// Describe returns the id of the global store and the version, or ErrNoStore.
func (l *Local) Describe(ctx context.Context) (store.Description, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return store.Description{}, fmt.Errorf("describing the local store: %w", err)
	}
	return store.Description{ID: l.globalID, Version: store.Current, Forgotten: l.forgotten}, nil
}

// Read returns everything about a map, or about all maps, ordered by map id.
func (l *Local) Read(ctx context.Context, m shardway.MapID) ([]store.LocalMap, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return nil, fmt.Errorf("reading the local store: %w", err)
	}
	var all []store.LocalMap
	for id, lm := range l.maps {
		if m != 0 && m != id {
			continue
		}
		mappings := slices.SortedFunc(maps.Values(lm.mappings), func(a, b shardway.Mapping) int {
			return cmp.Or(a.Range.Low.Compare(b.Range.Low), cmp.Compare(a.ID, b.ID))
		})
		all = append(all, store.LocalMap{Map: lm.shardMap, Shard: copyShard(lm.shard), Mappings: mappings})
	}
	slices.SortFunc(all, func(a, b store.LocalMap) int { return cmp.Compare(a.Map.Name, b.Map.Name) })
	return all, nil
}

// Step brings one step of an operation to the wanted state, see [store.StepState].
func (l *Local) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.usable(ctx)
	if err != nil {
		return 0, fmt.Errorf("stepping operation %s: %w", s.Operation, err)
	}
	found, known := l.steps[s.Operation]
	lost := !known && s.Seq <= l.forgotten
	if lost {
		found.state = store.StepUndone
	}
	if s.Epoch < found.epoch || s.Want == store.StepApplied && found.state == store.StepUndone {
		return 0, fmt.Errorf("stepping operation %s: %w", s.Operation, store.ErrLostLease)
	}
	next := localState{state: max(found.state, store.StepSeen), epoch: s.Epoch, seq: s.Seq}
	switch {
	case s.Want == store.StepApplied && found.state != store.StepApplied:
		next.state = store.StepApplied
		err = l.change(s.Map, s.Step)
	case s.Want == store.StepUndone && found.state == store.StepApplied:
		next.state = store.StepUndone
		err = l.change(s.Map, inverse(s.Step))
	case s.Want == store.StepUndone:
		next.state = store.StepUndone
	}
	if err != nil {
		return 0, fmt.Errorf("stepping operation %s: %w", s.Operation, err)
	}
	if lost {
		return next.state, nil
	}
	if l.steps == nil {
		l.steps = map[store.OperationID]localState{}
	}
	l.steps[s.Operation] = next
	l.forget(min(s.Horizon, s.Seq))
	return next.state, nil
}

// forget drops the operations below the horizon.
func (l *Local) forget(horizon int64) {
	l.forgotten = max(l.forgotten, horizon-1)
	maps.DeleteFunc(l.steps, func(_ store.OperationID, s localState) bool { return s.seq < horizon })
}

// Close does nothing: the store stays usable, so that several users can share it.
func (l *Local) Close() error { return nil }

func (l *Local) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.globalID == "" {
		return shardway.ErrNoStore
	}
	return nil
}

func inverse(s store.Step) store.Step {
	s.Before, s.After = s.After, s.Before
	s.Remove, s.Add = s.Add, s.Remove
	return s
}

// change removes Remove and Before and inserts After and Add, or changes
// nothing and returns ErrMapsDiffer. Besides missing rows and rows that are
// there already it refuses what would leave mappings without a shard.
func (l *Local) change(m shardway.ShardMap, step store.Step) error {
	m.Generation = 0
	step = copyStep(step)
	lm, there := l.maps[m.ID]
	mappings := maps.Clone(lm.mappings)
	if mappings == nil {
		mappings = map[shardway.MappingID]shardway.Mapping{}
	}
	for _, x := range step.Remove {
		if _, ok := mappings[x.ID]; !ok {
			return fmt.Errorf("removing mapping %s: %w", x.ID, store.ErrMapsDiffer)
		}
		delete(mappings, x.ID)
	}
	if b := step.Before; b != nil {
		if !there || lm.shard.ID != b.ID || lm.shard.Version != b.Version {
			return fmt.Errorf("removing shard %q: %w", b.Name, store.ErrMapsDiffer)
		}
		there = false
	}
	if a := step.After; a != nil {
		if there {
			return fmt.Errorf("adding shard %q: %w", a.Name, store.ErrMapsDiffer)
		}
		there, lm.shard = true, *a
	}
	for _, x := range step.Add {
		if _, ok := mappings[x.ID]; ok {
			return fmt.Errorf("adding mapping %s: %w", x.ID, store.ErrMapsDiffer)
		}
		x.Lock = shardway.Lock{}
		mappings[x.ID] = x
	}
	if !there && len(mappings) > 0 {
		return fmt.Errorf("leaving %d mappings without a shard: %w", len(mappings), store.ErrMapsDiffer)
	}
	if l.maps == nil {
		l.maps = map[shardway.MapID]localMap{}
	}
	if delete(l.maps, m.ID); there {
		l.maps[m.ID] = localMap{shardMap: m, shard: lm.shard, mappings: mappings}
	}
	return nil
}

package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Change is one change of a shard map. The changes are the exported structs of
// this package; a change is a value and can be made, previewed and printed.
type Change interface {
	// target returns the map whose changes this one is serialised with: 0 for
	// the creation of a map.
	target() shardway.MapID
	// plan decides, from the rows of one state of the store, what to do. It
	// writes nothing and may run several times.
	plan(ctx context.Context, s *state) (*plan, error)
}

// plan is what a change comes to: rows of the global store only, or steps
// through local stores.
type plan struct {
	kind    string // for operation log and history: "split mapping"
	summary string // the objects, for people
	reason  string // given by the caller
	m       shardway.ShardMap
	steps   []store.Step
	drain   store.Drain // zero: as the Catalog does

	addMap  *shardway.ShardMap
	dropMap shardway.MapID
	locks   []shardway.Mapping

	nothing bool // everything is as wanted already
	result  Result
}

// Result is what a change has left behind.
type Result struct {
	Operation store.OperationID  // by which the outcome can be looked up; 0 when nothing had to change
	Kind      string             // what was done: "split mapping"
	Summary   string             // with which objects, for people
	Map       shardway.ShardMap  // the map changed
	Shards    []shardway.Shard   // the shards written, as they are now
	Mappings  []shardway.Mapping // the mappings written, as they are now
	Drained   store.Drained      // sessions that used mappings which were taken away
}

// state gives plans the rows they look at.
type state struct {
	tx        store.Reader
	now       time.Time
	timed     bool // the plan depends on now
	normalize func(shardway.Location) (shardway.Location, error)

	of         shardway.MapID    // the map whose operations were read
	operations []store.Operation // nil: of none
}

// held reports whether a lock stands.
func (s *state) held(l shardway.Lock) bool {
	s.timed = s.timed || l.Token != "" && !l.Expires.IsZero()
	return l.Held(s.now)
}

// shardMap returns the current row of a map given by value.
func (s *state) shardMap(ctx context.Context, m shardway.ShardMap) (shardway.ShardMap, error) {
	return s.mapByID(ctx, m.ID, m.Name)
}

func (s *state) mapByID(ctx context.Context, id shardway.MapID, name string) (shardway.ShardMap, error) {
	maps, err := s.tx.ShardMaps(ctx)
	if err != nil {
		return shardway.ShardMap{}, err
	}
	for _, row := range maps {
		if row.ID == id {
			return row, nil
		}
	}
	return shardway.ShardMap{}, &shardway.LookupError{Map: name, Err: shardway.ErrMapNotFound}
}

// shard returns the row of a shard that takes part in a change of mappings.
func (s *state) shard(ctx context.Context, m shardway.ShardMap, id shardway.ShardID) (store.ShardRow, error) {
	rows, err := s.tx.Shards(ctx, m.ID)
	if err != nil {
		return store.ShardRow{}, err
	}
	return findShard(m, rows, id)
}

func findShard(m shardway.ShardMap, rows []store.ShardRow, id shardway.ShardID) (store.ShardRow, error) {
	for _, row := range rows {
		if row.ID != id {
			continue
		}
		if row.Operation != 0 {
			return row, &PendingError{Operation: row.Operation, Object: fmt.Sprintf("shard %q", row.Name)}
		}
		return row, nil
	}
	return store.ShardRow{}, &shardway.LookupError{Map: m.Name, Shard: fmt.Sprint(id), Err: shardway.ErrShardNotFound}
}

// mapping returns the row of a mapping given by value, checked for being
// current, not in another operation's hands, and not locked for others.
func (s *state) mapping(ctx context.Context, m shardway.ShardMap, given shardway.Mapping, token shardway.LockToken) (shardway.Mapping, error) {
	row, err := s.unlockedOrNot(ctx, m, given)
	if err != nil {
		return row, err
	}
	if row.Lock.Token != token && s.held(row.Lock) {
		return row, fmt.Errorf("changing mapping %s of shard map %q: %s: %w",
			row.Format(m.Kind), m.Name, lockedBy(row.Lock), shardway.ErrMappingLocked)
	}
	return row, nil
}

func (s *state) unlockedOrNot(ctx context.Context, m shardway.ShardMap, given shardway.Mapping) (shardway.Mapping, error) {
	if given.ID == 0 {
		return given, &shardway.ArgumentError{Argument: "mapping", Reason: "is missing"}
	}
	rows, err := collect(s.tx.Mappings(ctx, store.MappingQuery{Map: m, IDs: []shardway.MappingID{given.ID}}))
	if err != nil {
		return given, err
	}
	if len(rows) == 0 || rows[0].Pending {
		return given, fmt.Errorf("mapping %s (%s) of shard map %q: %w", given.Format(m.Kind), given.ID, m.Name, shardway.ErrStale)
	}
	if rows[0].Operation != 0 {
		return given, &PendingError{Operation: rows[0].Operation, Object: "mapping " + given.Format(m.Kind)}
	}
	return rows[0].Mapping, nil
}

// checkKey reports whether a key can be a key of the map.
func checkKey(m shardway.ShardMap, argument string, key shardway.Key) error {
	if key.IsZero() {
		return shardway.ErrKeyRequired
	}
	if key.Kind() != m.KeyKind {
		return fmt.Errorf("%s %q is a %s key, shard map %q has %s keys: %w",
			argument, key, key.Kind(), m.Name, m.KeyKind, shardway.ErrWrongType)
	}
	return nil
}

// checkRange reports whether a range can be what a mapping of the map covers.
func checkRange(m shardway.ShardMap, r shardway.Range) error {
	if err := checkKey(m, "low key", r.Low); err != nil {
		return err
	}
	if m.Kind == shardway.ListMap {
		if !r.Open() {
			return fmt.Errorf("mapping %s in list shard map %q: a point has no high end: %w", r, m.Name, shardway.ErrWrongType)
		}
		return nil
	}
	return r.Validate()
}

// checkKind reports whether the map is of the kind that a change needs.
func checkKind(m shardway.ShardMap, want shardway.MapKind, doing string) error {
	if m.Kind != want {
		return fmt.Errorf("%s: shard map %q is a %s map, not a %s map: %w", doing, m.Name, m.Kind, want, shardway.ErrWrongType)
	}
	return nil
}

// PendingError is a row in the hands of another operation. It matches
// [shardway.ErrPending].
type PendingError struct {
	Operation store.OperationID
	Object    string // the row, for people
	Owner     string // who runs the operation; empty when not known
	Age       time.Duration
	Err       error // why it could not be finished; nil when its owner is still at work
}

// Error names the object, the operation and what keeps it.
func (e *PendingError) Error() string {
	text := fmt.Sprintf("%s is being changed by operation %s", e.Object, e.Operation)
	if e.Owner != "" {
		text += fmt.Sprintf(" of %s, started %s ago", e.Owner, e.Age.Round(time.Millisecond))
	}
	if e.Err != nil {
		text += fmt.Sprintf(", which could not be finished: %v", e.Err)
	}
	return text
}

// Is reports whether target is [shardway.ErrPending].
func (e *PendingError) Is(target error) bool { return target == shardway.ErrPending }

// Unwrap returns why the operation could not be finished.
func (e *PendingError) Unwrap() error { return e.Err }

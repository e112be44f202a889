package memstore

import (
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// apply writes a Delta into s. After an error s is worthless.
func (s *state) apply(d *store.Delta) error {
	if d.AddMap != nil {
		if err := s.addMap(*d.AddMap); err != nil {
			return err
		}
	}
	if d.DropMap != 0 {
		if err := s.dropMap(d.DropMap); err != nil {
			return err
		}
	}
	if d.Prepare != nil {
		if err := s.prepare(d.Prepare); err != nil {
			return fmt.Errorf("preparing operation %s: %w", d.Prepare.ID, err)
		}
	}
	var published int64 // the generation that Publish gave the map
	if d.Publish != nil {
		generation, err := s.publish(d.Publish)
		if err != nil {
			return fmt.Errorf("publishing operation %s: %w", d.Publish.ID, err)
		}
		published = generation
	}
	if d.Abort != nil {
		if err := s.abort(d.Abort); err != nil {
			return fmt.Errorf("aborting operation %s: %w", d.Abort.ID, err)
		}
	}
	if d.Lease != nil {
		if err := s.lease(d.Lease); err != nil {
			return fmt.Errorf("leasing operation %s: %w", d.Lease.ID, err)
		}
	}
	for _, m := range d.Lock {
		row, ok := s.mappings[m.ID]
		if !ok {
			return fmt.Errorf("locking mapping %s: %w", m.ID, shardway.ErrStale)
		}
		row.Lock = m.Lock
		s.mappings[m.ID] = row
	}
	for _, e := range d.History {
		e = copyEntry(e)
		if d.Publish != nil && e.Operation == d.Publish.ID {
			e.Generation = published
		}
		s.history = append(s.history, e)
	}
	return nil
}

func (s *state) addMap(m shardway.ShardMap) error {
	for _, other := range s.maps {
		if other.ID == m.ID || other.Name == m.Name {
			return fmt.Errorf("adding shard map %q: %w", m.Name, shardway.ErrExists)
		}
	}
	m.Generation = 1
	s.maps[m.ID] = m
	return nil
}

func (s *state) dropMap(id shardway.MapID) error {
	m, ok := s.maps[id]
	if !ok {
		return fmt.Errorf("dropping shard map %d: %w", id, shardway.ErrMapNotFound)
	}
	for _, shard := range s.shards {
		if shard.MapID == id {
			return fmt.Errorf("dropping shard map %q: %w", m.Name, shardway.ErrInUse)
		}
	}
	delete(s.maps, id)
	return nil
}

func (s *state) prepare(given *store.Operation) error {
	if _, ok := s.maps[given.Map.ID]; !ok {
		return shardway.ErrMapNotFound
	}
	if _, ok := s.operations[given.ID]; ok {
		return shardway.ErrExists
	}
	s.seq = max(s.seq, given.Seq) + 1
	given.Seq, given.Horizon = s.seq, s.horizon(s.seq)
	o := copyOperation(*given)
	o.Horizon = 0
	for _, step := range o.GlobalSteps() {
		if err := s.mark(&o, &step); err != nil {
			return err
		}
	}
	for _, step := range o.GlobalSteps() {
		if err := s.insertPending(&o, &step); err != nil {
			return err
		}
	}
	s.operations[o.ID] = o
	return nil
}

// mark puts the operation's mark on every row that the step removes or changes.
func (s *state) mark(o *store.Operation, step *store.Step) error {
	if before := step.Before; before != nil {
		row, ok := s.shards[before.ID]
		if !ok || row.MapID != o.Map.ID || row.Version != before.Version || row.Operation != 0 {
			return fmt.Errorf("marking shard %q: %w", before.Name, shardway.ErrStale)
		}
		row.Operation = o.ID
		s.shards[before.ID] = row
	}
	for _, m := range step.Remove {
		row, ok := s.mappings[m.ID]
		if !ok || row.MapID != o.Map.ID || row.Operation != 0 {
			return fmt.Errorf("marking mapping %s: %w", m.ID, shardway.ErrStale)
		}
		row.Operation = o.ID
		s.mappings[m.ID] = row
	}
	return nil
}

func (s *state) insertPending(o *store.Operation, step *store.Step) error {
	if after := step.After; after != nil && (step.Before == nil || step.Before.ID != after.ID) {
		if _, ok := s.shards[after.ID]; ok {
			return fmt.Errorf("adding shard %q: %w", after.Name, shardway.ErrExists)
		}
		s.shards[after.ID] = store.ShardRow{Shard: *after, Operation: o.ID, Pending: true}
	}
	for _, m := range step.Add {
		if _, ok := s.mappings[m.ID]; ok {
			return fmt.Errorf("adding mapping %s: %w", m.ID, shardway.ErrExists)
		}
		s.mappings[m.ID] = store.MappingRow{Mapping: m, Operation: o.ID, Pending: true}
	}
	return nil
}

// pending returns the stored form of an operation whose executor may go on.
func (s *state) pending(given *store.Operation) (store.Operation, error) {
	o, ok := s.operations[given.ID]
	if !ok || given.Epoch < o.Epoch {
		return store.Operation{}, store.ErrLostLease
	}
	return o, nil
}

func (s *state) publish(given *store.Operation) (generation int64, err error) {
	o, err := s.pending(given)
	if err != nil {
		return 0, err
	}
	m, ok := s.maps[o.Map.ID]
	if !ok {
		return 0, shardway.ErrMapNotFound
	}
	for id, row := range s.mappings {
		switch {
		case row.Operation != o.ID:
		case row.Pending:
			s.mappings[id] = store.MappingRow{Mapping: row.Mapping}
		default:
			delete(s.mappings, id)
		}
	}
	for _, step := range o.GlobalSteps() {
		if step.Before != nil {
			delete(s.shards, step.Before.ID)
		}
		if step.After != nil {
			s.shards[step.After.ID] = store.ShardRow{Shard: *step.After}
		}
	}
	delete(s.operations, o.ID)
	m.Generation++
	s.maps[m.ID] = m
	return m.Generation, nil
}

func (s *state) abort(given *store.Operation) error {
	o, err := s.pending(given)
	if err != nil {
		return err
	}
	for id, row := range s.mappings {
		switch {
		case row.Operation != o.ID:
		case row.Pending:
			delete(s.mappings, id)
		default:
			s.mappings[id] = store.MappingRow{Mapping: row.Mapping}
		}
	}
	for id, row := range s.shards {
		switch {
		case row.Operation != o.ID:
		case row.Pending:
			delete(s.shards, id)
		default:
			s.shards[id] = store.ShardRow{Shard: row.Shard}
		}
	}
	delete(s.operations, o.ID)
	return nil
}

func (s *state) lease(given *store.Operation) error {
	o, err := s.pending(given)
	if err != nil {
		return err
	}
	o.Epoch, o.Owner, o.LeaseUntil = given.Epoch, given.Owner, given.LeaseUntil
	s.operations[o.ID] = o
	given.Horizon = s.horizon(o.Seq)
	return nil
}

// horizon returns the lowest Seq of the pending operations, at most seq.
func (s *state) horizon(seq int64) int64 {
	for _, o := range s.operations {
		seq = min(seq, o.Seq)
	}
	return seq
}

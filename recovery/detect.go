package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Detect compares the global map with the local maps of its shards, or of
// those with the given ids, and changes nothing. Reports come in the order of
// the shards' names. Each side is read as one consistent state, again when the
// map changes in between. A shard that cannot be read has a report that says
// so and does not stop the others.
func (r *Recovery) Detect(ctx context.Context, m shardway.ShardMap, ids ...shardway.ShardID) ([]Report, error) {
	shards, err := r.shards(ctx, m, ids)
	if err != nil {
		return nil, err
	}
	reports, errs := make([]*Report, len(shards)), make([]error, len(shards))
	err = r.each(ctx, "comparing", len(shards), func(i int) {
		s, err := r.look(ctx, shards[i])
		if err == nil {
			report := s.Report // without what it was made from
			reports[i] = &report
		} else if !errors.Is(err, shardway.ErrShardNotFound) { // it left the map a moment ago
			errs[i] = err
		}
	})
	var all []Report
	for _, report := range reports {
		if report != nil {
			all = append(all, *report)
		}
	}
	return all, errors.Join(errors.Join(errs...), err)
}

// sight is one shard as both sides have it at one moment.
type sight struct {
	Report

	found  found
	shards []store.ShardRow     // of the map
	basis  []shardway.MappingID // of the shard's mappings in the global map, pending ones included
	sides  comparison           // visible mappings alone
}

// looks is how often a shard is read in the hope that nothing changes meanwhile.
const looks = 4

// look compares both sides of a shard.
func (r *Recovery) look(ctx context.Context, shard shardway.Shard) (*sight, error) {
	globalID, err := r.globalID(ctx)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		before, err := r.moment(ctx, shard.MapID)
		if err != nil {
			return nil, err
		}
		row := before.shard(shard.ID)
		if row == nil {
			return nil, &shardway.LookupError{Map: before.m.Name, Shard: shard.Name, Err: shardway.ErrShardNotFound}
		}
		f := r.read(ctx, row.Location, shard.MapID, globalID)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, after, err := r.meet(ctx, row.Shard, f)
		if err != nil {
			return nil, err
		}
		if still := before.same(after); still || try == looks {
			s.Changing = !still
			s.judge()
			return s, nil
		}
		if err := pause(ctx, time.Duration(try)*20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// moment is what tells whether a map has changed.
type moment struct {
	m      shardway.ShardMap
	shards []store.ShardRow
	last   store.Entry // of the history: whatever ends is noted there
}

func (r *Recovery) moment(ctx context.Context, m shardway.MapID) (*moment, error) {
	var at *moment
	err := r.view(ctx, func(tx store.Reader) (err error) {
		at, err = momentOf(ctx, tx, m)
		return err
	})
	return at, err
}

func momentOf(ctx context.Context, tx store.Reader, id shardway.MapID) (*moment, error) {
	maps, err := tx.ShardMaps(ctx)
	if err != nil {
		return nil, err
	}
	at := &moment{}
	for _, m := range maps {
		if m.ID == id {
			at.m = m
		}
	}
	if at.m.ID == 0 {
		return nil, &shardway.LookupError{Map: fmt.Sprint(int64(id)), Err: shardway.ErrMapNotFound}
	}
	for entry, err := range tx.History(ctx, store.HistoryQuery{Map: id, Limit: 1}) {
		if err != nil {
			return nil, err
		}
		at.last = entry
	}
	at.shards, err = tx.Shards(ctx, id)
	return at, err
}

func (at *moment) shard(id shardway.ShardID) *store.ShardRow {
	for i, row := range at.shards {
		if row.ID == id && !row.Pending {
			return &at.shards[i]
		}
	}
	return nil
}

// same reports whether nothing has ended between two moments. What is under way
// at the second one is known there as pending.
func (at *moment) same(other *moment) bool {
	return at.m.Generation == other.m.Generation && at.last.Operation == other.last.Operation && at.last.Outcome == other.last.Outcome
}

// meet reads the global side of a shard whose local side has been read.
func (r *Recovery) meet(ctx context.Context, shard shardway.Shard, f found) (s *sight, after *moment, err error) {
	err = r.view(ctx, func(tx store.Reader) error {
		if after, err = momentOf(ctx, tx, shard.MapID); err != nil {
			return err
		}
		row := after.shard(shard.ID)
		if row == nil {
			return &shardway.LookupError{Map: after.m.Name, Shard: shard.Name, Err: shardway.ErrShardNotFound}
		}
		ops, err := tx.Operations(ctx, store.OperationQuery{Map: shard.MapID})
		if err != nil {
			return err
		}
		s = &sight{
			Report: Report{Map: after.m, Shard: row.Shard, State: f.state, StoreID: f.storeID, Operation: row.Operation},
			found:  f, shards: after.shards,
			sides: comparison{kind: after.m.Kind, shard: row.ID, pending: spans(ops), names: map[shardway.ShardID]string{}},
		}
		s.Map.Generation = 0
		for _, row := range after.shards {
			s.sides.names[row.ID] = row.Name
		}
		if f.local != nil {
			local := f.local.Shard
			s.Local, s.sides.local = &local, f.local.Mappings
		}
		return s.readGlobal(ctx, tx)
	})
	return s, after, err
}

// readGlobal reads the mappings of the shard, and those of others that could
// share a key with a local mapping that has no equal.
func (s *sight) readGlobal(ctx context.Context, tx store.Reader) error {
	for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: s.Map, ShardID: s.Shard.ID}) {
		if err != nil {
			return err
		}
		s.basis = append(s.basis, row.ID)
		if !row.Pending {
			s.sides.global = append(s.sides.global, row.Mapping)
		}
	}
	_, odd := s.sides.odd()
	if len(odd) == 0 {
		return nil
	}
	ranges := union(s.Map.Kind, rangesOf(odd))
	last := ranges[len(ranges)-1]
	query := store.MappingQuery{Map: s.Map, Within: shardway.Range{Low: ranges[0].Low, High: last.High}}
	var others []shardway.Mapping
	for row, err := range tx.Mappings(ctx, query) {
		if err != nil {
			return err
		}
		if precedes(s.Map.Kind, last, row.Range) {
			break
		}
		if !row.Pending && row.ShardID != s.Shard.ID {
			others = append(others, row.Mapping)
		}
	}
	s.sides.global = append(s.sides.global, meeting(s.Map.Kind, others, ranges)...)
	slices.SortFunc(s.sides.global, byLow)
	return s.readTaken(ctx, tx, odd)
}

// readTaken notes the ids of local mappings that the global map uses for
// mappings elsewhere.
func (s *sight) readTaken(ctx context.Context, tx store.Reader, odd []shardway.Mapping) error {
	known := byID(s.sides.global)
	var ids []shardway.MappingID
	for _, m := range odd {
		if _, ok := known[m.ID]; !ok {
			ids = append(ids, m.ID)
		}
	}
	s.sides.taken = map[shardway.MappingID]bool{}
	if len(ids) == 0 {
		return nil
	}
	for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: s.Map, IDs: ids}) {
		if err != nil {
			return err
		}
		s.sides.taken[row.ID] = true
	}
	return nil
}

// judge completes the report.
func (s *sight) judge() {
	if s.found.err != nil {
		s.Problem = s.found.err.Error()
		return
	}
	s.Differences, s.Pending = s.sides.compare()
	if s.Local != nil && s.Operation == 0 {
		s.Fields = fields(s.Shard, *s.Local)
	}
	switch {
	case s.State != Equal:
	case s.Local.ID != s.Shard.ID:
		s.State = OtherShard
	case len(s.Differences)+len(s.Fields) > 0:
		s.State = Differs
	}
}

// fields lists in what two rows of one shard differ.
func fields(global, local shardway.Shard) []Field {
	var all []Field
	note := func(name, g, l string) {
		if g != l {
			all = append(all, Field{Name: name, Global: g, Local: l})
		}
	}
	note("id", hexID(int64(global.ID)), hexID(int64(local.ID)))
	note("name", global.Name, local.Name)
	note("location", locationText(global.Location), locationText(local.Location))
	note("status", global.Status.String(), local.Status.String())
	note("version", hexID(global.Version), hexID(local.Version))
	return all
}

// locationText is a location with tags, in one order.
func locationText(l shardway.Location) string {
	var b strings.Builder
	b.WriteString(l.String())
	for _, server := range l.Servers {
		names := make([]string, 0, len(server.Tags))
		for name := range server.Tags {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, " %s,%s=%s", server.Address, name, server.Tags[name])
		}
	}
	return b.String()
}

// knownElsewhere returns the shard of the map whose local map was found where
// that of another one should be, or nil.
func (s *sight) knownElsewhere() *store.ShardRow {
	for i, row := range s.shards {
		if s.Local != nil && row.ID == s.Local.ID && row.ID != s.Shard.ID {
			return &s.shards[i]
		}
	}
	return nil
}

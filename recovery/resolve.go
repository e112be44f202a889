package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// Resolution says what to do with the differences of a report. The zero value
// does nothing.
type Resolution struct {
	Report  Report   // as shown to who decides; [shardway.ErrStale] when it no longer holds
	Keep    Keep     // for all that no choice speaks of
	Choices []Choice // for parts; they must not overlap, and each must meet a difference
	// Takeover says that the database belongs to this shard, although its local
	// store belongs to another global store, or its local map to another shard
	// that the global map does not have any more.
	Takeover bool
	// Force changes mappings of the global map that are locked by others.
	Force bool
	// IgnoreUnreachable lets the shard get keys although other shards of the
	// map cannot be asked whether they have them.
	IgnoreUnreachable bool
	Reason            string // for the history; may be empty

	kind string                            // for the history
	part func(Difference) []shardway.Range // of a difference to resolve, in key order; nil: all of it
}

// Choice is the side that is kept for a part of the keys. In a list map Range
// is [shardway.RangeFrom](point).
type Choice struct {
	Range shardway.Range
	Keep  Keep
}

// Effect is what a resolution does, or has done. The zero value is nothing.
type Effect struct {
	GlobalRemoved, GlobalAdded []shardway.Mapping
	LocalRemoved, LocalAdded   []shardway.Mapping
	Row                        bool   // the shard's row in the local map becomes that of the global map
	Deployed                   bool   // the local store is created
	Adopted                    string // global store that the local store belonged to; empty when that does not change
	Result                     catalog.Result
}

// Nothing reports whether no map changes.
func (e Effect) Nothing() bool {
	return len(e.GlobalRemoved)+len(e.GlobalAdded)+len(e.LocalRemoved)+len(e.LocalAdded) == 0 && !e.Row && !e.Deployed && e.Adopted == ""
}

// Preview returns what a resolution would do, or why it would be refused, and
// changes nothing. New mappings will have other ids.
func (r *Recovery) Preview(ctx context.Context, res Resolution) (Effect, error) {
	return r.resolve(ctx, res, true)
}

// Resolve makes both sides of a shard say the same, as the resolution decides.
// Where the global side is kept, only the local map changes, and the other way
// round; where a mapping is kept in part, both get its parts under new ids.
//
// A report that no longer holds is [shardway.ErrStale], a key that would get
// two owners an [OwnersError]; both leave everything as it is. An operation
// that was interrupted is finished or taken back by whoever comes next, and a
// second resolution of what is resolved is stale and changes nothing.
func (r *Recovery) Resolve(ctx context.Context, res Resolution) (Effect, error) {
	return r.resolve(ctx, res, false)
}

func (r *Recovery) resolve(ctx context.Context, res Resolution, dry bool) (Effect, error) {
	if err := res.check(); err != nil {
		return Effect{}, err
	}
	wrap := func(err error) error {
		return fmt.Errorf("resolving differences of shard %q of shard map %q: %w", res.Report.Shard.Name, res.Report.Map.Name, err)
	}
	s, err := r.look(ctx, res.Report.Shard)
	if err != nil {
		return Effect{}, wrap(err)
	}
	if !s.Same(res.Report) {
		return Effect{}, wrap(fmt.Errorf("they are not as they were when they were compared: %w", shardway.ErrStale))
	}
	e, err := r.apply(ctx, s, res, nil, dry)
	if err != nil {
		return e, wrap(err)
	}
	return e, nil
}

// check refuses what is wrong whatever the stores say.
func (res *Resolution) check() error {
	if res.Report.Shard.ID == 0 || res.Report.Map.ID == 0 {
		return &shardway.ArgumentError{Argument: "report", Reason: "is missing"}
	}
	if res.Keep > KeepLocal {
		return &shardway.ArgumentError{Argument: "side to keep", Value: fmt.Sprint(uint8(res.Keep)), Reason: "is neither ignore, global nor local"}
	}
	m := res.Report.Map
	sorted := slices.SortedFunc(slices.Values(res.Choices), func(a, b Choice) int { return a.Range.Low.Compare(b.Range.Low) })
	for i, ch := range sorted {
		text := ch.Range.String()
		if m.Kind == shardway.ListMap {
			text = ch.Range.Low.String()
		}
		refuse := func(reason string) error {
			return &shardway.ArgumentError{Argument: "choice", Value: text, Reason: reason}
		}
		switch {
		case ch.Keep > KeepLocal:
			return refuse("keeps neither ignore, global nor local")
		case ch.Range.Low.Kind() != m.KeyKind:
			return refuse(fmt.Sprintf("has no %s key, as shard map %q has", m.KeyKind, m.Name))
		case m.Kind == shardway.ListMap && !ch.Range.Open():
			return refuse("is a range, the mappings of a list map are points")
		case m.Kind == shardway.RangeMap && ch.Range.Validate() != nil:
			return ch.Range.Validate()
		case i > 0 && intersects(m.Kind, sorted[i-1].Range, ch.Range):
			return refuse("shares keys with another choice")
		case !slices.ContainsFunc(res.Report.Differences, func(d Difference) bool { return intersects(m.Kind, d.Range, ch.Range) }):
			return refuse("meets no difference of the report")
		}
	}
	return nil
}

// decisions cuts the differences by the choices.
func (res *Resolution) decisions(kind shardway.MapKind, differences []Difference) []decision {
	var ranges []shardway.Range
	var pieces, choices []shardway.Mapping
	for _, d := range differences {
		parts := []shardway.Range{d.Range}
		if res.part != nil {
			parts = res.part(d)
		}
		ranges = append(ranges, parts...)
		for _, part := range parts {
			pieces = append(pieces, shardway.Mapping{Range: part})
		}
	}
	for i, ch := range res.Choices {
		ranges = append(ranges, ch.Range)
		choices = append(choices, shardway.Mapping{ID: shardway.MappingID(i), Range: ch.Range})
	}
	slices.SortFunc(choices, byLow)
	inPieces, inChoices := cover{kind: kind, rows: pieces}, cover{kind: kind, rows: choices}
	var all []decision
	for _, piece := range cut(kind, ranges) {
		chosen := inChoices.at(piece)
		if len(inPieces.at(piece)) == 0 {
			continue
		}
		keep := res.Keep
		if len(chosen) > 0 {
			keep = res.Choices[chosen[0].ID].Keep
		}
		if keep != Ignore {
			all = append(all, decision{piece, keep})
		}
	}
	return all
}

// allow refuses what the state of the shard does not allow.
func (s *sight) allow(res *Resolution, decisions []decision) error {
	local := slices.ContainsFunc(decisions, func(d decision) bool { return d.keep == KeepLocal })
	switch s.State {
	case Equal, Differs, OtherShard: // whose shard is looked at below
	case Unreachable, Unsupported:
		return s.found.err
	case NoStore, NoMap:
		if local || res.Keep == KeepLocal {
			return fmt.Errorf("it has no local map to keep: %w", shardway.ErrNoStore)
		}
	case Foreign:
		if !res.Takeover {
			return fmt.Errorf("its local store belongs to global store %s; taking it over has to be asked for: %w", s.StoreID, shardway.ErrForeignStore)
		}
	}
	if s.Operation != 0 {
		return &catalog.PendingError{Operation: s.Operation, Object: fmt.Sprintf("shard %q", s.Shard.Name)}
	}
	if s.Local == nil || s.Local.ID == s.Shard.ID {
		return nil
	}
	switch known := s.knownElsewhere(); {
	case known != nil:
		return fmt.Errorf("the database at %s is that of shard %q, which the map has at %s: %w", s.Shard.Location, known.Name, known.Location, shardway.ErrExists)
	case local:
		return fmt.Errorf("its local map is that of shard %q (%s), which cannot be kept: %w", s.Local.Name, hexID(int64(s.Local.ID)), store.ErrMapsDiffer)
	case !res.Takeover:
		return fmt.Errorf("its local map is that of shard %q (%s); taking it over has to be asked for: %w", s.Local.Name, hexID(int64(s.Local.ID)), store.ErrMapsDiffer)
	}
	return nil
}

// apply resolves the differences of a shard that has just been compared. Others
// are the claims of the other shards, nil when they have not been read.
func (r *Recovery) apply(ctx context.Context, s *sight, res Resolution, others *claims, dry bool) (Effect, error) {
	decisions := res.decisions(s.Map.Kind, s.Differences)
	if len(decisions) == 0 && res.Keep == Ignore || s.Clean() {
		return Effect{}, nil
	}
	if err := s.allow(&res, decisions); err != nil {
		return Effect{}, err
	}
	w := s.sides.settle(s.Map.ID, decisions)
	if len(w.owned) > 0 {
		if others == nil {
			var err error
			if others, err = r.claimsOf(ctx, s.Map, s.Shard.ID, res.IgnoreUnreachable); err != nil {
				return Effect{}, err
			}
		}
		if err := others.check(s.Map, s.Shard, w.owned); err != nil {
			return Effect{}, err
		}
	}
	e := Effect{
		GlobalRemoved: w.removeGlobal, GlobalAdded: w.addGlobal, LocalRemoved: w.removeLocal, LocalAdded: w.addLocal,
		Row: s.Local == nil || len(s.Fields) > 0, Deployed: s.State == NoStore,
	}
	ch := catalog.Reconcile{
		Map: s.Map, Remove: w.removeGlobal, Add: w.addGlobal, Force: res.Force, Kind: res.kind, Reason: res.Reason,
		Parts: []catalog.Part{{Shard: s.Shard, Found: s.Local, Remove: w.removeLocal, Add: w.addLocal}},
		Basis: []catalog.Basis{{ShardID: s.Shard.ID, IDs: s.basis}},
		Summary: fmt.Sprintf("shard %q: %d pieces, global map -%d +%d mappings, local map -%d +%d", s.Shard.Name, len(decisions),
			len(w.removeGlobal), len(w.addGlobal), len(w.removeLocal), len(w.addLocal)),
	}
	return r.carryOut(ctx, s, ch, e, dry)
}

func (r *Recovery) carryOut(ctx context.Context, s *sight, ch catalog.Reconcile, e Effect, dry bool) (_ Effect, err error) {
	if s.State == Foreign {
		e.Adopted = s.StoreID
		// All but the owner of the store is checked before that changes.
		e.Result, err = r.catalog.Preview(ctx, ch)
		if errors.Is(err, shardway.ErrForeignStore) {
			err = nil
		}
		if dry || err != nil {
			return e, err
		}
		if err := r.catalog.Adopt(ctx, s.Shard.Location, s.StoreID); err != nil {
			return Effect{}, err
		}
	}
	if dry {
		e.Result, err = r.catalog.Preview(ctx, ch)
		return e, err
	}
	e.Result, err = r.do(ctx, ch)
	if errors.Is(err, store.ErrMapsDiffer) {
		err = fmt.Errorf("its local map has changed meanwhile: %w: %w", shardway.ErrStale, err)
	}
	if err != nil {
		return Effect{Adopted: e.Adopted, Result: e.Result}, err
	}
	return e, nil
}

// do makes a change, one at a time: each change of a map looks at all that are
// under way, and those of recovery are long.
func (r *Recovery) do(ctx context.Context, ch catalog.Change) (catalog.Result, error) {
	done, err := r.take(ctx)
	if err != nil {
		return catalog.Result{}, err
	}
	defer done()
	return r.catalog.Do(ctx, ch)
}

// take waits until no change of this rebuild is under way; done lets the next begin.
func (r *Recovery) take(ctx context.Context) (done func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

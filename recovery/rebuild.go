package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

// Rebuild says how to rebuild maps. The zero value works.
type Rebuild struct {
	Shards []shardway.ShardID // empty: all shards of the map
	// Takeover, Force and IgnoreUnreachable are those of [Resolution], for all
	// shards.
	Takeover, Force, IgnoreUnreachable bool
	DryRun                             bool   // change nothing
	Reason                             string // for the history; may be empty
}

// Rebuilt is what a rebuild came to at one shard.
type Rebuilt struct {
	Shard     shardway.Shard
	Effect    Effect
	Conflicts []Conflict // pieces left as they are, because another shard has them too
	Err       error      // why the shard was not rebuilt, or not whole
}

// Conflict is a piece that the local maps of two shards claim.
type Conflict struct {
	Range shardway.Range // in a list map a point
	Other string         // the other shard
}

// maxConflicts bounds how many conflicts an error names.
const maxConflicts = 20

// conflict returns an error that names the conflicts.
func (b *Rebuilt) conflict(m shardway.ShardMap) error {
	if len(b.Conflicts) == 0 {
		return nil
	}
	var errs []error
	for _, c := range b.Conflicts[:min(len(b.Conflicts), maxConflicts)] {
		errs = append(errs, &OwnersError{Map: m.Name, Range: c.Range, Point: m.Kind == shardway.ListMap, Shard: b.Shard.Name, Other: c.Other})
	}
	if more := len(b.Conflicts) - maxConflicts; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more pieces", more))
	}
	return errors.Join(errs...)
}

// RebuildLocal makes the local maps of shards what the global map says, also
// in databases that are empty or were restored. What a local map has and
// should not goes first, at all shards; then they get what they miss. Results
// come in the order of the shards' names. A shard that cannot be rebuilt does
// not stop the others.
func (r *Recovery) RebuildLocal(ctx context.Context, m shardway.ShardMap, b Rebuild) ([]Rebuilt, error) {
	shards, err := r.shards(ctx, m, b.Shards)
	if err != nil {
		return nil, err
	}
	all := make([]Rebuilt, len(shards))
	res := b.resolution(KeepGlobal, "rebuild local map")
	rest := make([]found, len(shards)) // what the local maps claim afterwards
	err = r.each(ctx, "taking away", len(shards), func(i int) {
		all[i].Shard = shards[i]
		rest[i], all[i].Effect, all[i].Err = r.takeAway(ctx, shards[i], res, b.DryRun)
	})
	if err != nil {
		return all, err
	}
	others, err := r.rest(ctx, m, shards, rest, b.IgnoreUnreachable)
	if err != nil {
		return all, err
	}
	err = r.each(ctx, "rebuilding", len(shards), func(i int) {
		if all[i].Err == nil {
			r.rebuild(ctx, &all[i], res, others, b.DryRun)
		}
	})
	return all, err
}

func (b *Rebuild) resolution(keep Keep, kind string) Resolution {
	return Resolution{Keep: keep, Takeover: b.Takeover, Force: b.Force, IgnoreUnreachable: b.IgnoreUnreachable, Reason: b.Reason, kind: kind}
}

// tries is how often a shard is worked on whose map changes meanwhile.
const tries = 3

// lookIdle compares both sides of a shard while no change of this rebuild at
// another shard is under way: its keys could be seen by neither. What is
// pending then is in the hands of others.
func (r *Recovery) lookIdle(ctx context.Context, shard shardway.Shard) (*sight, error) {
	s, err := r.look(ctx, shard)
	if err != nil || len(s.Pending) == 0 {
		return s, err
	}
	done, err := r.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return r.look(ctx, shard)
}

// takeAway removes from a local map what the global one does not give to the
// shard, and returns what it claims afterwards.
func (r *Recovery) takeAway(ctx context.Context, shard shardway.Shard, res Resolution, dry bool) (rest found, e Effect, err error) {
	res.part = func(d Difference) []shardway.Range {
		if d.Local == (Claim{}) || d.Global.ShardID == shard.ID {
			return nil
		}
		return []shardway.Range{d.Range}
	}
	for try := 1; ; try++ {
		s, err := r.lookIdle(ctx, shard)
		if err != nil {
			return found{err: err}, Effect{}, err
		}
		decisions := res.decisions(s.Map.Kind, s.Differences)
		if len(decisions) == 0 || s.found.err != nil || s.State == OtherShard {
			return s.found, Effect{}, s.found.err
		}
		e, err := r.apply(ctx, s, res, nil, dry)
		if errors.Is(err, shardway.ErrStale) && try < tries {
			continue
		}
		if err == nil {
			local := *s.found.local
			gone := byID(e.LocalRemoved)
			local.Mappings = slices.DeleteFunc(slices.Clone(local.Mappings), func(mp shardway.Mapping) bool {
				_, leaves := gone[mp.ID]
				return leaves
			})
			local.Mappings = append(local.Mappings, e.LocalAdded...)
			s.found.local = &local
		}
		return s.found, e, err
	}
}

// rest collects the claims of the given shards, as found, and of all others of
// the map.
func (r *Recovery) rest(ctx context.Context, m shardway.ShardMap, shards []shardway.Shard, rest []found, forgive bool) (*claims, error) {
	others := &claims{kind: m.Kind, names: map[shardway.ShardID]string{}}
	known := map[shardway.ShardID]bool{}
	for i, s := range shards {
		known[s.ID] = true
		others.add(s, rest[i], forgive)
		rest[i] = found{}
	}
	all, err := r.shards(ctx, m, nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s shardway.Shard) bool { return known[s.ID] })
	globalID, err := r.globalID(ctx)
	if err != nil {
		return nil, err
	}
	more := make([]found, len(all))
	err = r.each(ctx, "asking for owners", len(all), func(i int) { more[i] = r.read(ctx, all[i].Location, m.ID, globalID) })
	for i, s := range all {
		others.add(s, more[i], forgive)
	}
	others.order()
	return others, err
}

// rebuild resolves all differences of one shard but those that another shard
// claims as well.
func (r *Recovery) rebuild(ctx context.Context, b *Rebuilt, res Resolution, others *claims, dry bool) {
	for try := 1; ; try++ {
		s, err := r.lookIdle(ctx, b.Shard)
		if err != nil {
			b.Err = err
			return
		}
		b.Shard = s.Shard
		b.Conflicts = nil
		res.part = func(d Difference) []shardway.Range {
			if res.Keep == KeepGlobal && d.Global.ShardID != s.Shard.ID || res.Keep == KeepLocal && d.Local == (Claim{}) {
				return []shardway.Range{d.Range} // the shard does not get it
			}
			free, taken := others.free(s.Shard.ID, d.Range)
			b.Conflicts = append(b.Conflicts, taken...)
			if res.Keep == KeepGlobal && len(taken) > 0 {
				return nil // a part of it would cut the mapping of the global map
			}
			return free
		}
		if s.State == Unreachable || s.State == Unsupported {
			b.Err = s.found.err
			return
		}
		e, err := r.apply(ctx, s, res, others, dry)
		// An id exists when two local maps use it for different things, and the
		// other shard was quicker.
		if try < tries && (errors.Is(err, shardway.ErrStale) || errors.Is(err, shardway.ErrExists)) {
			continue
		}
		e.Result.Mappings = nil // the effect has them
		b.Effect = b.Effect.and(e)
		if len(b.Conflicts) == 0 && err != nil {
			b.Err = fmt.Errorf("rebuilding shard %q of shard map %q: %w", s.Shard.Name, s.Map.Name, err)
		} else {
			b.Err = errors.Join(err, b.conflict(s.Map))
		}
		if len(s.Pending) > 0 && !errors.Is(err, shardway.ErrPending) {
			b.Err = errors.Join(b.Err, &catalog.PendingError{Operation: s.Pending[0].Operation, Object: fmt.Sprintf("shard %q", s.Shard.Name)})
		}
		return
	}
}

// and adds up two effects on one shard.
func (e Effect) and(next Effect) Effect {
	next.GlobalRemoved = append(e.GlobalRemoved, next.GlobalRemoved...)
	next.GlobalAdded = append(e.GlobalAdded, next.GlobalAdded...)
	next.LocalRemoved = append(e.LocalRemoved, next.LocalRemoved...)
	next.LocalAdded = append(e.LocalAdded, next.LocalAdded...)
	next.Row, next.Deployed = next.Row || e.Row, next.Deployed || e.Deployed
	if next.Adopted == "" {
		next.Adopted = e.Adopted
	}
	if next.Result.Operation == 0 {
		next.Result = e.Result
	}
	return next
}

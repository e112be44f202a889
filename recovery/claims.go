package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// OwnersError is a resolution refused because it would give a key two owners:
// one shard by the resolution, another one by its own local map. It matches
// [store.ErrMapsDiffer].
type OwnersError struct {
	Map    string
	Range  shardway.Range // of the mapping that the other shard has
	Point  bool           // Range is the point of a list map
	Shard  string         // that would get a part of it
	Other  string         // whose local map has it
	Lost   []string       // shards that could not be asked; then the fields above but Map and Shard are empty
	Causes error          // why not
}

// Error names both shards.
func (e *OwnersError) Error() string {
	if len(e.Lost) > 0 {
		return fmt.Sprintf("shard map %q: shard %q cannot get keys as long as shards %q cannot say that they have none of them: %v", e.Map, e.Shard, e.Lost, e.Causes)
	}
	covers := e.Range.String()
	if e.Point {
		covers = e.Range.Low.String()
	}
	return fmt.Sprintf("shard map %q: %s would have two owners: shard %q, and shard %q by its own local map; resolve there first", e.Map, covers, e.Shard, e.Other)
}

// Is reports whether target is [store.ErrMapsDiffer].
func (e *OwnersError) Is(target error) bool { return target == store.ErrMapsDiffer }

// Unwrap returns why shards could not be asked.
func (e *OwnersError) Unwrap() error { return e.Causes }

// claim is what a local map says that its shard owns.
type claim struct {
	shardway.Range

	mapping shardway.MappingID
	shard   shardway.ShardID
	status  shardway.MappingStatus
}

// claims are what the local maps of many shards say, in the order of the low
// keys. Claims of several shards may overlap: that is what to look for.
type claims struct {
	kind   shardway.MapKind
	sorted []claim
	// reach is, for each claim, the one of those up to it that ends last.
	reach []int
	names map[shardway.ShardID]string
	lost  []string // shards that could not be asked
	cause error    // why not
}

// order makes the claims ready to be asked.
func (c *claims) order() {
	slices.SortFunc(c.sorted, func(a, b claim) int { return a.Low.Compare(b.Low) })
	c.reach = make([]int, len(c.sorted))
	for i, next := range c.sorted {
		if i == 0 {
			continue
		}
		if c.reach[i] = i; c.kind == shardway.ListMap {
			continue
		}
		c.reach[i] = c.reach[i-1]
		if last := c.sorted[c.reach[i]]; !last.Open() && (next.Open() || next.High.Compare(last.High) > 0) {
			c.reach[i] = i
		}
	}
}

// other returns a claim of another shard than the given one that shares a key
// with a range.
func (c *claims) other(shard shardway.ShardID, r shardway.Range) (claim, bool) {
	i, exact := slices.BinarySearchFunc(c.sorted, r, func(x claim, r shardway.Range) int {
		if c.kind == shardway.RangeMap && (r.Open() || x.Low.Compare(r.High) < 0) {
			return -1
		}
		if c.kind == shardway.RangeMap {
			return 1
		}
		return x.Low.Compare(r.Low)
	})
	if c.kind == shardway.ListMap {
		for ; exact && i < len(c.sorted) && c.sorted[i].Low == r.Low; i++ {
			if c.sorted[i].shard != shard {
				return c.sorted[i], true
			}
		}
		return claim{}, false
	}
	for i--; i >= 0 && !precedes(c.kind, c.sorted[c.reach[i]].Range, r); i-- {
		if x := c.sorted[i]; x.shard != shard && x.Intersects(r) {
			return x, true
		}
	}
	return claim{}, false
}

// check refuses ranges that a shard is to own when another one has them.
func (c *claims) check(m shardway.ShardMap, shard shardway.Shard, owned []shardway.Range) error {
	if len(owned) == 0 {
		return nil
	}
	if len(c.lost) > 0 {
		return &OwnersError{Map: m.Name, Shard: shard.Name, Lost: c.lost, Causes: c.cause}
	}
	for _, r := range owned {
		if x, taken := c.other(shard.ID, r); taken {
			return &OwnersError{Map: m.Name, Range: x.Range, Point: c.kind == shardway.ListMap, Shard: shard.Name, Other: c.names[x.shard]}
		}
	}
	return nil
}

// claimsOf reads the local maps of all shards of a map but one (0: of all).
// With forgive, a shard that cannot be asked claims nothing.
func (r *Recovery) claimsOf(ctx context.Context, m shardway.ShardMap, but shardway.ShardID, forgive bool) (*claims, error) {
	globalID, err := r.globalID(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := r.shards(ctx, m, nil)
	if err != nil {
		return nil, err
	}
	shards = slices.DeleteFunc(shards, func(s shardway.Shard) bool { return s.ID == but })
	found := make([]found, len(shards))
	if err := r.each(ctx, "asking for owners", len(shards), func(i int) {
		found[i] = r.read(ctx, shards[i].Location, m.ID, globalID)
	}); err != nil {
		return nil, err
	}
	all := &claims{kind: m.Kind, names: map[shardway.ShardID]string{}}
	for i, f := range found {
		all.add(shards[i], f, forgive)
	}
	all.order()
	return all, nil
}

// add notes what was found at a shard.
func (c *claims) add(s shardway.Shard, f found, forgive bool) {
	c.names[s.ID] = s.Name
	if f.err != nil && !forgive {
		c.lost = append(c.lost, s.Name)
		c.cause = errors.Join(c.cause, fmt.Errorf("shard %q: %w", s.Name, f.err))
	}
	if f.local == nil {
		return
	}
	for _, mp := range f.local.Mappings {
		c.sorted = append(c.sorted, claim{Range: mp.Range, mapping: mp.ID, shard: s.ID, status: mp.Status})
	}
}

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

// others calls yield with the claims of other shards than the given one that
// share a key with a range, until it returns false.
func (c *claims) others(shard shardway.ShardID, r shardway.Range, yield func(claim) bool) {
	// The first claim that begins after the range.
	i, _ := slices.BinarySearchFunc(c.sorted, r, func(x claim, r shardway.Range) int {
		if c.kind == shardway.RangeMap && !r.Open() && x.Low.Compare(r.High) >= 0 || c.kind == shardway.ListMap && x.Low.Compare(r.Low) > 0 {
			return 1
		}
		return -1
	})
	for i--; i >= 0 && !precedes(c.kind, c.sorted[c.reach[i]].Range, r); i-- {
		if x := c.sorted[i]; x.shard != shard && intersects(c.kind, x.Range, r) && !yield(x) {
			return
		}
	}
}

// other returns one of them.
func (c *claims) other(shard shardway.ShardID, r shardway.Range) (found claim, ok bool) {
	c.others(shard, r, func(x claim) bool {
		found, ok = x, true
		return false
	})
	return found, ok
}

// free cuts a range into what no other shard claims, and what one does.
func (c *claims) free(shard shardway.ShardID, r shardway.Range) (free []shardway.Range, taken []Conflict) {
	ranges := []shardway.Range{r}
	var met []shardway.Mapping
	c.others(shard, r, func(x claim) bool {
		ranges = append(ranges, x.Range)
		met = append(met, shardway.Mapping{Range: x.Range, ShardID: x.shard})
		return true
	})
	if len(met) == 0 {
		return ranges, nil
	}
	slices.SortFunc(met, byLow)
	claimed := cover{kind: c.kind, rows: met}
	for _, piece := range cut(c.kind, ranges) {
		at := claimed.at(piece)
		switch {
		case !intersects(c.kind, piece, r):
		case len(at) > 0:
			taken = append(taken, Conflict{Range: piece, Other: c.names[at[0].ShardID]})
		default:
			free = append(free, piece)
		}
	}
	return free, taken
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

package recovery

import (
	"cmp"
	"context"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Stray is a local map, in the database of a known shard, that no report of
// [Recovery.Detect] has: the global store does not know its map, or does not
// have its shard in that map. A global store that was lost or restored leaves
// them, and [Recovery.Detach] does on purpose. [Recovery.Attach] brings them in.
type Stray struct {
	Location shardway.Location // of the database, as the global store has it
	Map      shardway.ShardMap // as the local map has it
	Shard    shardway.Shard    // as the local map has it
	Mappings int               // how many the local map has
	Known    bool              // the global store has the map, under this id
	SameName bool              // the global store has another map of this name
}

// Strays looks for them in the databases of all shards, or of those with the
// given ids, and changes nothing. They come in the order of locations and names
// of maps. A database that cannot be read, or belongs to another global store,
// has none: Detect tells of it.
func (r *Recovery) Strays(ctx context.Context, ids ...shardway.ShardID) ([]Stray, error) {
	globalID, err := r.globalID(ctx)
	if err != nil {
		return nil, err
	}
	at, err := r.databases(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := make([][]store.LocalMap, len(at))
	err = r.each(ctx, "looking for unknown local maps", len(at), func(i int) {
		maps, owner, err := r.LocalMaps(ctx, at[i])
		if err == nil && owner == globalID {
			found[i] = maps
		}
	})
	if err != nil {
		return nil, err
	}
	// The global side is read after the local one: what was being added
	// meanwhile is known by now.
	var all []Stray
	err = r.view(ctx, func(tx store.Reader) error {
		all = nil
		maps, err := tx.ShardMaps(ctx)
		if err != nil {
			return err
		}
		shards, err := tx.Shards(ctx, 0)
		for i, l := range at {
			for _, there := range found[i] {
				if s, stray := judgeStray(l, there, maps, shards); stray {
					all = append(all, s)
				}
			}
		}
		return err
	})
	slices.SortFunc(all, func(a, b Stray) int {
		return cmp.Or(cmp.Compare(a.Location.String(), b.Location.String()), cmp.Compare(a.Map.Name, b.Map.Name))
	})
	return all, err
}

// databases returns the locations of the shards of all maps, or of those with
// the given ids, each database once.
func (r *Recovery) databases(ctx context.Context, ids []shardway.ShardID) (at []shardway.Location, err error) {
	err = r.view(ctx, func(tx store.Reader) error {
		at = nil
		shards, err := tx.Shards(ctx, 0)
		for _, row := range shards {
			known := func(l shardway.Location) bool { return l.Overlaps(row.Location) }
			if !row.Pending && (len(ids) == 0 || slices.Contains(ids, row.ID)) && !slices.ContainsFunc(at, known) {
				at = append(at, row.Location)
			}
		}
		return err
	})
	return at, err
}

// judgeStray reports whether the global store does not account for a local map
// in the database at l.
func judgeStray(l shardway.Location, there store.LocalMap, maps []shardway.ShardMap, shards []store.ShardRow) (Stray, bool) {
	s := Stray{Location: l, Map: there.Map, Shard: there.Shard, Mappings: len(there.Mappings)}
	for _, m := range maps {
		s.Known = s.Known || m.ID == there.Map.ID
		s.SameName = s.SameName || m.ID != there.Map.ID && m.Name == there.Map.Name
	}
	accounted := func(row store.ShardRow) bool {
		return row.MapID == there.Map.ID && (row.ID == there.Shard.ID || row.Location.Overlaps(l))
	}
	return s, there.Shard.ID != 0 && !slices.ContainsFunc(shards, accounted)
}

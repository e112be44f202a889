package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// Attach says how to bring a shard back into a map from its own local map.
type Attach struct {
	// Map is the name of the map. It must be in the global store under the same
	// id, unless RestoreMap is set.
	Map      string
	Location shardway.Location // where the shard's database is now
	Name     string            // new name of the shard; empty: the one it had
	// Adopt is the id of another global store that the database belongs to, and
	// from now on does not. Empty: a database of another one is
	// [shardway.ErrForeignStore].
	Adopt string
	// RestoreMap creates the map, empty and under the id that the local map
	// has, when the global store does not know that id: it was lost.
	RestoreMap bool
	DryRun     bool   // change nothing
	Reason     string // for the history; may be empty
}

// Attach brings a shard back into a map: see [catalog.AttachShard]. Its
// mappings follow by a resolution that keeps the local side. A local store of
// an older version is attached as it is, as long as this program changes stores
// of that version ([store.Writable]); one that is older still is upgraded first.
func (r *Recovery) Attach(ctx context.Context, a Attach) (catalog.Result, error) {
	wrap := func(err error) (catalog.Result, error) {
		return catalog.Result{}, fmt.Errorf("attaching the shard at %s to shard map %q: %w", a.Location, a.Map, err)
	}
	l, err := r.locals.Normalize(a.Location)
	if err != nil {
		return wrap(err)
	}
	there, owner, err := r.LocalMaps(ctx, l)
	if err != nil {
		return wrap(err)
	}
	globalID, err := r.globalID(ctx)
	if err != nil {
		return wrap(err)
	}
	foreign := owner != globalID
	if foreign && a.Adopt != owner {
		return wrap(fmt.Errorf("it belongs to global store %s; taking it over has to be asked for by this id: %w", owner, shardway.ErrForeignStore))
	}
	var found *store.LocalMap
	for i := range there {
		if there[i].Map.Name == a.Map {
			found = &there[i]
		}
	}
	if found == nil {
		return wrap(fmt.Errorf("its local store does not have this map: %w", shardway.ErrMapNotFound))
	}
	m, err := r.restored(ctx, a, found.Map)
	if err != nil {
		return wrap(err)
	}
	ch := catalog.AttachShard{Map: m, Location: l, Found: *found, Name: a.Name, Reason: a.Reason}
	if m.ID != found.Map.ID { // a dry run in which the map is to be restored
		result := attached(ch)
		result.Summary, result.Map = result.Summary+fmt.Sprintf(", and shard map %q", a.Map), found.Map
		return result, nil
	}
	result, err := r.catalog.Preview(ctx, ch)
	// Too old to be changed, and readable, or there would be no maps.
	if errors.Is(err, shardway.ErrStoreVersion) || foreign && errors.Is(err, shardway.ErrForeignStore) {
		result, err = attached(ch), nil
	}
	if err != nil || a.DryRun {
		return result, err
	}
	if err := r.upgrade(ctx, l); err != nil {
		return wrap(err)
	}
	if foreign {
		if err := r.catalog.Adopt(ctx, l, owner); err != nil {
			return wrap(err)
		}
	}
	return r.catalog.Do(ctx, ch)
}

// attached is what a change will do whose database cannot be changed yet.
func attached(ch catalog.AttachShard) catalog.Result {
	shard := ch.Found.Shard
	shard.Name, shard.Location = cmp.Or(ch.Name, shard.Name), ch.Location
	return catalog.Result{Kind: "attach shard", Summary: fmt.Sprintf("shard %q at %s", shard.Name, shard.Location), Map: ch.Map, Shards: []shardway.Shard{shard}}
}

// upgrade brings a local store that is too old to be changed to the version of
// this program: no command reaches it before its shard is in a map.
func (r *Recovery) upgrade(ctx context.Context, l shardway.Location) error {
	local, err := r.locals.Open(ctx, l)
	if err != nil {
		return err
	}
	d, err := local.Describe(ctx)
	if err != nil {
		return err
	}
	tooOld := d.Version.CheckWrite("local")
	if tooOld == nil {
		return nil
	}
	u, ok := local.(store.Upgrader)
	if !ok {
		return fmt.Errorf("a local store of this engine has no upgrade: %w", tooOld)
	}
	_, _, err = u.Upgrade(ctx)
	return err
}

// restored returns the map of the global store that a local map is a part of.
// In a dry run, one that would be restored is the zero value.
func (r *Recovery) restored(ctx context.Context, a Attach, there shardway.ShardMap) (shardway.ShardMap, error) {
	m, err := r.catalog.ShardMap(ctx, a.Map)
	switch {
	case err == nil && m.ID != there.ID:
		return m, fmt.Errorf("the map of this name has id %s, the local one %s: %w", hexID(int64(m.ID)), hexID(int64(there.ID)), store.ErrMapsDiffer)
	case err == nil || !errors.Is(err, shardway.ErrMapNotFound) || !a.RestoreMap:
		return m, err
	}
	restore := catalog.RestoreShardMap{Map: there, Reason: a.Reason}
	if a.DryRun {
		_, err := r.catalog.Preview(ctx, restore)
		return shardway.ShardMap{}, err
	}
	result, err := r.catalog.Do(ctx, restore)
	return result.Map, err
}

// LocalMaps returns what a database keeps of all shard maps, and the id of the
// global store that it belongs to. One without a local store is
// [shardway.ErrNoStore].
func (r *Recovery) LocalMaps(ctx context.Context, l shardway.Location) (maps []store.LocalMap, owner string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	local, err := r.locals.Open(ctx, l)
	if err != nil {
		return nil, "", err
	}
	d, err := local.Describe(ctx)
	if err != nil {
		return nil, "", err
	}
	maps, err = local.Read(ctx, 0)
	return maps, d.ID, err
}

// Detach says how to take a shard out of a map.
type Detach struct {
	Shard shardway.Shard // as read; [shardway.ErrStale] when it has changed since
	// Gone promises that the shard's database is gone for good, or that nobody
	// can reach it any more: it is not asked. Programs with an old route could
	// go on there otherwise.
	Gone   bool
	Force  bool   // although mappings are online or locked
	DryRun bool   // change nothing
	Reason string // for the history; may be empty
}

// Detach takes a shard and its mappings out of one map; the result has the
// mappings that left. The database keeps them for [Recovery.Attach], under new
// ids: no route from before is valid there. See [catalog.DetachShard].
func (r *Recovery) Detach(ctx context.Context, d Detach) (catalog.Result, error) {
	wrap := func(err error) (catalog.Result, error) {
		return catalog.Result{}, fmt.Errorf("detaching shard %q: %w", d.Shard.Name, err)
	}
	if d.Gone && !d.DryRun {
		if _, err := r.catalog.EndWithout(ctx, d.Shard); err != nil {
			return wrap(err)
		}
	}
	for try := 1; ; try++ {
		ch, err := r.detach(ctx, d)
		if err != nil {
			return wrap(err)
		}
		if d.DryRun {
			return r.catalog.Preview(ctx, ch)
		}
		result, err := r.catalog.Do(ctx, ch)
		if errors.Is(err, shardway.ErrStale) && try < tries { // its mappings; its row is looked at again
			continue
		}
		return result, err
	}
}

func (r *Recovery) detach(ctx context.Context, d Detach) (catalog.DetachShard, error) {
	ch := catalog.DetachShard{Shard: d.Shard, Force: d.Force, Reason: d.Reason}
	globalID, err := r.globalID(ctx)
	if err != nil {
		return ch, err
	}
	at, err := r.moment(ctx, d.Shard.MapID)
	if err != nil {
		return ch, err
	}
	row := at.shard(d.Shard.ID)
	switch {
	case row == nil:
		return ch, &shardway.LookupError{Map: at.m.Name, Shard: d.Shard.Name, Err: shardway.ErrShardNotFound}
	case row.Version != d.Shard.Version && row.Operation == 0:
		return ch, fmt.Errorf("shard %q of shard map %q: %w", d.Shard.Name, at.m.Name, shardway.ErrStale)
	}
	err = r.view(ctx, func(tx store.Reader) error {
		ch.Basis = nil
		for m, err := range tx.Mappings(ctx, store.MappingQuery{Map: at.m, ShardID: d.Shard.ID}) {
			if err != nil {
				return err
			}
			ch.Basis = append(ch.Basis, m.ID)
		}
		return nil
	})
	if err != nil || d.Gone {
		return ch, err
	}
	f := r.read(ctx, d.Shard.Location, d.Shard.MapID, globalID)
	switch {
	case f.err != nil:
		return ch, fmt.Errorf("asking its database, which must lose the shard's mappings unless it is gone: %w", f.err)
	case f.state == Equal && f.local.Shard.ID == d.Shard.ID: // else there is nothing of this shard
		ch.Found = f.local
	}
	return ch, nil
}

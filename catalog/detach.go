package catalog

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// DetachShard takes a shard out of one map together with its mappings, which
// are in the Result. The database keeps its local map, so that [AttachShard]
// can bring shard and mappings back; the mappings get new ids there, so that
// nothing that was routed before is valid any more. Without Found the database
// is not asked: it is gone, and nobody can go on in it.
//
// Online mappings are [shardway.ErrMappingOnline] and locked ones
// [shardway.ErrMappingLocked], unless Force is set.
type DetachShard struct {
	Shard  shardway.Shard       // as read; [shardway.ErrStale] when it has changed since
	Basis  []shardway.MappingID // its mappings, as read before Found; [shardway.ErrStale] when they have changed since
	Found  *store.LocalMap      // what its local store has of the map, as read; nil: its database is gone
	Force  bool                 // although mappings are online or locked
	Reason string               // for the history; may be empty
}

func (ch DetachShard) target() shardway.MapID { return ch.Shard.MapID }

func (ch DetachShard) plan(ctx context.Context, s *state) (*plan, error) {
	m, shard, err := s.currentShard(ctx, ch.Shard)
	if err != nil {
		return nil, err
	}
	if err := s.checkIdle(ctx, m, shard, nil); err != nil {
		return nil, err
	}
	rows, err := s.basis(ctx, m, Basis{ShardID: shard.ID, IDs: ch.Basis})
	if err != nil {
		return nil, err
	}
	global := store.Step{Shard: shard, GlobalOnly: true, Before: &shard}
	for _, row := range rows {
		if !ch.Force && s.held(row.Lock) {
			return nil, fmt.Errorf("detaching shard %q of shard map %q: mapping %s is %s: %w",
				shard.Name, m.Name, row.Format(m.Kind), lockedBy(row.Lock), shardway.ErrMappingLocked)
		}
		if !ch.Force && row.Status == shardway.Online {
			return nil, fmt.Errorf("detaching shard %q of shard map %q: mapping %s is online: %w",
				shard.Name, m.Name, row.Format(m.Kind), shardway.ErrMappingOnline)
		}
		global.Remove = append(global.Remove, row.Mapping)
	}
	p := &plan{
		kind: "detach shard", reason: ch.Reason, m: m,
		summary: fmt.Sprintf("shard %q at %s with %d mappings", shard.Name, shard.Location, len(rows)),
		steps:   []store.Step{global},
		result:  Result{Map: m, Shards: []shardway.Shard{shard}, Mappings: global.Remove},
	}
	if ch.Found == nil {
		p.summary += ", its database is gone"
		return p, nil
	}
	p.steps = []store.Step{barred(shard, ch.Found), global}
	return p, nil
}

// barred is the step that keeps a local map for later and makes what was
// routed by it invalid.
func barred(shard shardway.Shard, found *store.LocalMap) store.Step {
	before, after := found.Shard, found.Shard
	after.Version = store.NewID()
	step := store.Step{Shard: shard, LocalOnly: true, Before: &before, After: &after, Remove: found.Mappings}
	for _, mp := range found.Mappings {
		mp.ID = newMappingID()
		step.Add = append(step.Add, mp)
	}
	return step
}

// EndWithout ends the operations of dead clients that wait for a shard whose
// database is gone for good: they are taken back everywhere else. An operation
// whose owner is at work is left alone, and reported as pending.
func (c *Catalog) EndWithout(ctx context.Context, shard shardway.Shard) ([]Recovered, error) {
	ops, err := c.Operations(ctx)
	if err != nil {
		return nil, err
	}
	var all []Recovered
	for _, op := range ops {
		if op.Map.ID != shard.MapID || !worksOn(op, shard.ID) {
			continue
		}
		gone := map[int]bool{}
		for i, step := range op.Steps {
			if step.Shard.ID == shard.ID && !step.GlobalOnly {
				gone[i] = true
			}
		}
		all = append(all, c.recoverOne(ctx, op, false, gone))
	}
	return all, ctx.Err()
}

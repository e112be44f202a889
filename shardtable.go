package shardway

import (
	"cmp"
	"fmt"
	"slices"
)

// shardTable holds the shards that the mappings of a snapshot refer to by
// slot. Slots are only ever added. It never changes, like the snapshot.
type shardTable struct {
	shards []*Shard
	since  []int64  // by slot: generation of the answer the shard came with
	order  []uint32 // slots ordered by shard id
}

func newShardTable(ids []ShardID, state MapState) (shardTable, error) {
	t := shardTable{}
	byID := make(map[ShardID]*Shard, len(state.Shards))
	for i := range state.Shards {
		byID[state.Shards[i].ID] = &state.Shards[i]
	}
	for slot, id := range ids {
		shard := byID[id]
		if shard == nil {
			return t, fmt.Errorf("mappings refer to shard %d: %w", id, ErrShardNotFound)
		}
		t.shards = append(t.shards, shard)
		t.since = append(t.since, state.Generation)
		t.order = append(t.order, uint32(slot))
	}
	slices.SortFunc(t.order, func(a, b uint32) int { return cmp.Compare(t.shards[a].ID, t.shards[b].ID) })
	return t, nil
}

// find returns the slot of a shard, or where in order it would go.
func (t shardTable) find(id ShardID) (at int, ok bool) {
	return slices.BinarySearchFunc(t.order, id, func(slot uint32, id ShardID) int {
		return cmp.Compare(t.shards[slot].ID, id)
	})
}

// with returns a table that has the shard, and its slot. What an older answer
// says of a shard changes nothing.
func (t shardTable) with(shard Shard, generation int64) (shardTable, uint32) {
	at, ok := t.find(shard.ID)
	if !ok {
		slot := uint32(len(t.shards))
		t.shards = append(slices.Clip(t.shards), &shard)
		t.since = append(slices.Clip(t.since), generation)
		t.order = slices.Insert(slices.Clip(t.order), at, slot)
		return t, slot
	}
	slot := t.order[at]
	if t.shards[slot].Version == shard.Version || t.since[slot] > generation {
		return t, slot
	}
	t.shards, t.since = slices.Clone(t.shards), slices.Clone(t.since)
	t.shards[slot], t.since[slot] = &shard, generation
	return t, slot
}

// refresh returns a table in which the shards it has are up to date.
func (t shardTable) refresh(shards []Shard, generation int64) shardTable {
	for _, shard := range shards {
		if _, ok := t.find(shard.ID); ok {
			t, _ = t.with(shard, generation)
		}
	}
	return t
}

package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// prepare adds, changes or removes shards and mappings, one in five times on a
// row that is not free.
func (g *generator) prepare(m shardway.ShardMap, d *store.Delta) error {
	o := newOperation(m)
	d.Prepare = o
	o.Epoch = int64(1 + g.IntN(3))
	o.Reason = pick(g, list("", "it's", "ü\n"))
	if g.IntN(5) == 0 {
		o.Steps = append(o.Steps, g.change(m)...)
		o.Steps = append(o.Steps, g.stale(m))
		return shardway.ErrStale
	}
	o.Steps = g.change(m)
	return nil
}

// stale returns a step on a row that is gone or marked.
func (g *generator) stale(m shardway.ShardMap) store.Step {
	var marked []store.Step
	for _, row := range g.mappings(m) {
		if row.Operation != 0 {
			marked = append(marked, store.Step{Remove: list(row.Mapping)})
		}
	}
	for _, row := range g.shards(m) {
		s := row.Shard
		if row.Operation == 0 {
			s.Version++
		}
		marked = append(marked, store.Step{Shard: s, Before: &s, After: changed(s)})
	}
	ghost := newShard(m, "ghost")
	marked = append(marked, store.Step{Shard: ghost, Before: &ghost}, store.Step{Shard: ghost, Remove: list(newMapping(ghost, span(0, 1)))})
	return pick(g, marked)
}

func (g *generator) shards(m shardway.ShardMap) (all []store.ShardRow) {
	for _, row := range g.dump.Shards {
		if row.MapID == m.ID {
			all = append(all, row)
		}
	}
	return all
}

func (g *generator) mappings(m shardway.ShardMap) []store.MappingRow {
	at := slices.IndexFunc(g.dump.Maps, func(other shardway.ShardMap) bool { return other.ID == m.ID })
	return g.dump.Mappings[at]
}

// change returns steps on free rows.
func (g *generator) change(m shardway.ShardMap) []store.Step {
	var free []shardway.Shard // and published
	for _, row := range g.shards(m) {
		if row.Operation == 0 {
			free = append(free, row.Shard)
		}
	}
	if len(free) < 2 || g.IntN(10) == 0 {
		s := newShard(m, fmt.Sprint("s", g.IntN(1e6)))
		s.Location.Servers[0].Tags = map[string]string{"zone": pick(g, list("", "a", "ü"))}
		return list(store.Step{Shard: s, After: &s, Add: g.fresh(m, s, nil)})
	}
	s := pick(g, free)
	var own []shardway.Mapping
	onlyOwn := true // whether every mapping of the shard is free
	for _, row := range g.mappings(m) {
		if row.ShardID == s.ID {
			onlyOwn = onlyOwn && row.Operation == 0
			if row.Operation == 0 {
				own = append(own, row.Mapping)
			}
		}
	}
	switch action := g.IntN(6); {
	case action == 0 && onlyOwn:
		return list(store.Step{Shard: s, Before: &s, Remove: own})
	case action == 1:
		return list(store.Step{Shard: s, Before: &s, After: changed(s)})
	case action == 2:
		return list(add(s, g.fresh(m, s, nil)...))
	}
	var some, rest []shardway.Mapping
	for _, m := range own {
		if g.IntN(2) == 0 {
			some = append(some, m)
		}
	}
	target := pick(g, free) // the same shard, or a move
	for _, m := range some {
		if g.IntN(4) > 0 {
			m = next(m)
			m.ShardID = target.ID
			m.Status = shardway.MappingStatus(g.IntN(2))
			rest = append(rest, m)
		}
	}
	return list(replace(s, some, nil), add(target, rest...))
}

// fresh returns new mappings where the map has none.
func (g *generator) fresh(m shardway.ShardMap, s shardway.Shard, all []shardway.Mapping) []shardway.Mapping {
	for range g.IntN(4) {
		low := int64(g.IntN(100))
		r := span(low, low+1+int64(g.IntN(9)))
		taken := slices.ContainsFunc(g.mappings(m), func(row store.MappingRow) bool { return overlap(row.Range, r) }) ||
			slices.ContainsFunc(all, func(m shardway.Mapping) bool { return overlap(m.Range, r) })
		if taken {
			continue
		}
		if m.Kind == shardway.ListMap {
			r.High = shardway.Key{}
		}
		mapping := newMapping(s, r)
		if g.IntN(3) == 0 {
			mapping.Lock = g.newLock()
		}
		all = append(all, mapping)
	}
	return all
}

// overlap takes the points of list maps for ranges of one key.
func overlap(a, b shardway.Range) bool {
	if a.Open() {
		return b.Contains(a.Low)
	}
	return a.Intersects(b)
}

func (g *generator) newLock() shardway.Lock {
	return shardway.Lock{Token: pick(g, list[shardway.LockToken]("", "t", "T")), Owner: "o", Reason: "it's",
		Expires: instant.Add(time.Duration(g.IntN(1000)) * time.Microsecond)}
}

// operation picks a pending operation of a map, nil when it has none, and now
// and then one that is unknown or an earlier epoch, with the error for that.
func (g *generator) operation(m shardway.ShardMap) (*store.Operation, error) {
	var all []store.Operation
	for _, o := range g.dump.Operations {
		if o.Map.ID == m.ID {
			all = append(all, o)
		}
	}
	switch {
	case g.IntN(12) == 0:
		return newOperation(m), store.ErrLostLease
	case len(all) == 0:
		return nil, nil
	}
	o := pick(g, all)
	if g.IntN(8) == 0 {
		o.Epoch--
		return &o, store.ErrLostLease
	}
	return &o, nil
}

func (g *generator) end(m shardway.ShardMap, d *store.Delta) error {
	o, err := g.operation(m)
	if g.IntN(3) > 0 {
		d.Publish = o
	} else {
		d.Abort = o
	}
	return err
}

func (g *generator) lease(m shardway.ShardMap, d *store.Delta) error {
	o, err := g.operation(m)
	for _, ended := range list(d.Publish, d.Abort) {
		if o != nil && err == nil && ended != nil && ended.ID == o.ID {
			return nil // it cannot be leased after its end
		}
	}
	if o != nil && err == nil {
		o.Epoch += int64(g.IntN(2))
		o.Owner, o.LeaseUntil = "next ü", instant.Add(time.Duration(g.IntN(100))*time.Hour)
	}
	d.Lease = o
	return err
}

// lock locks one or two mappings that this Delta does not remove.
func (g *generator) lock(m shardway.ShardMap, d *store.Delta) error {
	all := g.mappings(m)
	if g.IntN(6) == 0 || len(all) == 0 {
		d.Lock = list(shardway.Mapping{ID: shardway.MappingID(store.NewID()), MapID: m.ID, Range: span(0, 1)})
		return shardway.ErrStale
	}
	for range 1 + g.IntN(2) {
		if row := pick(g, all); row.Operation == 0 { // of pending ones, the Delta may end the operation
			row.Lock = g.newLock()
			d.Lock = append(d.Lock, row.Mapping)
		}
	}
	return nil
}

func (g *generator) entry(m shardway.ShardMap, d *store.Delta) store.Entry {
	o := newOperation(m)
	for _, part := range list(d.Prepare, d.Abort, d.Publish) {
		if part != nil {
			o = part
		}
	}
	e := newEntry(o, store.Outcome(1+g.IntN(3)))
	for n := range g.IntN(3) {
		low := int64(g.IntN(100))
		e.Ranges = append(e.Ranges, span(low, low+1+int64(n)))
		if m.Kind == shardway.ListMap {
			e.Ranges[n].High = shardway.Key{}
		}
	}
	e.ShardsOnly = len(e.Ranges) == 0 && g.IntN(2) == 0
	return e
}

package storetest

import (
	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// spoilShard overwrites all that a shard shares with its copies.
func spoilShard(s *shardway.Shard) {
	if s == nil {
		return
	}
	for n := range s.Location.Servers {
		server := &s.Location.Servers[n]
		server.Address = "spoilt"
		for tag := range server.Tags {
			server.Tags[tag] = "spoilt"
		}
	}
}

func spoilSteps(steps []store.Step) {
	for n := range steps {
		step := &steps[n]
		for _, s := range list(&step.Shard, step.Before, step.After) {
			spoilShard(s)
		}
		for _, mappings := range list(step.Remove, step.Add) {
			for n := range mappings {
				mappings[n] = shardway.Mapping{}
			}
		}
		steps[n].Before, steps[n].After = nil, nil
	}
}

func taggedShard(m shardway.ShardMap, name string) shardway.Shard {
	s := newShard(m, name)
	s.Location.Servers[0].Tags = map[string]string{"zone": "eu"}
	return s
}

// testCopies overwrites what was given to the store and what was read from it.
func testCopies(w *world) {
	m := w.addMap("m", shardway.RangeMap, shardway.KindInt64)
	s1, s2 := taggedShard(m, "s1"), taggedShard(m, "s2")
	a := newMapping(s1, span(0, 10))
	given := newOperation(m, store.Step{Shard: s1, After: &s1, Add: list(a)})
	entry := newEntry(given, store.Done, span(0, 10))
	w.must(m.ID, store.Delta{Prepare: given, Publish: given, History: list(entry)})
	pending := newOperation(m, replace(s1, list(a), nil), store.Step{Shard: s2, After: &s2, Add: list(newMapping(s2, spanFrom(10)))})
	w.must(m.ID, store.Delta{Prepare: pending})

	want := func() dump { // what the store holds before anything is spoilt
		d := w.dump()
		_, state := w.load(m, shardway.Range{})
		if len(d.Shards) != 2 || len(d.Operations) != 1 || len(d.History) != 1 || len(state.Shards) != 1 {
			w.Fatalf("dump = %+v", d)
		}
		return d
	}()
	fresh := cloneDump(want)
	spoilSteps(given.Steps)
	spoilSteps(pending.Steps)
	entry.Ranges[0] = span(100, 200)
	w.same("spoiling what was given changed the store", fresh, w.dump())

	for n := range want.Shards {
		spoilShard(&want.Shards[n].Shard)
	}
	spoilSteps(want.Operations[0].Steps)
	want.History[0].Ranges[0] = span(100, 200)
	_, state := w.load(m, shardway.Range{})
	spoilShard(&state.Shards[0])
	answer, err := w.Lookup(w.Context(), m, key(1))
	if err != nil || !answer.Found {
		w.Fatalf("Lookup = %+v, %v", answer, err)
	}
	spoilShard(&answer.Shard)
	w.same("spoiling what was read changed the store", fresh, w.dump())
}

// cloneDump copies what spoiling changes.
func cloneDump(d dump) dump {
	var c dump
	c.Maps, c.Mappings = d.Maps, d.Mappings
	for _, row := range d.Shards {
		row.Shard = cloneShard(row.Shard)
		c.Shards = append(c.Shards, row)
	}
	for _, o := range d.Operations {
		var steps []store.Step
		for _, step := range o.Steps {
			steps = append(steps, cloneStep(step))
		}
		o.Steps = steps
		c.Operations = append(c.Operations, o)
	}
	for _, e := range d.History {
		e.Ranges = append([]shardway.Range(nil), e.Ranges...)
		c.History = append(c.History, e)
	}
	return c
}

func cloneShard(s shardway.Shard) shardway.Shard {
	var servers []shardway.Server
	for _, server := range s.Location.Servers {
		tags := map[string]string{}
		for tag, value := range server.Tags {
			tags[tag] = value
		}
		servers = append(servers, shardway.Server{Address: server.Address, Tags: tags})
	}
	s.Location.Servers = servers
	return s
}

func cloneStep(step store.Step) store.Step {
	step.Shard = cloneShard(step.Shard)
	for _, s := range list(&step.Before, &step.After) {
		if *s != nil {
			c := cloneShard(**s)
			*s = &c
		}
	}
	step.Remove = append([]shardway.Mapping(nil), step.Remove...)
	step.Add = append([]shardway.Mapping(nil), step.Add...)
	return step
}

func testLocalCopies(l *site) {
	l.deploy()
	m := newMap("m", shardway.RangeMap, shardway.KindInt64)
	s := taggedShard(m, "s")
	a := newMapping(s, spanFrom(0))
	request := l.next(m, store.Step{Shard: s, After: &s, Add: list(a)})
	want := localMap(m, cloneShard(s), a)
	l.want(request, store.StepApplied)
	spoilSteps(list(request.Step))
	l.holds("after spoiling what was given", want)
	for _, lm := range l.read() {
		spoilShard(&lm.Shard)
		lm.Mappings[0] = shardway.Mapping{}
	}
	l.holds("after spoiling what was read", want)
}

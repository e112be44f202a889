package catalog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// keys are all the keys that the oracle knows: 0 to keys-1.
const keys = 12

// slot is what the oracle knows about one key: which mapping holds it.
type slot struct {
	mapped bool
	first  int // key at which its mapping begins
	shard  int
	online bool
	token  shardway.LockToken
}

// oracle is the slow, obvious shard map: one slot for each key. A range is
// what neighbouring slots with one first make up.
type oracle struct {
	kind  shardway.MapKind
	slots [keys]slot
}

// span returns the keys of the mapping that begins at first; high is excluded.
func (o *oracle) span(first int) (low, high int) {
	for high = first; high < keys && o.slots[high].mapped && o.slots[high].first == first; high++ {
	}
	return first, high
}

func (o *oracle) firsts() (all []int) {
	for i, s := range o.slots {
		if s.mapped && s.first == i {
			all = append(all, i)
		}
	}
	return all
}

func (o *oracle) fill(low, high int, s slot) {
	s.mapped, s.first = true, low
	for i := low; i < high; i++ {
		o.slots[i] = s
	}
}

func (o *oracle) free(low, high int) bool {
	return !slices.ContainsFunc(o.slots[low:high], func(s slot) bool { return s.mapped })
}

// add, update, remove, split, merge, lock and unlock change the oracle or
// return the error that the catalog must give.

func (o *oracle) add(low, high, shard int, online bool) error {
	switch {
	case o.kind == shardway.RangeMap && low >= high:
		return shardway.ErrInvalid
	case !o.free(low, high):
		return shardway.ErrExists
	}
	o.fill(low, high, slot{shard: shard, online: online})
	return nil
}

func (o *oracle) owned(first int, token shardway.LockToken) error {
	if t := o.slots[first].token; t != "" && t != token {
		return shardway.ErrMappingLocked
	}
	return nil
}

func (o *oracle) update(first, shard int, online bool, token shardway.LockToken) error {
	if err := o.owned(first, token); err != nil {
		return err
	}
	s := o.slots[first]
	if s.shard != shard && s.online && online {
		return shardway.ErrMappingOnline
	}
	s.shard, s.online = shard, online
	low, high := o.span(first)
	o.fill(low, high, s)
	return nil
}

func (o *oracle) remove(first int, token shardway.LockToken) error {
	if err := o.owned(first, token); err != nil {
		return err
	}
	if o.slots[first].online {
		return shardway.ErrMappingOnline
	}
	low, high := o.span(first)
	for i := low; i < high; i++ {
		o.slots[i] = slot{}
	}
	return nil
}

func (o *oracle) split(first, at int, token shardway.LockToken) error {
	if err := o.owned(first, token); err != nil {
		return err
	}
	low, high := o.span(first)
	switch {
	case o.kind == shardway.ListMap:
		return shardway.ErrWrongType
	case at <= low || at >= high:
		return shardway.ErrInvalid
	}
	o.fill(at, high, o.slots[first])
	return nil
}

func (o *oracle) merge(left, right int, leftToken, rightToken shardway.LockToken) error {
	if err := o.owned(left, leftToken); err != nil {
		return err
	}
	if o.kind == shardway.ListMap {
		return shardway.ErrWrongType
	}
	if err := o.owned(right, rightToken); err != nil {
		return err
	}
	low, middle := o.span(left)
	l, r := o.slots[left], o.slots[right]
	if middle != right || l.shard != r.shard || l.online != r.online {
		return shardway.ErrInvalid
	}
	_, high := o.span(right)
	o.fill(low, high, l)
	return nil
}

func (o *oracle) lock(first int, token shardway.LockToken) error {
	if o.slots[first].token != "" {
		return shardway.ErrMappingLocked
	}
	low, high := o.span(first)
	for i := low; i < high; i++ {
		o.slots[i].token = token
	}
	return nil
}

func (o *oracle) unlock(first int, token shardway.LockToken, force bool) error {
	if !force && (token == "" || o.slots[first].token != token) {
		return shardway.ErrMappingLocked
	}
	low, high := o.span(first)
	for i := low; i < high; i++ {
		o.slots[i].token = ""
	}
	return nil
}

// lines returns the oracle's mappings as text.
func (o *oracle) lines() (lines []string) {
	for _, first := range o.firsts() {
		_, high := o.span(first)
		if o.kind == shardway.ListMap {
			high = 0
		}
		s := o.slots[first]
		lines = append(lines, fmt.Sprintf("%d-%d shard %d online %t token %q", first, high, s.shard, s.online, s.token))
	}
	return lines
}

// trial is one sequence of changes, made to a store and to the oracle.
type trial struct {
	oracle

	quick   bool // lists the mappings and does not ask for every key
	c       *catalog.Catalog
	m       shardway.ShardMap
	shards  []shardway.Shard
	current map[int]shardway.Mapping // by first key
	gone    []shardway.Mapping       // mappings that were replaced
}

func (x *trial) of(first, high int) shardway.Range {
	if x.kind == shardway.ListMap {
		return shardway.RangeFrom(k(int64(first)))
	}
	return r(int64(first), int64(high))
}

// step makes one random change to both.
func (x *trial) step(t *rapid.T) {
	firsts := x.firsts()
	token := rapid.SampledFrom([]shardway.LockToken{"", "t", "u"}).Draw(t, "token")
	shard := rapid.IntRange(0, len(x.shards)-1).Draw(t, "shard")
	online := rapid.Bool().Draw(t, "online")
	kinds := []string{"add"}
	if len(firsts) > 0 {
		kinds = append(kinds, "add", "update", "update", "remove", "remove", "split", "split", "merge", "merge", "lock", "unlock")
	}
	if len(x.gone) > 0 {
		kinds = append(kinds, "stale")
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	if kind == "add" {
		x.stepAdd(t, shard, online)
		return
	}
	if kind == "stale" {
		old := rapid.SampledFrom(x.gone).Draw(t, "stale")
		x.check(t, catalog.UpdateMapping{Mapping: old, Status: ptr(shardway.Offline)}, shardway.ErrStale)
		return
	}
	first := rapid.SampledFrom(firsts).Draw(t, "first")
	m := x.current[first]
	switch kind {
	case "update":
		status := shardway.Offline
		if online {
			status = shardway.Online
		}
		x.check(t, catalog.UpdateMapping{Mapping: m, Status: &status, ShardID: &x.shards[shard].ID, Token: token},
			x.update(first, shard, online, token), m)
	case "remove":
		x.check(t, catalog.DeleteMapping{Mapping: m, Token: token}, x.remove(first, token), m)
	case "split":
		at := rapid.IntRange(0, keys).Draw(t, "at")
		x.check(t, catalog.SplitMapping{Mapping: m, At: k(int64(at)), Token: token}, x.split(first, at, token), m)
	case "merge":
		right := rapid.SampledFrom(firsts).Draw(t, "right")
		if _, high := x.span(first); rapid.Bool().Draw(t, "neighbour") && slices.Contains(firsts, high) {
			right = high
		}
		x.check(t, catalog.MergeMappings{Left: m, Right: x.current[right], Token: token, RightToken: token},
			x.merge(first, right, token, token), m, x.current[right])
	case "lock":
		if token == "" {
			token = "t"
		}
		x.check(t, catalog.LockMapping{Mapping: m, Lock: shardway.Lock{Token: token, Owner: "o"}}, x.lock(first, token))
	case "unlock":
		x.check(t, catalog.UnlockMapping{Mapping: m, Token: token, Force: online}, x.unlock(first, token, online))
	}
}

// stepAdd adds one to three mappings at once.
func (x *trial) stepAdd(t *rapid.T, shard int, online bool) {
	trial, want := x.oracle, error(nil)
	var news []catalog.NewMapping
	for i := range rapid.IntRange(1, 3).Draw(t, "new mappings") {
		low := rapid.IntRange(0, keys-1).Draw(t, "low")
		high := rapid.IntRange(low, min(low+4, keys)).Draw(t, "high")
		if x.kind == shardway.ListMap {
			high = low + 1
		}
		s := (shard + i) % len(x.shards)
		news = append(news, catalog.NewMapping{Range: x.of(low, high), ShardID: x.shards[s].ID, Offline: !online})
		// A malformed one is found before one that is taken.
		if err := trial.add(low, high, s, online); want == nil || errors.Is(err, shardway.ErrInvalid) {
			want = err
		}
	}
	if want == nil {
		x.oracle = trial
	}
	x.check(t, catalog.AddMappings{Map: x.m, New: news}, want)
}

// check makes a change and compares its outcome, and then everything, with the oracle.
func (x *trial) check(t *rapid.T, ch catalog.Change, want error, replaced ...shardway.Mapping) {
	if _, err := x.c.Preview(t.Context(), ch); !errors.Is(err, want) {
		t.Fatalf("Preview of %+v = %v, want %v", ch, err, want)
	}
	if _, err := x.c.Do(t.Context(), ch); !errors.Is(err, want) {
		t.Fatalf("%+v: %v, want %v", ch, err, want)
	}
	if want == nil {
		x.gone = append(x.gone, replaced...)
	}
	clear(x.current)
	var lines []string
	for m, err := range x.c.Mappings(t.Context(), store.MappingQuery{Map: x.m}) {
		if err != nil {
			t.Fatal(err)
		}
		low, high := number(m.Range.Low), 0
		if !m.Range.Open() {
			high = number(m.Range.High)
		}
		x.current[low] = m
		shard := slices.IndexFunc(x.shards, func(s shardway.Shard) bool { return s.ID == m.ShardID })
		lines = append(lines, fmt.Sprintf("%d-%d shard %d online %t token %q", low, high, shard, m.Status == shardway.Online, m.Lock.Token))
	}
	if !slices.Equal(lines, x.lines()) {
		t.Fatalf("after %+v:\n got %q\nwant %q", ch, lines, x.lines())
	}
	if x.quick {
		return
	}
	for i, s := range x.slots {
		m, err := x.c.MappingForKey(t.Context(), x.m, k(int64(i)))
		if s.mapped != (err == nil) || err != nil && !errors.Is(err, shardway.ErrKeyNotMapped) || err == nil && m != x.current[s.first] {
			t.Fatalf("MappingForKey(%d) = %+v, %v, want %+v", i, m, err, s)
		}
	}
}

func number(key shardway.Key) int { return int(int64(key.Uint64() ^ 1<<63)) }

// TestOracle makes random sequences of changes, possible and impossible ones:
// after each, the store says what a slow, obvious map says, key by key.
func TestOracle(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg := e.empty(t)
		c := rg.client(catalog.Config{})
		quick, maxSteps, maps := e.name != memory.name, 40, 0
		if quick {
			maxSteps = 8
		}
		rapid.Check(t, func(rt *rapid.T) {
			kind := rapid.SampledFrom([]shardway.MapKind{shardway.RangeMap, shardway.ListMap}).Draw(rt, "map kind")
			x := &trial{c: c, quick: quick, current: map[int]shardway.Mapping{}, oracle: oracle{kind: kind}}
			maps++
			x.m = do(t, c, catalog.CreateShardMap{Name: fmt.Sprint("m", maps), Kind: kind, KeyKind: shardway.KindInt64}).Map
			for i := range 3 {
				x.shards = append(x.shards, do(t, c, catalog.AddShard{Map: x.m, Name: fmt.Sprint(i), Location: at(fmt.Sprint("db", i))}).Shards[0])
			}
			for range rapid.IntRange(1, maxSteps).Draw(rt, "steps") {
				x.step(rt)
			}
		})
		rg.look(t).checkSettled(t)
	})
}

package shardway_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardway/shardway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource is a global store in memory that counts, fails and waits as told.
// Its maps are changed directly: it has no protocol.
type fakeSource struct {
	lookups, loads, polls atomic.Int64
	rows                  atomic.Int64 // mappings handed out by loads
	running, most         atomic.Int64 // lookups at work now, and at most at a time

	mu      sync.Mutex // guards the fields below
	down    error
	before  func(ctx context.Context) error // runs in every lookup before it looks
	after   func(a *shardway.Answer)        // runs in every lookup after it looked
	maps    map[string]*fakeMap
	lastID  int64
	history int64 // changes up to this generation are forgotten
}

type fakeMap struct {
	described shardway.ShardMap
	shards    []shardway.Shard
	mappings  []shardway.Mapping // ordered by low key
	changes   []fakeChange
}

type fakeChange struct {
	generation int64
	ranges     []shardway.Range // none: only shards changed
}

func newFake() *fakeSource { return &fakeSource{maps: map[string]*fakeMap{}} }

func (f *fakeSource) id() int64 {
	f.lastID++
	return f.lastID
}

// addMap makes a map with shards s1, s2 and s3.
func (f *fakeSource) addMap(name string, kind shardway.MapKind, keys shardway.KeyKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &fakeMap{described: shardway.ShardMap{ID: shardway.MapID(f.id()), Name: name, Kind: kind, KeyKind: keys, Generation: 1}}
	for _, name := range []string{"s1", "s2", "s3"} {
		m.shards = append(m.shards, shardway.Shard{
			ID: shardway.ShardID(f.id()), MapID: m.described.ID, Name: name, Version: f.id(),
			Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "/" + name}}},
		})
	}
	f.maps[name] = m
}

func (f *fakeSource) dropMap(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.maps, name)
}

// put maps a range (or point) to a shard; an empty shard name unmaps it. All
// mappings that intersect it go.
func (f *fakeSource) put(name string, r shardway.Range, shard string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maps[name].put(f, r, shard)
}

func (m *fakeMap) put(f *fakeSource, r shardway.Range, shard string) {
	m.mappings = slices.DeleteFunc(m.mappings, func(old shardway.Mapping) bool { return m.meets(old.Range, r) })
	if shard != "" {
		m.mappings = append(m.mappings, shardway.Mapping{
			ID: shardway.MappingID(f.id()), MapID: m.described.ID, Range: r, ShardID: m.shard(shard).ID, Status: shardway.Online,
		})
		slices.SortFunc(m.mappings, func(a, b shardway.Mapping) int { return a.Range.Low.Compare(b.Range.Low) })
	}
	m.changed(r)
}

func (m *fakeMap) changed(ranges ...shardway.Range) {
	m.described.Generation++
	m.changes = append(m.changes, fakeChange{m.described.Generation, ranges})
}

func (m *fakeMap) meets(a, b shardway.Range) bool {
	if m.described.Kind == shardway.ListMap {
		return a.Low == b.Low
	}
	return a.Intersects(b)
}

func (m *fakeMap) shard(name string) *shardway.Shard {
	i := slices.IndexFunc(m.shards, func(s shardway.Shard) bool { return s.Name == name })
	return &m.shards[i]
}

// moveShard changes the address of a shard in place.
func (f *fakeSource) moveShard(mapName, shard, address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.maps[mapName]
	s := m.shard(shard)
	s.Location.Servers = []shardway.Server{{Address: address}}
	s.Version = f.id()
	m.changed()
}

// set changes how the source behaves.
func (f *fakeSource) set(change func(f *fakeSource)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// find returns a map that is there, with f.mu held by the caller.
func (f *fakeSource) find(described shardway.ShardMap) (*fakeMap, error) {
	if f.down != nil {
		return nil, f.down
	}
	m := f.maps[described.Name]
	if m == nil || m.described.ID != described.ID {
		return nil, shardway.ErrMapNotFound
	}
	return m, nil
}

func (f *fakeSource) ShardMap(_ context.Context, name string) (shardway.ShardMap, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return shardway.ShardMap{}, f.down
	}
	if m := f.maps[name]; m != nil {
		return m.described, nil
	}
	return shardway.ShardMap{}, shardway.ErrMapNotFound
}

func (f *fakeSource) Lookup(ctx context.Context, described shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	f.lookups.Add(1)
	f.most.Store(max(f.most.Load(), f.running.Add(1)))
	defer f.running.Add(-1)
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return shardway.Answer{}, err
		}
	}
	a, err := f.lookup(described, key)
	if err == nil && after != nil {
		after(&a)
	}
	return a, err
}

func (f *fakeSource) lookup(described shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.find(described)
	if err != nil {
		return shardway.Answer{}, err
	}
	a := shardway.Answer{Generation: m.described.Generation}
	for _, mapping := range m.mappings {
		if m.meets(mapping.Range, shardway.Range{Low: key}) && (mapping.Range.Low == key || mapping.Range.Contains(key)) {
			a.Found, a.Mapping = true, mapping
			a.Shard = m.shards[slices.IndexFunc(m.shards, func(s shardway.Shard) bool { return s.ID == mapping.ShardID })]
		}
	}
	return a, nil
}

func (f *fakeSource) Load(_ context.Context, described shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	f.loads.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.find(described)
	if err != nil {
		return shardway.MapState{}, err
	}
	var low, high []byte
	for _, mapping := range m.mappings {
		r := mapping.Range
		switch {
		case within.Low.IsZero():
		case described.Kind == shardway.ListMap && !within.Contains(r.Low):
			continue
		case described.Kind == shardway.RangeMap && !within.Intersects(r):
			continue
		}
		low = r.Low.AppendEncoded(low[:0])
		row := shardway.MappingRow{ID: mapping.ID, Low: low, ShardID: mapping.ShardID, Status: mapping.Status}
		if !r.Open() {
			high = r.High.AppendEncoded(high[:0])
			row.High = high
		}
		f.rows.Add(1)
		if err := each(row); err != nil {
			return shardway.MapState{}, fmt.Errorf("reading rows: %w", err)
		}
		clear(low)
		clear(high)
	}
	return shardway.MapState{Shards: slices.Clone(m.shards), Generation: m.described.Generation}, nil
}

func (f *fakeSource) Changes(_ context.Context, described shardway.ShardMap, since int64) (shardway.Changes, error) {
	f.polls.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.find(described)
	if err != nil {
		return shardway.Changes{}, err
	}
	c := shardway.Changes{Generation: m.described.Generation, Complete: since >= f.history}
	for _, change := range m.changes {
		if change.generation > since && c.Complete {
			c.Shards = c.Shards || len(change.ranges) == 0
			c.Ranges = append(c.Ranges, change.ranges...)
		}
	}
	return c, nil
}

// open returns a router of f that is closed with the test.
func (f *fakeSource) open(t testing.TB, cfg shardway.Config) *shardway.Router {
	t.Helper()
	r, err := shardway.Open(t.Context(), f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// ints returns [low, high); a high of 0 is open.
func ints(low, high int64) shardway.Range {
	r := shardway.Range{Low: shardway.Int64Key(low)}
	if high != 0 {
		r.High = shardway.Int64Key(high)
	}
	return r
}

// customers is a range map of int64 with [0, 100) on s1, [100, 200) on s2 and
// nothing else, opened lazily.
func customers(t testing.TB, cfg shardway.Config) (*fakeSource, *shardway.Router, *shardway.RangeShardMap[int64]) {
	t.Helper()
	f := newFake()
	f.addMap("customers", shardway.RangeMap, shardway.KindInt64)
	f.put("customers", ints(0, 100), "s1")
	f.put("customers", ints(100, 200), "s2")
	r := f.open(t, cfg)
	m, err := shardway.OpenRangeShardMap[int64](t.Context(), r, "customers")
	if err != nil {
		t.Fatal(err)
	}
	return f, r, m
}

// want checks the shard of a route and that there was no error.
func want(t testing.TB, route shardway.Route, err error, shard string) {
	t.Helper()
	if err != nil || route.Shard == nil || route.Shard.Name != shard {
		t.Fatalf("route to %v, %v; want %s", route.Shard, err, shard)
	}
}

// wantLookups checks how many keys the store was asked for since the last call.
func (f *fakeSource) wantLookups(t testing.TB, n int64) {
	t.Helper()
	if got := f.lookups.Swap(0); got != n {
		t.Errorf("the store was asked for %d keys, want %d", got, n)
	}
}

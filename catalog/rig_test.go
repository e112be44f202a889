package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// rig is one global store, its local stores by address, and clients on them.
type rig struct {
	t      *testing.T
	global store.Global
	mu     sync.Mutex // guards the fields below
	locals map[string]store.Local
	opened []string // addresses, in the order in which they were opened first
	down   map[string]bool
	alias  map[string]string // another name of an address
	open   func(t *testing.T) store.Local

	ahead atomic.Int64 // what the clock of a global store in memory shows more than this machine's
}

func newRig(t *testing.T, global store.Global, open func(t *testing.T) store.Local) *rig {
	return &rig{t: t, global: global, locals: map[string]store.Local{}, down: map[string]bool{}, alias: map[string]string{}, open: open}
}

// Open and Normalize make the rig a [catalog.Locals].
func (r *rig) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address := l.Servers[0].Address
	if name := r.alias[address]; name != "" {
		address = name
	}
	if strings.HasPrefix(address, "dead") || r.down[l.Servers[0].Address] {
		return nil, fmt.Errorf("connecting to %s: %w", address, shardway.ErrUnavailable)
	}
	if r.locals[address] == nil {
		r.locals[address] = r.open(r.t)
		r.opened = append(r.opened, address)
	}
	return strided{r.locals[address]}, nil
}

func (r *rig) Normalize(l shardway.Location) (shardway.Location, error) {
	l.Servers = slices.Clone(l.Servers)
	for i := range l.Servers {
		l.Servers[i].Address = strings.ToLower(l.Servers[i].Address)
	}
	return l, nil
}

// shut lets a server go down, or come back.
func (r *rig) shut(address string, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[address] = down
}

func (r *rig) client(cfg catalog.Config) *catalog.Catalog {
	r.t.Helper()
	c, err := catalog.New(r.global, r, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func at(address string) shardway.Location {
	return shardway.Location{Engine: "test", Database: "app", Servers: []shardway.Server{{Address: address}}}
}

func k(v int64) shardway.Key { return shardway.Int64Key(v) }

func r(low, high int64) shardway.Range { return shardway.Range{Low: k(low), High: k(high)} }

func ptr[T any](v T) *T { return &v }

func do(t *testing.T, c *catalog.Catalog, ch catalog.Change) catalog.Result {
	t.Helper()
	res, err := c.Do(t.Context(), ch)
	if err != nil {
		t.Fatalf("%T: %v", ch, err)
	}
	return res
}

// world is what the tests start from.
type world struct {
	ranges, points, empty shardway.ShardMap
	s1, s2, s3            shardway.Shard   // of ranges
	p1, p2                shardway.Shard   // of points, in the same databases
	a, b, c, d, e         shardway.Mapping // [0,100) on, [100,200) off, [200,300) on and locked, all on s1; [300,400) on, [400,500) on, both on s2
	one, two              shardway.Mapping // 1 on at p1, 2 off at p2
}

const token = shardway.LockToken("token of c")

// populate makes the world.
func populate(r *rig) world {
	r.t.Helper()
	c := r.client(catalog.Config{Who: "setup"})
	var w world
	makeMap := func(name string, kind shardway.MapKind) shardway.ShardMap {
		return do(r.t, c, catalog.CreateShardMap{Name: name, Kind: kind, KeyKind: shardway.KindInt64}).Map
	}
	shard := func(m shardway.ShardMap, name string) shardway.Shard {
		return do(r.t, c, catalog.AddShard{Map: m, Name: name, Location: at("db-" + name)}).Shards[0]
	}
	w.ranges, w.points, w.empty = makeMap("ranges", shardway.RangeMap), makeMap("points", shardway.ListMap), makeMap("empty", shardway.RangeMap)
	w.s1, w.s2, w.s3 = shard(w.ranges, "s1"), shard(w.ranges, "s2"), shard(w.ranges, "s3")
	w.p1, w.p2 = shard(w.points, "s1"), shard(w.points, "s2")
	ms := do(r.t, c, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{
		{Range: rangeOf(0, 100), ShardID: w.s1.ID},
		{Range: rangeOf(100, 200), ShardID: w.s1.ID, Offline: true},
		{Range: rangeOf(200, 300), ShardID: w.s1.ID},
		{Range: rangeOf(300, 400), ShardID: w.s2.ID},
		{Range: rangeOf(400, 500), ShardID: w.s2.ID},
	}}).Mappings
	w.a, w.b, w.d, w.e = ms[0], ms[1], ms[3], ms[4]
	w.c = do(r.t, c, catalog.LockMapping{Mapping: ms[2], Lock: shardway.Lock{Token: token, Owner: "ann", Reason: "test"}}).Mappings[0]
	ps := do(r.t, c, catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{
		{Range: shardway.RangeFrom(k(1)), ShardID: w.p1.ID},
		{Range: shardway.RangeFrom(k(2)), ShardID: w.p2.ID, Offline: true},
	}}).Mappings
	w.one, w.two = ps[0], ps[1]
	return w
}

func rangeOf(low, high int64) shardway.Range { return r(low, high) }

// dump is what a store says, without the ids and versions that every change
// gives anew: what two runs of one change must agree about.
type dump struct {
	Maps     []string
	Shards   []string
	Mappings []string
}

// owned is a mapping as a local store has it.
type owned struct {
	address string
	shardway.Mapping
}

// sight is everything that the stores of a rig hold at one moment at which
// nobody writes.
type sight struct {
	published  dump                                       // what routers see, read through their interface
	byID       map[shardway.MappingID]shardway.MappingRow // the same mappings
	maps       []shardway.ShardMap                        // as the global store has them
	shards     []store.ShardRow                           // the same
	mappings   []store.MappingRow                         // the same
	operations []store.Operation                          // the same
	owned      []owned                                    // as the local stores have them
	local      map[string]int                             // shard → in how many local stores it stands
}

func (r *rig) look(t *testing.T) *sight {
	t.Helper()
	s := &sight{byID: map[shardway.MappingID]shardway.MappingRow{}, local: map[string]int{}}
	err := r.global.View(t.Context(), func(tx store.Reader) (err error) {
		if s.maps, err = tx.ShardMaps(t.Context()); err != nil {
			return err
		}
		if s.shards, err = tx.Shards(t.Context(), 0); err != nil {
			return err
		}
		if s.operations, err = tx.Operations(t.Context(), store.OperationQuery{}); err != nil {
			return err
		}
		s.mappings = nil
		for _, m := range s.maps {
			for row, err := range tx.Mappings(t.Context(), store.MappingQuery{Map: m}) {
				if err != nil {
					return err
				}
				s.mappings = append(s.mappings, row)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.maps {
		s.load(t, r.global, m)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, local := range r.locals {
		s.read(t, address, local)
	}
	return s
}

func (s *sight) load(t *testing.T, global store.Global, m shardway.ShardMap) {
	t.Helper()
	s.published.Maps = append(s.published.Maps, fmt.Sprint(m.Name, " ", m.Kind, " ", m.KeyKind))
	names := map[shardway.ShardID]string{}
	var rows []shardway.MappingRow
	state, err := global.Load(t.Context(), m, shardway.Range{}, func(row shardway.MappingRow) error {
		row.Low, row.High = slices.Clone(row.Low), slices.Clone(row.High)
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range state.Shards {
		names[shard.ID] = shard.Name
		s.published.Shards = append(s.published.Shards, fmt.Sprint(m.Name, " ", shard.Name, " ", shard.Location, " ", shard.Status))
	}
	for _, row := range rows {
		s.byID[row.ID] = row
		s.published.Mappings = append(s.published.Mappings, fmt.Sprintf("%s [%x,%x) %s %s", m.Name, row.Low, row.High, names[row.ShardID], row.Status))
	}
}

func (s *sight) read(t *testing.T, address string, local store.Local) {
	t.Helper()
	maps, err := local.Read(t.Context(), 0)
	if errors.Is(err, shardway.ErrNoStore) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		s.local[fmt.Sprint(m.Map.Name, " ", m.Shard.Name, " ", m.Shard.Location, " ", m.Shard.Status)]++
		for _, row := range m.Mappings {
			s.owned = append(s.owned, owned{address, row})
		}
	}
}

// checkAlways checks what holds at every moment, in the middle of a change too:
// I2, a key is owned by at most one local store, and I4, every mark belongs to
// one operation that holds its inverse.
func (s *sight) checkAlways(t *testing.T) {
	t.Helper()
	for i, x := range s.owned {
		for _, y := range s.owned[:i] {
			if x.MapID == y.MapID && shareKey(s.kind(x.MapID), x.Range, y.Range) {
				t.Errorf("I2: %s %s on %s and %s %s on %s own a key in common", x.Range, x.ID, x.address, y.Range, y.ID, y.address)
			}
		}
	}
	held := map[store.OperationID]map[shardway.MappingID]bool{}
	shards := map[store.OperationID]map[shardway.ShardID]bool{}
	for _, op := range s.operations {
		held[op.ID], shards[op.ID] = map[shardway.MappingID]bool{}, map[shardway.ShardID]bool{}
		for _, m := range append(op.Removed(), op.Added()...) {
			held[op.ID][m.ID] = true
		}
		for _, step := range op.Steps {
			if step.Before != nil || step.After != nil {
				shards[op.ID][step.Shard.ID] = true
			}
		}
	}
	for _, row := range s.mappings {
		if (row.Operation != 0 || row.Pending) && !held[row.Operation][row.ID] {
			t.Errorf("I4: mapping %s is marked by %s, which does not hold it", row.ID, row.Operation)
		}
	}
	for _, row := range s.shards {
		if (row.Operation != 0 || row.Pending) && !shards[row.Operation][row.ID] {
			t.Errorf("I4: shard %q is marked by %s, which does not hold it", row.Name, row.Operation)
		}
	}
}

func (s *sight) kind(id shardway.MapID) shardway.MapKind {
	for _, m := range s.maps {
		if m.ID == id {
			return m.Kind
		}
	}
	return 0
}

func shareKey(kind shardway.MapKind, a, b shardway.Range) bool {
	if kind == shardway.ListMap {
		return a.Low == b.Low
	}
	return a.Intersects(b)
}

// checkSettled checks what holds when nothing is under way: no operation, no
// mark, and global and local maps that say the same, id by id.
func (s *sight) checkSettled(t *testing.T) {
	t.Helper()
	s.checkAlways(t)
	left := maps.Clone(s.byID)
	for _, o := range s.owned {
		row, ok := left[o.ID]
		if !ok {
			t.Errorf("local store %s has mapping %s %s, the global store has not", o.address, o.Range, o.ID)
			continue
		}
		delete(left, o.ID)
		if row.ShardID != o.ShardID || row.Status != o.Status || !slices.Equal(row.Low, o.Range.Low.Encoded()) || !slices.Equal(row.High, o.Range.High.Encoded()) {
			t.Errorf("mapping %s: global store says %+v, local store %s says %+v", o.ID, row, o.address, o.Mapping)
		}
	}
	for id, row := range left {
		t.Errorf("mapping %s %+v is in no local store", id, row)
	}
	for _, shard := range s.published.Shards {
		if s.local[shard] != 1 {
			t.Errorf("shard %q stands in %d local stores", shard, s.local[shard])
		}
	}
	if len(s.local) != len(s.published.Shards) {
		t.Errorf("local stores have shards %v, the global store has %v", s.local, s.published.Shards)
	}
	for _, op := range s.operations {
		t.Errorf("operation %s (%s) is pending", op.ID, op.Kind)
	}
	for _, row := range s.shards {
		if row.Operation != 0 || row.Pending {
			t.Errorf("shard %q is marked", row.Name)
		}
	}
	for _, row := range s.mappings {
		if row.Operation != 0 || row.Pending {
			t.Errorf("mapping %s is marked", row.ID)
		}
	}
}

// checkPublished compares what routers see with what is expected.
func (s *sight) checkPublished(t *testing.T, what string, want ...dump) {
	t.Helper()
	var diffs []string
	for _, w := range want {
		diff := cmp.Diff(w, s.published)
		if diff == "" {
			return
		}
		diffs = append(diffs, diff)
	}
	t.Errorf("%s: routers see something else (-want +got):\n%s", what, strings.Join(diffs, "\nnor\n"))
}

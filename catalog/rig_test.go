package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	open   func(t *testing.T) store.Local
}

func newRig(t *testing.T, global store.Global, open func(t *testing.T) store.Local) *rig {
	return &rig{t: t, global: global, locals: map[string]store.Local{}, open: open}
}

// Open and Normalize make the rig a [catalog.Locals].
func (r *rig) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address := l.Servers[0].Address
	if strings.HasPrefix(address, "dead") {
		return nil, fmt.Errorf("connecting to %s: %w", address, shardway.ErrUnavailable)
	}
	if r.locals[address] == nil {
		r.locals[address] = r.open(r.t)
		r.opened = append(r.opened, address)
	}
	return r.locals[address], nil
}

func (r *rig) Normalize(l shardway.Location) (shardway.Location, error) {
	l.Servers = slices.Clone(l.Servers)
	for i := range l.Servers {
		l.Servers[i].Address = strings.ToLower(l.Servers[i].Address)
	}
	return l, nil
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

// published returns what routers see, read through the routers' interface.
func (r *rig) published(t *testing.T) (d dump, byID map[shardway.MappingID]shardway.MappingRow) {
	t.Helper()
	byID = map[shardway.MappingID]shardway.MappingRow{}
	for _, m := range r.maps(t) {
		d.Maps = append(d.Maps, fmt.Sprint(m.Name, " ", m.Kind, " ", m.KeyKind))
		names := map[shardway.ShardID]string{}
		var rows []shardway.MappingRow
		state, err := r.global.Load(t.Context(), m, shardway.Range{}, func(row shardway.MappingRow) error {
			row.Low, row.High = slices.Clone(row.Low), slices.Clone(row.High)
			rows = append(rows, row)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range state.Shards {
			names[s.ID] = s.Name
			d.Shards = append(d.Shards, fmt.Sprint(m.Name, " ", s.Name, " ", s.Location, " ", s.Status))
		}
		for _, row := range rows {
			byID[row.ID] = row
			d.Mappings = append(d.Mappings, fmt.Sprintf("%s [%x,%x) %s %s", m.Name, row.Low, row.High, names[row.ShardID], row.Status))
		}
	}
	return d, byID
}

func (r *rig) maps(t *testing.T) (maps []shardway.ShardMap) {
	t.Helper()
	err := r.global.View(t.Context(), func(tx store.Reader) (err error) {
		maps, err = tx.ShardMaps(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return maps
}

// owned is a mapping as a local store has it.
type owned struct {
	address string
	shardway.Mapping
}

func (r *rig) owned(t *testing.T) (all []owned, shards map[string]int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	shards = map[string]int{}
	for address, local := range r.locals {
		maps, err := local.Read(t.Context(), 0)
		if errors.Is(err, shardway.ErrNoStore) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			shards[fmt.Sprint(m.Map.Name, " ", m.Shard.Name, " ", m.Shard.Location, " ", m.Shard.Status)]++
			for _, row := range m.Mappings {
				all = append(all, owned{address, row})
			}
		}
	}
	return all, shards
}

// checkAlways checks what holds at every moment, in the middle of a change too:
// I2, a key is owned by at most one local store, and I4, every mark belongs to
// one operation that holds its inverse.
func (r *rig) checkAlways(t *testing.T) {
	t.Helper()
	all, _ := r.owned(t)
	for i, x := range all {
		for _, y := range all[:i] {
			same := x.MapID == y.MapID && (x.Range.Low == y.Range.Low || !x.Range.Open() && !y.Range.Open() && x.Range.Intersects(y.Range))
			if same {
				t.Errorf("I2: %s %s on %s and %s %s on %s own a key in common", x.Range, x.ID, x.address, y.Range, y.ID, y.address)
			}
		}
	}
	err := r.global.View(t.Context(), func(tx store.Reader) error {
		ops, err := tx.Operations(t.Context(), store.OperationQuery{})
		if err != nil {
			return err
		}
		held := map[store.OperationID]map[shardway.MappingID]bool{}
		for _, op := range ops {
			held[op.ID] = map[shardway.MappingID]bool{}
			for _, m := range append(op.Removed(), op.Added()...) {
				held[op.ID][m.ID] = true
			}
		}
		maps, err := tx.ShardMaps(t.Context())
		if err != nil {
			return err
		}
		for _, m := range maps {
			for row, err := range tx.Mappings(t.Context(), store.MappingQuery{Map: m}) {
				if err != nil {
					return err
				}
				if (row.Operation != 0 || row.Pending) && !held[row.Operation][row.ID] {
					t.Errorf("I4: mapping %s is marked by %s, which does not hold it", row.ID, row.Operation)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkSettled checks what holds when nothing is under way: no operation, no
// mark, and global and local maps that say the same, id by id.
func (r *rig) checkSettled(t *testing.T) {
	t.Helper()
	r.checkAlways(t)
	d, byID := r.published(t)
	all, shards := r.owned(t)
	for _, o := range all {
		row, ok := byID[o.ID]
		if !ok {
			t.Errorf("local store %s has mapping %s %s, the global store has not", o.address, o.Range, o.ID)
			continue
		}
		delete(byID, o.ID)
		if row.ShardID != o.ShardID || row.Status != o.Status || !slices.Equal(row.Low, o.Range.Low.Encoded()) || !slices.Equal(row.High, o.Range.High.Encoded()) {
			t.Errorf("mapping %s: global store says %+v, local store %s says %+v", o.ID, row, o.address, o.Mapping)
		}
	}
	for id, row := range byID {
		t.Errorf("mapping %s %+v is in no local store", id, row)
	}
	for _, s := range d.Shards {
		if shards[s] != 1 {
			t.Errorf("shard %q stands in %d local stores", s, shards[s])
		}
	}
	if len(shards) != len(d.Shards) {
		t.Errorf("local stores have shards %v, the global store has %v", shards, d.Shards)
	}
	err := r.global.View(t.Context(), func(tx store.Reader) error {
		ops, err := tx.Operations(t.Context(), store.OperationQuery{})
		if len(ops) > 0 {
			t.Errorf("operation %s (%s) is pending", ops[0].ID, ops[0].Kind)
		}
		if err != nil {
			return err
		}
		rows, err := tx.Shards(t.Context(), 0)
		for _, row := range rows {
			if row.Operation != 0 || row.Pending {
				t.Errorf("shard %q is marked", row.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkPublished compares what routers see with what is expected.
func (r *rig) checkPublished(t *testing.T, what string, want ...dump) {
	t.Helper()
	got, _ := r.published(t)
	var diffs []string
	for _, w := range want {
		diff := cmp.Diff(w, got)
		if diff == "" {
			return
		}
		diffs = append(diffs, diff)
	}
	t.Errorf("%s: routers see something else (-want +got):\n%s", what, strings.Join(diffs, "\nnor\n"))
}

package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
	"github.com/shardway/shardway/store/sqlstore"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// rig is a global store and local stores by address. It is a [catalog.Locals].
type rig struct {
	t      *testing.T
	global store.Global
	open   func() store.Local
	more   func() *rig // another one of the same engine; nil in memory

	mu     sync.Mutex // guards the fields below
	locals map[string]store.Local
	down   map[string]bool
}

// each runs a test on memory and on all engines of this machine.
func each(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, memory(t))
	})
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) { test(t, sqlRig(t, e)) })
}

func memory(t *testing.T) *rig {
	t.Helper()
	g := memstore.NewGlobal()
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return newRig(t, g, func() store.Local { return memstore.NewLocal() })
}

func sqlRig(t *testing.T, e dbtest.Engine) *rig {
	t.Helper()
	db := e.NewDatabase(t)
	g, err := sqlstore.NewGlobal(db.Open(t), string(e))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, g, func() store.Local {
		l, err := sqlstore.NewLocal(e.NewDatabase(t).Open(t), string(e))
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
	r.more = func() *rig { return sqlRig(t, e) }
	return r
}

// another returns a new rig with the same kind of stores.
func (r *rig) another() *rig { return r.more() }

func newRig(t *testing.T, g store.Global, open func() store.Local) *rig {
	return &rig{t: t, global: g, open: open, locals: map[string]store.Local{}, down: map[string]bool{}}
}

func (r *rig) Open(_ context.Context, l shardway.Location) (store.Local, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	address := l.Servers[0].Address
	if r.down[address] {
		return nil, fmt.Errorf("connecting to %s: %w", address, shardway.ErrUnavailable)
	}
	if r.locals[address] == nil {
		r.locals[address] = r.open()
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

func (r *rig) shut(address string, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[address] = down
}

// renamed lets a database answer at another address alone.
func (r *rig) renamed(from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locals[to] = r.locals[from]
	delete(r.locals, from)
	r.down[from] = true
}

func (r *rig) lost(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locals[address] = r.open()
}

func (r *rig) client(cfg catalog.Config) *catalog.Catalog {
	r.t.Helper()
	return newCatalog(r.t, r.global, r, cfg)
}

func newCatalog(t *testing.T, g store.Global, l catalog.Locals, cfg catalog.Config) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New(g, l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *rig) recovery() *recovery.Recovery {
	r.t.Helper()
	return newRecovery(r.t, r.global, r, r.client(catalog.Config{Who: "operator"}))
}

func newRecovery(t *testing.T, g store.Global, l catalog.Locals, c *catalog.Catalog) *recovery.Recovery {
	t.Helper()
	rec, err := recovery.New(g, l, c, recovery.Config{Parallel: 3})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func at(address string) shardway.Location {
	return shardway.Location{Engine: "test", Database: "app", Servers: []shardway.Server{{Address: address}}}
}

func k(v int64) shardway.Key { return shardway.Int64Key(v) }

func span(low, high int64) shardway.Range { return shardway.Range{Low: k(low), High: k(high)} }

func point(v int64) shardway.Range { return shardway.RangeFrom(k(v)) }

func do(t *testing.T, c *catalog.Catalog, ch catalog.Change) catalog.Result {
	t.Helper()
	res, err := c.Do(t.Context(), ch)
	if err != nil {
		t.Fatalf("%T: %v", ch, err)
	}
	return res
}

// world is one map on three shards s1, s2 and s3.
type world struct {
	*rig

	m shardway.ShardMap
	s []shardway.Shard
	c *catalog.Catalog
	r *recovery.Recovery
}

func newWorld(r *rig, kind shardway.MapKind) *world {
	r.t.Helper()
	w := &world{rig: r, c: r.client(catalog.Config{Who: "setup"}), r: r.recovery()}
	w.m = do(r.t, w.c, catalog.CreateShardMap{Name: "customers", Kind: kind, KeyKind: shardway.KindInt64}).Map
	for _, name := range []string{"s1", "s2", "s3"} {
		w.s = append(w.s, do(r.t, w.c, catalog.AddShard{Map: w.m, Name: name, Location: at("db-" + name)}).Shards[0])
	}
	return w
}

// add gives ranges to a shard, on both sides.
func (w *world) add(shard int, ranges ...shardway.Range) []shardway.Mapping {
	w.t.Helper()
	var n []catalog.NewMapping
	for _, r := range ranges {
		n = append(n, catalog.NewMapping{Range: r, ShardID: w.s[shard].ID})
	}
	return do(w.t, w.c, catalog.AddMappings{Map: w.m, New: n}).Mappings
}

func (w *world) mapping(shard int, r shardway.Range, status shardway.MappingStatus) shardway.Mapping {
	return shardway.Mapping{ID: shardway.MappingID(store.NewID()), MapID: w.m.ID, Range: r, ShardID: w.s[shard].ID, Status: status}
}

func (w *world) local(shard int) store.Local {
	w.t.Helper()
	l, err := w.Open(w.t.Context(), w.shard(shard).Location)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// plantLocal changes a local map behind the back of the global one.
func (w *world) plantLocal(shard int, remove, add []shardway.Mapping) {
	w.t.Helper()
	s := store.LocalStep{
		Operation: store.OperationID(store.NewID()), Seq: 1 << 40, Epoch: 1, Map: w.m, Want: store.StepApplied,
		Step: store.Step{Shard: w.s[shard], Remove: remove, Add: add},
	}
	if _, err := w.local(shard).Step(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
}

// plantGlobal changes the global map behind the back of the local ones.
func (w *world) plantGlobal(remove, add []shardway.Mapping) {
	w.t.Helper()
	do(w.t, w.c, catalog.Reconcile{Map: w.m, Parts: []catalog.Part{{Shard: w.shard(0), Found: &w.s[0]}}, Remove: remove, Add: add, Kind: "plant"})
}

// shard returns the current row of a shard in the global map.
func (w *world) shard(i int) shardway.Shard {
	w.t.Helper()
	shards, err := w.c.Shards(w.t.Context(), w.m)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range shards {
		if s.ID == w.s[i].ID {
			return s
		}
	}
	w.t.Fatalf("shard %q is not in the map", w.s[i].Name)
	return shardway.Shard{}
}

// detect returns the reports of all shards, or of some.
func (w *world) detect(shards ...int) []recovery.Report {
	w.t.Helper()
	var ids []shardway.ShardID
	for _, i := range shards {
		ids = append(ids, w.s[i].ID)
	}
	reports, err := w.r.Detect(w.t.Context(), w.m, ids...)
	if err != nil {
		w.t.Fatal(err)
	}
	return reports
}

// differences are what a report found, as texts.
func differences(rep recovery.Report) []string {
	var all []string
	for _, d := range rep.Differences {
		text := d.Range.String()
		if rep.Map.Kind == shardway.ListMap {
			text = d.Range.Low.String()
		}
		text += " " + d.Place()
		if d.Global.Shard != "" && d.Global.Shard != rep.Shard.Name {
			text += " global " + d.Global.Shard
		}
		if d.Local != (recovery.Claim{}) && d.Global != (recovery.Claim{}) && d.Local.Status != d.Global.Status {
			text += fmt.Sprintf(" global %s local %s", d.Global.Status, d.Local.Status)
		}
		all = append(all, text)
	}
	return all
}

// checkClean demands that no shard has anything to resolve.
func (w *world) checkClean(what string) {
	w.t.Helper()
	for _, rep := range w.detect() {
		if !rep.Clean() || len(rep.Differences) > 0 {
			w.t.Errorf("%s: shard %q: %s %v %v %v", what, rep.Shard.Name, rep.State, differences(rep), rep.Fields, rep.Problem)
		}
	}
}

func (w *world) resolve(res recovery.Resolution) recovery.Effect {
	w.t.Helper()
	e, err := w.r.Resolve(w.t.Context(), res)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// published are the mappings of the global map, as texts without ids.
func (w *world) published() []string {
	w.t.Helper()
	names := map[shardway.ShardID]string{}
	shards, err := w.c.Shards(w.t.Context(), w.m)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range shards {
		names[s.ID] = s.Name
	}
	var all []string
	for m, err := range w.c.Mappings(w.t.Context(), store.MappingQuery{Map: w.m}) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", m.Format(w.m.Kind), names[m.ShardID], m.Status))
	}
	return all
}

// owned are the mappings of a local map, as texts without ids.
func (w *world) owned(address string) []string {
	w.t.Helper()
	local, err := w.Open(w.t.Context(), at(address))
	if err != nil {
		w.t.Fatal(err)
	}
	maps, err := local.Read(w.t.Context(), w.m.ID)
	if errors.Is(err, shardway.ErrNoStore) || err == nil && len(maps) == 0 {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, m := range maps[0].Mappings {
		all = append(all, fmt.Sprintf("%s %s", m.Format(w.m.Kind), m.Status))
	}
	return all
}

func one(m shardway.Mapping) []shardway.Mapping { return []shardway.Mapping{m} }

func (w *world) localMaps(address string) ([]store.LocalMap, error) {
	maps, _, err := w.r.LocalMaps(w.t.Context(), at(address))
	return maps, err
}

package sqlstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// table is the name of one of our tables in an engine.
func table(t testing.TB, e dbtest.Engine, name string) string {
	t.Helper()
	d, err := dialect.For(string(e))
	if err != nil {
		t.Fatal(err)
	}
	return d.SQL("{" + name + "}")
}

func addMap(t testing.TB, g *sqlstore.Global, name string) shardway.ShardMap {
	t.Helper()
	m := shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: name, Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	err := g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{AddMap: &m}, nil })
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = 1
	return m
}

// UPG-02: a store of another major version is refused before any write, by
// every method, with both versions in the text.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		for _, c := range []struct {
			major, minor int
			want         error
			text         string
		}{
			{store.Current.Major, store.Current.Minor + 7, nil, ""},
			{store.Current.Major + 1, 0, shardway.ErrStoreVersion, "version 2.0, this program works with 1.x: use a newer program"},
			{store.Current.Major - 1, 9, shardway.ErrStoreVersion, "version 0.9, this program works with 1.x: upgrade the store"},
		} {
			t.Run(fmt.Sprintf("%d.%d", c.major, c.minor), func(t *testing.T) {
				t.Parallel()
				db := e.NewDatabase(t)
				p := placeOf(t, db)
				known := p.deployed(t)
				m := addMap(t, known, "m")
				local := p.local(t)
				if err := local.Deploy(t.Context(), "id"); err != nil {
					t.Fatal(err)
				}
				pool := db.Open(t)
				for _, name := range []string{"store", "local_store"} {
					mustExec(t, pool, fmt.Sprintf("UPDATE %s SET major = %d, minor = %d", table(t, e, name), c.major, c.minor))
				}
				for name, err := range versionCalls(t, p, known, local, m) {
					if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
						t.Errorf("%s = %v, want %v with %q", name, err, c.want, c.text)
					}
				}
				var maps, operations int
				scan(t, pool, "SELECT COUNT(*) FROM "+table(t, e, "shard_maps"), &maps)
				scan(t, pool, "SELECT COUNT(*) FROM "+table(t, e, "local_operations"), &operations)
				if c.want != nil && (maps != 1 || operations != 0) {
					t.Errorf("a refused store was written to: %d maps, %d operations", maps, operations)
				}
			})
		}
	})
}

// versionCalls calls methods of handles that know the store as it was, and of
// fresh ones.
func versionCalls(t *testing.T, p place, known *sqlstore.Global, knownLocal *sqlstore.Local, m shardway.ShardMap) map[string]error {
	ctx := t.Context()
	errs := map[string]error{}
	add := func(name string, _ any, err error) { errs[name] = err }
	update := func(g *sqlstore.Global) error {
		fresh := shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: fmt.Sprint(store.NewID()), Kind: 1, KeyKind: 1}
		return g.Update(ctx, 0, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{AddMap: &fresh}, nil })
	}
	step := store.LocalStep{Operation: 1, Seq: 1, Epoch: 1, Map: m, Want: store.StepSeen}
	add("Update, known", nil, update(known))
	_, err := knownLocal.Step(ctx, step)
	add("Step, known", nil, err)
	add("Update", nil, update(p.global(t)))
	_, err = p.global(t).ShardMap(ctx, "m")
	add("ShardMap", nil, err)
	_, err = p.global(t).Lookup(ctx, m, shardway.Int64Key(1))
	add("Lookup", nil, err)
	_, err = p.global(t).Load(ctx, m, shardway.Range{}, func(shardway.MappingRow) error { return nil })
	add("Load", nil, err)
	_, err = p.global(t).Changes(ctx, m, 1)
	add("Changes", nil, err)
	add("View", nil, p.global(t).View(ctx, func(store.Reader) error { return nil }))
	_, err = p.local(t).Step(ctx, step)
	add("Step", nil, err)
	_, err = p.local(t).Read(ctx, 0)
	add("Read", nil, err)
	add("local Deploy", nil, p.local(t).Deploy(ctx, "id"))
	return errs
}

// A store of a newer version is not replaced by an older program.
func TestVersionNotReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		addMap(t, p.deployed(t), "m")
		pool := db.Open(t)
		mustExec(t, pool, "UPDATE "+table(t, e, "store")+" SET major = 2")
		for _, replace := range []bool{false, true} {
			if _, err := p.global(t).Deploy(t.Context(), replace); !errors.Is(err, shardway.ErrStoreVersion) {
				t.Errorf("Deploy(%v) = %v, want ErrStoreVersion", replace, err)
			}
		}
		var maps int
		scan(t, pool, "SELECT COUNT(*) FROM "+table(t, e, "shard_maps"), &maps)
		if maps != 1 {
			t.Errorf("%d maps are left, want 1", maps)
		}
	})
}

// UPG-05: a deployment that ended after any statement is made good by the next.
func TestDeployInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		d, err := dialect.For(string(e))
		if err != nil {
			t.Fatal(err)
		}
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		pool := db.Open(t)
		create := map[dialect.Part][]string{dialect.Global: d.Create(dialect.Global), dialect.Local: d.Create(dialect.Local)}
		for n := 0; n <= len(create[dialect.Global]); n++ {
			for part, statements := range create {
				for _, s := range statements[:min(n, len(statements))] {
					mustExec(t, pool, s)
				}
				_ = part
			}
			if _, err := p.global(t).Describe(t.Context()); !errors.Is(err, shardway.ErrNoStore) {
				t.Fatalf("Describe after %d statements = %v, want ErrNoStore", n, err)
			}
			g, l := p.deployed(t), p.local(t)
			if err := l.Deploy(t.Context(), "id"); err != nil {
				t.Fatalf("deploying over %d statements: %v", n, err)
			}
			changeOnce(t, g, l)
			for part := range create {
				for _, s := range d.Drop(part) {
					mustExec(t, pool, s)
				}
			}
		}
	})
}

// A store that was about to be replaced when its program died leaves no rows
// to the store that comes after it.
func TestReplaceInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		d, err := dialect.For(string(e))
		if err != nil {
			t.Fatal(err)
		}
		if d.TransactionalDDL {
			return // a transaction takes the first statements back
		}
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		pool := db.Open(t)
		for n := 1; n < len(d.Drop(dialect.Global)); n++ {
			addMap(t, p.deployed(t), "m")
			for _, s := range d.Drop(dialect.Global)[:n] {
				mustExec(t, pool, s)
			}
			g := p.deployed(t)
			if _, err := g.ShardMap(t.Context(), "m"); !errors.Is(err, shardway.ErrMapNotFound) {
				t.Errorf("after %d tables were dropped, the old map is there: %v", n, err)
			}
			if _, err := g.Deploy(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			for _, s := range d.Drop(dialect.Global) {
				mustExec(t, pool, s)
			}
		}
	})
}

// changeOnce makes one change through both stores.
func changeOnce(t testing.TB, g *sqlstore.Global, l *sqlstore.Local) (shardway.ShardMap, shardway.Mapping) {
	t.Helper()
	m := addMap(t, g, fmt.Sprintf("map %d", store.NewID()))
	s := shardway.Shard{
		ID: shardway.ShardID(store.NewID()), MapID: m.ID, Name: "s", Version: store.NewID(),
		Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "/x"}}},
	}
	mapping := shardway.Mapping{
		ID: shardway.MappingID(store.NewID()), MapID: m.ID, ShardID: s.ID, Status: shardway.Online,
		Range: shardway.FullRange(shardway.KindInt64),
	}
	o := &store.Operation{
		ID: store.OperationID(store.NewID()), Map: m, Epoch: 1,
		Steps: []store.Step{{Shard: s, After: &s, Add: []shardway.Mapping{mapping}}},
	}
	update := func(d store.Delta) {
		t.Helper()
		err := g.Update(t.Context(), m.ID, func(store.Reader, time.Time) (store.Delta, error) { return d, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	update(store.Delta{Prepare: o})
	if state, err := l.Step(t.Context(), store.LocalStep{Operation: o.ID, Seq: o.Seq, Epoch: 1, Map: m, Step: o.Steps[0], Want: store.StepApplied}); err != nil || state != store.StepApplied {
		t.Fatalf("Step = %d, %v", state, err)
	}
	update(store.Delta{Publish: o, History: []store.Entry{{Operation: o.ID, MapID: m.ID, MapName: m.Name, Ranges: []shardway.Range{mapping.Range}}}})
	answer, err := g.Lookup(t.Context(), m, shardway.Int64Key(42))
	if err != nil || !answer.Found || answer.Mapping.ID != mapping.ID {
		t.Fatalf("Lookup = %+v, %v", answer, err)
	}
	return m, mapping
}

package recovery_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// old is a global store of version 1.0 whose one shard is lost, and a copy of
// the shard's database at west, with a local store of that time.
type old struct {
	*world

	e    dbtest.Engine
	west *sql.DB
}

const lostAddress = "db1.example:5432" // of the fixture's shard

func newOld(t *testing.T, e dbtest.Engine) *old {
	t.Helper()
	east, west := e.NewDatabase(t).Open(t), e.NewDatabase(t).Open(t)
	load10(t, e, east)
	load10(t, e, west)
	o := &old{e: e, west: west}
	o.exec(t, east, "UPDATE {operations} SET lease_until = 0") // their owners are dead
	g, err := sqlstore.NewGlobal(east, string(e))
	if err != nil {
		t.Fatal(err)
	}
	l, err := sqlstore.NewLocal(west, string(e))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, g, func() store.Local { return l })
	r.locals["west"] = l
	r.down[lostAddress] = true
	o.world = &world{rig: r, c: r.client(catalog.Config{Who: "setup"}), r: r.recovery()}
	if o.m, err = o.c.ShardMap(t.Context(), "customers"); err == nil {
		o.s, err = o.c.Shards(t.Context(), o.m)
	}
	if err != nil || len(o.s) != 1 || o.s[0].Location.Servers[0].Address != lostAddress {
		t.Fatalf("shards of the fixture: %+v, %v", o.s, err)
	}
	return o
}

// load10 fills a database with the stores of version 1.0.
func load10(t *testing.T, e dbtest.Engine, pool *sql.DB) {
	t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("../store/sqlstore/testdata/store-1.0-%s.sql", e))
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(string(body)), "\n\n") {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
}

func (o *old) exec(t *testing.T, pool *sql.DB, text string) {
	t.Helper()
	d, err := dialect.For(string(o.e))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.ExecContext(t.Context(), d.SQL(text)); err != nil {
		t.Fatal(err)
	}
}

func (o *old) version() store.Version {
	o.t.Helper()
	d, err := o.locals["west"].Describe(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return d.Version
}

func (o *old) detach() {
	o.t.Helper()
	if _, err := o.r.Detach(o.t.Context(), recovery.Detach{Shard: o.s[0], Force: true, Gone: true}); err != nil {
		o.t.Fatal(err)
	}
}

// bringIn makes the mappings of the attached copy the global ones, and works
// with it.
func (o *old) bringIn(want []string) {
	o.t.Helper()
	rep := o.wantDifferences("attached", 0, "[-5, 0) local only", "[9007199254740992, +inf) local only")
	if rep.Local.Location.Servers[0].Address != "west" {
		o.t.Errorf("the local map has not got the new location: %+v", rep.Local)
	}
	o.resolve(recovery.Resolution{Report: rep, Keep: recovery.KeepLocal})
	o.wantPublished("resolved", want...)
	o.checkClean("resolved")
	o.toggle()
	o.wantPublished("changed twice", want...)
	o.checkClean("changed twice")
}

// toggle changes the first mapping and changes it back.
func (o *old) toggle() {
	o.t.Helper()
	for _, status := range []shardway.MappingStatus{shardway.Online, shardway.Offline} {
		for m, err := range o.c.Mappings(o.t.Context(), store.MappingQuery{Map: o.m, Limit: 1}) {
			if err != nil {
				o.t.Fatal(err)
			}
			do(o.t, o.c, catalog.UpdateMapping{Mapping: m, Status: &status})
		}
	}
}

// TestGeoFailoverOldStore is V17 with a local store of an older version: one
// that this program changes is attached as it is, and upgraded when that suits;
// one that is too old is upgraded by the attach; one of another major version
// is refused. Mappings are the same throughout.
func TestGeoFailoverOldStore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.EngineSQLServer {
			t.Skip("there is no fixture of version 1.0")
		}
		t.Run("within the window", func(t *testing.T) {
			t.Parallel()
			o := newOld(t, e)
			want := o.published()
			o.detach()
			if _, err := o.r.Attach(t.Context(), recovery.Attach{Map: o.m.Name, Location: at("west")}); err != nil {
				t.Fatal(err)
			}
			o.bringIn(want)
			if v := o.version(); v != (store.Version{Major: 1}) {
				t.Errorf("attaching made version %s of the local store", v)
			}
			for _, s := range []any{o.locals["west"], o.global} {
				if _, to, err := s.(store.Upgrader).Upgrade(t.Context()); err != nil || to != store.Current {
					t.Fatalf("upgrading: %s, %v", to, err)
				}
			}
			o.wantPublished("upgraded", want...)
			o.checkClean("upgraded")
			o.toggle()
			o.checkClean("changed after the upgrade")
		})
		t.Run("too old to be changed", func(t *testing.T) {
			t.Parallel()
			o := newOld(t, e)
			want := o.published()
			o.exec(t, o.west, fmt.Sprintf("UPDATE {local_store} SET minor = %d", store.Writable.Minor-1))
			tooOld := o.version()
			a := recovery.Attach{Map: o.m.Name, Location: at("west"), DryRun: true}
			if _, err := o.r.Attach(t.Context(), a); !errors.Is(err, shardway.ErrExists) {
				t.Errorf("attaching a shard that is there: %v", err)
			}
			o.detach()
			result, err := o.r.Attach(t.Context(), a)
			if err != nil || result.Operation != 0 || result.Summary != `shard "eu1 'quoted'" at test://west/app` {
				t.Errorf("dry run: %+v, %v", result, err)
			}
			if v := o.version(); v != tooOld {
				t.Errorf("what attaches nothing made version %s of %s", v, tooOld)
			}
			a.DryRun = false
			if _, err := o.r.Attach(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if v := o.version(); v != store.Current {
				t.Errorf("attaching left version %s, want %s", v, store.Current)
			}
			o.bringIn(want)
		})
		t.Run("too old to be changed, and of another global store", func(t *testing.T) {
			t.Parallel()
			o := newOld(t, e)
			want := o.published()
			o.exec(t, o.west, fmt.Sprintf("UPDATE {local_store} SET minor = %d, store_id = 'another'", store.Writable.Minor-1))
			tooOld := o.version()
			o.detach()
			a := recovery.Attach{Map: o.m.Name, Location: at("west"), Adopt: "another", DryRun: true}
			for _, v := range []store.Version{tooOld, store.Current} {
				if _, err := o.r.Attach(t.Context(), a); err != nil {
					t.Fatalf("dry run %t: %v", a.DryRun, err)
				}
				if got := o.version(); got != v {
					t.Errorf("dry run %t left version %s, want %s", a.DryRun, got, v)
				}
				a.DryRun = false
			}
			o.bringIn(want)
		})
		t.Run("another major version", func(t *testing.T) {
			t.Parallel()
			o := newOld(t, e)
			o.exec(t, o.west, "UPDATE {local_store} SET major = 2")
			before := o.published()
			o.detach()
			_, err := o.r.Attach(t.Context(), recovery.Attach{Map: o.m.Name, Location: at("west")})
			if !errors.Is(err, shardway.ErrStoreVersion) || !strings.Contains(err.Error(), "version 2.0, this program works with 1.x: use a newer program") {
				t.Errorf("attaching a newer store: %v", err)
			}
			if diff := cmp.Diff([]string(nil), o.published()); diff != "" || len(before) != 2 {
				t.Errorf("mappings after a refusal: %s", diff)
			}
		})
	})
}

package recovery_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
)

// strays are what the global store does not account for, as texts.
func (w *world) strays(ids ...shardway.ShardID) (all []string) {
	w.t.Helper()
	found, err := w.r.Strays(w.t.Context(), ids...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range found {
		all = append(all, fmt.Sprintf("%s of %s in %s, %d mappings, known %t, same name %t",
			s.Shard.Name, s.Map.Name, s.Location.Servers[0].Address, s.Mappings, s.Known, s.SameName))
	}
	return all
}

// TestStrays looks for local maps that the global store does not account for:
// of a map that it has lost, of a shard that was detached, and, while an
// operation adds one, of nobody. Attaching brings each of them in.
func TestStrays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		w.add(0, span(0, 10), span(10, 20))
		want := func(what string, texts ...string) {
			t.Helper()
			if diff := cmp.Diff(texts, w.strays()); diff != "" {
				t.Errorf("%s: strays (-want +got):\n%s", what, diff)
			}
		}
		want("all is known")

		// A second map on the same databases, of which the global store knows
		// nothing any more: its shards left, and the map was deleted.
		v := &victim{rig: r, at: 4, kind: killBefore} // the shard is in its database, and pending in the global store
		dying := newCatalog(t, victimGlobal{r.global, v}, v, catalog.Config{})
		tenants := do(t, w.c, catalog.CreateShardMap{Name: "tenants", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}).Map
		if _, err := dying.Do(t.Context(), catalog.AddShard{Map: tenants, Name: "west", Location: at("db-s1")}); err == nil {
			t.Fatal("the client did not die")
		}
		if maps, err := w.localMaps("db-s1"); err != nil || len(maps) != 2 {
			t.Fatalf("the shard is not in its database: %v, %v", maps, err)
		}
		want("a shard that is being added")
		if _, err := w.c.Recover(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		west, err := w.c.Shard(t.Context(), tenants, "west")
		if err != nil {
			t.Fatal(err)
		}
		do(t, w.c, catalog.AddMappings{Map: tenants, New: []catalog.NewMapping{{Range: point(7), ShardID: west.ID}}})
		want("added")
		if _, err := w.r.Detach(t.Context(), recovery.Detach{Shard: west, Force: true}); err != nil {
			t.Fatal(err)
		}
		want("detached", "west of tenants in db-s1, 1 mappings, known true, same name false")
		do(t, w.c, catalog.DeleteShardMap{Map: tenants})
		want("a map that is lost", "west of tenants in db-s1, 1 mappings, known false, same name false")
		other := do(t, w.c, catalog.CreateShardMap{Name: "tenants", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}).Map
		want("its name is taken", "west of tenants in db-s1, 1 mappings, known false, same name true")
		do(t, w.c, catalog.DeleteShardMap{Map: other})

		if got := w.strays(w.s[1].ID); got != nil {
			t.Errorf("in the database of another shard: %v", got)
		}
		r.shut("db-s1", true)
		want("a database that does not answer")
		r.shut("db-s1", false)
		adopt(t, w.local(0), w, "another")
		want("a database of another global store")
		giveBack(t, w, "another")

		// What is named can be brought in by its name and location.
		found, err := w.r.Strays(t.Context())
		if err != nil || len(found) != 1 {
			t.Fatalf("strays: %v, %v", found, err)
		}
		if _, err := w.r.Attach(t.Context(), recovery.Attach{Map: found[0].Map.Name, Location: found[0].Location, RestoreMap: true}); err != nil {
			t.Fatal(err)
		}
		want("attached")
	})
}

// giveBack makes a database that was adopted one of this global store again.
func giveBack(t *testing.T, w *world, from string) {
	t.Helper()
	if err := w.c.Adopt(t.Context(), w.shard(0).Location, from); err != nil {
		t.Fatal(err)
	}
}

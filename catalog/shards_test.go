package catalog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestShards adds, lists, gets, changes and deletes shards: S1, S4-S8, P22.
func TestShards(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c, other := rg.client(catalog.Config{}), rg.client(catalog.Config{})
		l := shardway.Location{Engine: "test", Database: "app", Servers: []shardway.Server{
			{Address: "DB-four", Tags: map[string]string{"zone": "a"}}, {Address: "db-four-b"},
		}}
		four := do(t, c, catalog.AddShard{Map: w.ranges, Name: "four", Location: l, Status: shardway.ShardOffline}).Shards[0]
		got, err := other.Shard(t.Context(), w.ranges, "four")
		if diff := cmp.Diff(four, got); err != nil || diff != "" {
			t.Errorf("Shard: %v (-made +got):\n%s", err, diff)
		}
		if got.Location.Servers[0].Address != "db-four" || got.Location.Servers[0].Tags["zone"] != "a" {
			t.Errorf("location is %+v", got.Location)
		}
		// Offline: takes no new mappings, neither added nor moved.
		refused(t, c, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(four.ID, 900, 901)}}, shardway.ErrInvalid, "four", "offline")
		refused(t, c, catalog.UpdateMapping{Mapping: w.b, ShardID: &four.ID}, shardway.ErrInvalid, "four", "offline")

		online := do(t, other, catalog.UpdateShard{Shard: four, Status: ptr(shardway.ShardOnline), Name: ptr("4")}).Shards[0]
		if online.ID != four.ID || online.Version == four.Version || online.Name != "4" || online.Status != shardway.ShardOnline {
			t.Errorf("updated shard is %+v", online)
		}
		refused(t, c, catalog.UpdateShard{Shard: four, Name: ptr("5")}, shardway.ErrStale, `"four"`)
		refused(t, c, catalog.DeleteShard{Shard: four}, shardway.ErrStale)
		mapping := do(t, c, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: r(900, 901), ShardID: four.ID, Offline: true}}}).Mappings[0]
		refused(t, c, catalog.DeleteShard{Shard: online}, shardway.ErrInUse)
		do(t, c, catalog.DeleteMapping{Mapping: mapping})
		do(t, c, catalog.DeleteShard{Shard: online})
		refused(t, c, catalog.DeleteShard{Shard: online}, shardway.ErrShardNotFound)
		if _, err := c.Shard(t.Context(), w.ranges, "4"); !errors.Is(err, shardway.ErrShardNotFound) {
			t.Errorf("Shard of nothing = %v", err)
		}
		shards, err := c.Shards(t.Context(), w.ranges)
		if diff := cmp.Diff([]shardway.Shard{w.s1, w.s2, w.s3}, shards); err != nil || diff != "" {
			t.Errorf("Shards: %v (-want +got):\n%s", err, diff)
		}
		// The name and the database are free again, the id is not.
		again := do(t, c, catalog.AddShard{Map: w.ranges, Name: "four", Location: l}).Shards[0]
		if again.ID == four.ID {
			t.Error("the id of a deleted shard was used again")
		}
		rg.look(t).checkSettled(t)
	})
}

// TestLocations lists every database once, although two maps share some: U3.
func TestLocations(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, _ := e.world(t)
		locations, err := rg.client(catalog.Config{}).Locations(t.Context())
		if diff := cmp.Diff([]shardway.Location{at("db-s1"), at("db-s2"), at("db-s3")}, locations); err != nil || diff != "" {
			t.Errorf("Locations: %v (-want +got):\n%s", err, diff)
		}
	})
}

// TestForeignShard offers databases that belong to another global store.
func TestForeignShard(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		other, _ := e.world(t)
		rg.locals["theirs"] = other.locals["db-s1"]
		before, theirs := rg.everything(t), other.everything(t)
		c := rg.client(catalog.Config{})
		refused(t, c, catalog.AddShard{Map: w.ranges, Name: "new", Location: at("theirs")}, shardway.ErrForeignStore, "theirs")
		refused(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("theirs"))}, shardway.ErrForeignStore, "theirs")
		if diff := cmp.Diff(before, rg.everything(t)); diff != "" {
			t.Errorf("our stores have changed (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(theirs, other.everything(t)); diff != "" {
			t.Errorf("their stores have changed (-before +after):\n%s", diff)
		}
	})
}

// TestMovedDatabase follows a database to another address in place: ids,
// mappings and the contents of its local store stay.
func TestMovedDatabase(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		rg.alias["new-host"] = "db-s1"
		rg.shut("db-s1", true)
		moved := do(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("New-Host")), OldGone: true}).Shards[0]
		if moved.ID != w.s1.ID || moved.Location.Servers[0].Address != "new-host" {
			t.Errorf("moved shard is %+v", moved)
		}
		do(t, c, catalog.SplitMapping{Mapping: w.a, At: k(50)})
		rg.look(t).checkSettled(t)
	})
}

// TestWrongNewLocation gives a shard the location of a database that has a
// local store of ours, but not this shard.
func TestWrongNewLocation(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		before := rg.look(t).published
		_, err := c.Do(t.Context(), catalog.UpdateShard{Shard: w.p1, Name: ptr("new"), Location: ptr(at("db-s3"))})
		if !errors.Is(err, store.ErrMapsDiffer) {
			t.Errorf("Do = %v, want %v", err, store.ErrMapsDiffer)
		}
		s := rg.look(t)
		s.checkSettled(t)
		s.checkPublished(t, "after the wrong location", before)
	})
}

// TestDeadOperationFollowsShard leaves an operation on a shard whose server is
// then replaced: recovery must go to the new address, the old one is gone.
func TestDeadOperationFollowsShard(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		for n := int32(2); n <= 4; n++ { // before the source step, the target step, the publication
			t.Run(fmt.Sprint(n), func(t *testing.T) { followShard(t, e, n) })
		}
	})
}

func followShard(t *testing.T, e engine, n int32) {
	rg, w := e.world(t)
	f := &faults{rig: rg, at: n, kind: killBefore}
	if _, err := f.client(catalog.Config{}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID}); !errors.Is(err, errKilled) {
		t.Fatalf("Do = %v", err)
	}
	rg.shut("db-s1", true)
	c := rg.client(catalog.Config{})
	if rec, err := c.Recover(t.Context(), true); err != nil || len(rec) != 1 || rec[0].Outcome != store.Pending || !errors.Is(rec[0].Err, shardway.ErrUnavailable) {
		t.Errorf("while the server is down, Recover = %+v, %v", rec, err)
	}
	rg.alias["new-host"] = "db-s1"
	refused(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("new-host"))}, shardway.ErrUnavailable, "gone")
	do(t, c, catalog.UpdateShard{Shard: w.s1, Location: ptr(at("new-host")), OldGone: true})
	if rec, err := c.Recover(t.Context(), true); err != nil || len(rec) != 1 || rec[0].Outcome == store.Pending {
		t.Errorf("Recover = %+v, %v", rec, err)
	}
	rg.look(t).checkSettled(t)
}

// TestDataSurvivesMaps uses one database for two maps: taking the shard out of
// one leaves the other alone.
func TestDataSurvivesMaps(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		off := do(t, c, catalog.UpdateMapping{Mapping: w.one, Status: ptr(shardway.Offline)}).Mappings[0]
		do(t, c, catalog.DeleteMapping{Mapping: off})
		do(t, c, catalog.DeleteShard{Shard: w.p1})
		s := rg.look(t)
		s.checkSettled(t)
		if n := len(list(t, c, store.MappingQuery{Map: w.ranges, ShardID: w.s1.ID})); n != 3 {
			t.Errorf("%d mappings are left on the shard of the other map, want 3", n)
		}
	})
}

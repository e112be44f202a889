package catalog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// abandon lets a client die right before its n-th commit.
func (r *rig) abandon(cfg catalog.Config, n int32, ch catalog.Change) {
	r.t.Helper()
	f := &faults{rig: r, at: n, kind: killBefore}
	if _, err := f.client(cfg).Do(r.t.Context(), ch); err == nil {
		r.t.Fatal("the client did not die")
	}
}

// TestWatch lets clients die in changes of two maps, one of them with a shard
// that then cannot be reached. The watcher ends what can be ended as soon as
// the leases are over, the other one once its shard is back, and goes on until
// it is told to stop.
func TestWatch(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		r, w := e.world(t)
		short := catalog.Config{Who: "dying", Lease: 100 * time.Millisecond}
		r.abandon(short, 3, catalog.SplitMapping{Mapping: w.a, At: k(50)})                                  // on s1
		r.abandon(short, 2, catalog.SplitMapping{Mapping: w.d, At: k(350)})                                 // on s2
		r.abandon(short, 2, catalog.UpdateMapping{Mapping: w.two, Status: ptr(shardway.Online)})            // in another map, on s2
		r.abandon(catalog.Config{Who: "at work", Lease: time.Hour}, 2, catalog.DeleteMapping{Mapping: w.b}) // on s1, with a lease
		r.shut("db-s2", true)
		ctx, stop := context.WithCancel(t.Context())
		ended := map[string]store.Outcome{}
		left, looks := 0, 0
		err := r.client(catalog.Config{Who: "watcher"}).Watch(ctx, catalog.Watch{Every: 5 * time.Millisecond, Look: func(all []catalog.Recovered, err error) {
			if err != nil {
				t.Errorf("looking: %v", err)
			}
			left, looks = 0, looks+1
			for _, rec := range all {
				if rec.Outcome != store.Pending {
					ended[rec.Operation.Map.Name+" "+rec.Operation.Summary] = rec.Outcome
				} else if left++; rec.Err == nil {
					t.Errorf("operation %s is pending without a reason", rec.Operation.ID)
				}
			}
			if left == 3 && len(ended) == 1 {
				r.shut("db-s2", false)
			}
			if left == 1 {
				stop()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v", err)
		}
		if len(ended) != 3 || left != 1 || looks < 2 {
			t.Errorf("after %d looks, ended %v, %d left", looks, ended, left)
		}
		ops, err := r.client(catalog.Config{}).Operations(t.Context())
		if err != nil || len(ops) != 1 || ops[0].Who != "at work" {
			t.Errorf("operations: %v, %v", ops, err)
		}
	})
}

// TestRecoverSome selects by map and by age.
func TestRecoverSome(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		r, w := e.world(t)
		r.abandon(catalog.Config{}, 2, catalog.SplitMapping{Mapping: w.a, At: k(50)})
		r.abandon(catalog.Config{}, 2, catalog.UpdateMapping{Mapping: w.two, Status: ptr(shardway.Online)})
		c := r.client(catalog.Config{Who: "second"})
		want := func(what string, s catalog.Selection, n int) {
			t.Helper()
			all, err := c.RecoverSome(t.Context(), s)
			if err != nil || len(all) != n {
				t.Errorf("%s: %v, %v", what, all, err)
			}
			for _, rec := range all {
				if rec.Outcome != store.Undone {
					t.Errorf("%s: %s is %s: %v", what, rec.Operation.Kind, rec.Outcome, rec.Err)
				}
			}
		}
		want("too young", catalog.Selection{OlderThan: time.Hour, Force: true}, 0)
		want("one map", catalog.Selection{Map: w.points.ID, Force: true, Parallel: 1}, 1)
		want("the rest", catalog.Selection{Force: true}, 1)
		if _, err := c.RecoverSome(t.Context(), catalog.Selection{OlderThan: -1}); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("a negative age: %v", err)
		}
		for _, bad := range []catalog.Watch{{Every: -1}, {Selection: catalog.Selection{OlderThan: -1}}, {Selection: catalog.Selection{Force: true}}} {
			if err := c.Watch(t.Context(), bad); !errors.Is(err, shardway.ErrInvalid) {
				t.Errorf("Watch(%+v) = %v", bad, err)
			}
		}
	})
}

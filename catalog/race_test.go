package catalog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestTakeOverRace lets a client stall at every commit of a change, and the
// client that takes over stall at every commit of its recovery while the first
// goes on. Whoever writes too late must be refused (I6), and what both report
// must be what has come of the change (I5).
func TestTakeOverRace(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		for _, kc := range killCases {
			switch kc.name {
			case "move offline range", "add ranges on three shards", "split", "add shard":
			default:
				continue
			}
			t.Run(kc.name, func(t *testing.T) {
				t.Parallel()
				cases := 0
				x := expect(t, kc.change)
				for n, more := int32(1), true; more; n++ {
					raced := true
					for m := int32(1); raced; m++ {
						more, raced = false, false
						//nolint:paralleltest // one case says whether there is a next
						t.Run(fmt.Sprintf("%d %d", n, m), func(t *testing.T) { more, raced = runRace(t, e, kc.change, n, m, x.before, x.after) })
						if raced {
							cases++
						}
					}
				}
				if cases < 5 {
					t.Errorf("only %d races were run", cases)
				}
				t.Logf("%d races", cases)
			})
		}
	})
}

// runRace runs one case. It reports whether the change has an n-th commit, and
// whether the recovery has an m-th.
func runRace(t *testing.T, e engine, change func(world) catalog.Change, n, m int32, before, after dump) (stalls, races bool) {
	r, w := e.world(t)

	stalled, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	first := &faults{rig: r, at: n, kind: undisturbed, meanwhile: func() { close(stalled); <-goOn }}
	go func() {
		c := first.client(catalog.Config{Who: "first", Lease: time.Minute, Wait: time.Nanosecond})
		_, err := c.Do(context.Background(), change(w))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("undisturbed change: %v", err)
		}
		return false, false
	case <-stalled:
	}
	var err error
	second := &faults{rig: r, at: m, kind: undisturbed, meanwhile: func() {
		r.look(t).checkAlways(t) // in the middle of the recovery
		close(goOn)
		err = <-ended
	}}
	recovered, rerr := second.client(catalog.Config{Who: "second", Lease: time.Minute}).Recover(t.Context(), true)
	if second.seen.Load() < m {
		close(goOn)
		if err := <-ended; err == nil && len(recovered) > 0 && recovered[0].Outcome != store.Done {
			t.Errorf("stalled at commit %d: the client reported success, recovered was %+v", n, recovered)
		}
		return true, false
	}
	name := fmt.Sprintf("stalled at commits %d (%s) and %d (%s)", n, first.label, m, second.label)
	if rerr != nil || len(recovered) != 1 {
		t.Fatalf("%s: recovered %v, %v", name, recovered, rerr)
	}
	s := r.look(t)
	s.checkSettled(t)
	want := before
	if recovered[0].Outcome == store.Done {
		want = after
	}
	s.checkPublished(t, name, want)
	if err == nil && recovered[0].Outcome != store.Done {
		t.Errorf("%s: the client reported success, the operation was %s", name, recovered[0].Outcome)
	}
	return true, true
}

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// crowd is many clients that change one map at once, and what they were told.
type crowd struct {
	m      shardway.ShardMap
	shards []shardway.Shard

	mu      sync.Mutex // guards the fields below
	alive   map[shardway.MappingID]bool
	changes int // that succeeded, and left an operation
}

// turn makes one random change and notes its success.
func (w *crowd) turn(t *testing.T, c *catalog.Catalog, rnd *rand.Rand) {
	known := list(t, c, store.MappingQuery{Map: w.m})
	ch, gone := w.choose(rnd, known)
	res, err := c.Do(context.WithoutCancel(t.Context()), ch)
	if err != nil {
		for _, expected := range []error{
			shardway.ErrStale, shardway.ErrExists, shardway.ErrMappingOnline, shardway.ErrMappingLocked, shardway.ErrInvalid, shardway.ErrShardNotFound,
		} {
			if errors.Is(err, expected) {
				return
			}
		}
		t.Errorf("%T: %v", ch, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if res.Operation != 0 {
		w.changes++
	}
	for _, m := range gone {
		w.alive[m.ID] = false
	}
	for _, m := range res.Mappings {
		if _, known := w.alive[m.ID]; !known { // ids are never used again
			w.alive[m.ID] = true
		}
	}
}

// choose returns a change that may well be possible, and the mappings that it replaces.
func (w *crowd) choose(rnd *rand.Rand, known []shardway.Mapping) (ch catalog.Change, gone []shardway.Mapping) {
	shard := w.shards[rnd.IntN(len(w.shards))].ID
	if len(known) == 0 || rnd.IntN(4) == 0 {
		low := rnd.Int64N(100)
		n := newRange(shard, low, low+1+rnd.Int64N(5))
		n.Offline = rnd.IntN(2) == 0
		return catalog.AddMappings{Map: w.m, New: []catalog.NewMapping{n}}, nil
	}
	i := rnd.IntN(len(known))
	m := known[i]
	gone = []shardway.Mapping{m}
	switch rnd.IntN(7) {
	case 0:
		return catalog.UpdateMapping{Mapping: m, Status: ptr(1 - m.Status)}, gone
	case 1:
		return catalog.UpdateMapping{Mapping: m, ShardID: &shard, Status: ptr(shardway.Offline)}, gone
	case 2:
		return catalog.SplitMapping{Mapping: m, At: k(rnd.Int64N(105))}, gone
	case 3:
		if i+1 < len(known) {
			return catalog.MergeMappings{Left: m, Right: known[i+1]}, append(gone, known[i+1])
		}
		fallthrough
	case 4:
		return catalog.DeleteMapping{Mapping: m}, gone
	case 5:
		return catalog.LockMapping{Mapping: m, Lock: shardway.Lock{Token: "crowd", Owner: "crowd"}}, nil
	default:
		return catalog.UnlockOwner{Map: w.m, Token: "crowd"}, nil
	}
}

// TestCrowd lets many goroutines of several clients change one map on four
// shards at once (ADM-04). Afterwards the stores agree, no key has two owners,
// the history has one entry for each success, and no success is lost.
func TestCrowd(t *testing.T) {
	t.Parallel()
	crowds := append(engines(t), sqlEngines(t, joint)...)
	for i := range joint {
		crowds[len(crowds)-1-i].name += ", one database"
	}
	each(t, crowds, func(t *testing.T, e engine) {
		rg := e.empty(t)
		setup := rg.client(catalog.Config{})
		w := &crowd{alive: map[shardway.MappingID]bool{}}
		w.m = do(t, setup, catalog.CreateShardMap{Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
		for i := range 4 {
			w.shards = append(w.shards, do(t, setup, catalog.AddShard{Map: w.m, Name: fmt.Sprint("s", i), Location: at(fmt.Sprint("db", i))}).Shards[0])
		}
		had := len(rg.history(t, w.m.ID))
		turns := 25
		if e.name == memory.name {
			turns = 300
		}
		var clients sync.WaitGroup
		for i := range 6 {
			// The machine may be slow: nobody is to be taken for dead.
			c := rg.client(catalog.Config{Who: fmt.Sprint("client ", i/2), Lease: time.Hour, Wait: time.Hour})
			seed := rand.Uint64()
			t.Logf("client %d: seed %d", i, seed)
			clients.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 0))
				for range turns {
					w.turn(t, c, rnd)
				}
			})
		}
		clients.Wait()
		s := rg.look(t)
		s.checkSettled(t)
		checkNoOverlap(t, s)
		if n := len(rg.history(t, w.m.ID)) - had; n != w.changes {
			t.Errorf("%d entries in the history, %d successes", n, w.changes)
		}
		for id, alive := range w.alive {
			if _, published := s.byID[id]; published != alive {
				t.Errorf("mapping %s: published: %t, as acknowledged: %t", id, published, alive)
			}
			delete(s.byID, id)
		}
		for id := range s.byID {
			t.Errorf("mapping %s was acknowledged to nobody", id)
		}
		t.Logf("%d changes succeeded", w.changes)
	})
}

func checkNoOverlap(t *testing.T, s *sight) {
	t.Helper()
	for i, a := range s.mappings {
		for _, b := range s.mappings[:i] {
			if a.MapID == b.MapID && shareKey(s.kind(a.MapID), a.Range, b.Range) {
				t.Errorf("mappings %s and %s share a key", a.Range, b.Range)
			}
		}
	}
}

// TestOneDatabase is ADM-03: the global store and a shard in one database. Every
// kind of change works there, and the long ones end well when their client dies
// after any of their commits.
func TestOneDatabase(t *testing.T) {
	t.Parallel()
	each(t, sqlEngines(t, joint), func(t *testing.T, e engine) {
		for _, kc := range killCases {
			//nolint:paralleltest // the engines are parallel; more would only need more databases
			t.Run(kc.name, func(t *testing.T) {
				x := expect(t, kc.change)
				//nolint:paralleltest // as above
				t.Run("undisturbed", func(t *testing.T) { runKill(t, e, kc.change, x, undisturbed, 0) })
				switch kc.name {
				case "move offline range", "add shard", "split", "rename shard":
					for n := int32(1); n <= x.commits; n++ {
						//nolint:paralleltest // as above
						t.Run(fmt.Sprint(n), func(t *testing.T) { runKill(t, e, kc.change, x, killAfter, n) })
					}
				}
			})
		}
	})
}

// TestManyDeleteOneMap lets many clients delete one map at once: all succeed,
// one of them has done it.
func TestManyDeleteOneMap(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		results := make([]catalog.Result, 5)
		var clients sync.WaitGroup
		for i := range results {
			c := rg.client(catalog.Config{})
			clients.Go(func() {
				var err error
				if results[i], err = c.Do(t.Context(), catalog.DeleteShardMap{Map: w.empty}); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		clients.Wait()
		done := 0
		for _, res := range results {
			if res.Operation != 0 {
				done++
			}
		}
		if done != 1 {
			t.Errorf("%d clients have deleted the map", done)
		}
	})
}

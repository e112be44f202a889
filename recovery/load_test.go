package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestLoad is C3 and C4: clients add, delete, split, merge, move and switch
// mappings, and add shards, all of one map at once, while one change in
// three dies or loses an acknowledgement at some commit. Once the
// operations of the dead have been recovered, nothing differs on any shard.
func TestLoad(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		w := newWorld(r, shardway.RangeMap)
		for i := range 3 {
			w.add(i, span(int64(i)*100, int64(i)*100+50), span(int64(i)*100+50, int64(i)*100+100))
		}
		const clients, changes = 4, 12
		var mu sync.Mutex // guards ended
		ended := map[string]int{}
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(c), 7)) //nolint:gosec // the same every time
				for n := range changes {
					v := &victim{rig: r, at: 1 << 20}
					if n%3 == 0 {
						v.at, v.kind = 1+rng.Int32N(3), []fault{killBefore, killAfter, lostAck, lostCommit, failOnce}[rng.IntN(5)]
					}
					ch, err := w.randomChange(t.Context(), rng, fmt.Sprintf("x%d-%d", c, n))
					client, errNew := catalog.New(victimGlobal{r.global, v}, v, catalog.Config{Lease: time.Second, Wait: 100 * time.Millisecond})
					if err = errors.Join(err, errNew); err == nil {
						_, err = client.Do(t.Context(), ch)
					}
					mu.Lock()
					if v.seen.Load() >= v.at {
						ended["faulty"]++
					}
					switch {
					case err == nil:
						ended["done"]++
					case v.dead.Load():
						ended["killed"]++
					case refusal(err):
						ended["refused"]++
					default:
						t.Errorf("%T: %v", ch, err)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if _, err := w.c.Recover(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if ops, err := w.c.Operations(t.Context()); err != nil || len(ops) > 0 {
			t.Errorf("operations are left: %v, %v", ops, err)
		}
		if ended["done"] < changes || ended["faulty"] == 0 {
			t.Errorf("too little has happened: %v", ended)
		}
		w.checkClean("C4")
		w.checkDoubles("C4", nil)
		w.checkMarks("C4")
	})
}

// refusal reports whether an error is what comes of others being quicker, or of
// a fault in a store.
func refusal(err error) bool {
	for _, target := range []error{
		shardway.ErrStale, shardway.ErrExists, shardway.ErrPending, shardway.ErrMappingOnline, shardway.ErrMappingOffline, shardway.ErrInUse,
		shardway.ErrKeyNotMapped, shardway.ErrShardNotFound, shardway.ErrInvalid, shardway.ErrUnavailable, store.ErrUnknownOutcome, store.ErrMappingBusy, errRefused, context.DeadlineExceeded,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// randomChange looks at the map and decides.
func (w *world) randomChange(ctx context.Context, rng *rand.Rand, name string) (catalog.Change, error) {
	shards, err := w.c.Shards(ctx, w.m)
	if err != nil {
		return nil, err
	}
	var mappings []shardway.Mapping
	for m, err := range w.c.Mappings(ctx, store.MappingQuery{Map: w.m}) {
		if err != nil {
			return nil, err
		}
		mappings = append(mappings, m)
	}
	shard := shards[rng.IntN(len(shards))]
	low := rng.Int64N(400)
	add := catalog.AddMappings{Map: w.m, New: []catalog.NewMapping{{Range: span(low, low+1+rng.Int64N(5)), ShardID: shard.ID}}}
	if len(mappings) < 2 {
		return add, nil
	}
	i := rng.IntN(len(mappings) - 1)
	m, next := mappings[i], mappings[i+1]
	switch rng.IntN(9) {
	case 0:
		return catalog.AddShard{Map: w.m, Name: name, Location: at("db-" + name)}, nil
	case 1:
		return catalog.DeleteMapping{Mapping: m}, nil
	case 2, 3:
		at, err := strconv.ParseInt(m.Range.Low.String(), 10, 64)
		return catalog.SplitMapping{Mapping: m, At: k(at + 1 + rng.Int64N(10))}, err
	case 4:
		return catalog.MergeMappings{Left: m, Right: next}, nil
	case 5:
		return catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Online)}, nil
	case 6:
		return catalog.UpdateMapping{Mapping: m, Status: ptr(shardway.Offline)}, nil
	case 7:
		return catalog.UpdateMapping{Mapping: m, ShardID: &shard.ID}, nil
	}
	return add, nil
}

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// holder is a client that stands still right before a commit of its change.
type holder struct {
	*faults

	goOn  chan struct{}
	ended chan error
}

func (r *rig) hold(cfg catalog.Config, n int32, ch catalog.Change) *holder {
	r.t.Helper()
	stopped := make(chan struct{})
	h := &holder{goOn: make(chan struct{}), ended: make(chan error, 1)}
	h.faults = &faults{rig: r, at: n, kind: undisturbed, meanwhile: func() { close(stopped); <-h.goOn }}
	c := h.client(cfg)
	go func() {
		_, err := c.Do(context.Background(), ch)
		h.ended <- err
	}()
	select {
	case err := <-h.ended:
		r.t.Fatalf("the holder has not stopped: %v", err)
	case <-stopped:
	}
	return h
}

// finish lets the holder go on and returns how its change ended.
func (h *holder) finish() error {
	close(h.goOn)
	return <-h.ended
}

// TestPending meets a row in the hands of a client at work: the change waits no
// longer than it may, names who holds the row, and changes nothing; others go on.
func TestPending(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		h := rg.hold(catalog.Config{Who: "slow@desk", Lease: time.Hour}, 2, catalog.SplitMapping{Mapping: w.a, At: k(50)})
		second := rg.client(catalog.Config{Who: "second", Wait: time.Nanosecond})
		ops, err := second.Operations(t.Context())
		if err != nil || len(ops) != 1 {
			t.Fatalf("Operations = %v, %v", ops, err)
		}
		for _, ch := range []catalog.Change{
			catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)},
			catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: "t", Owner: "o"}},
			catalog.MergeMappings{Left: w.a, Right: w.b},
		} {
			_, err := second.Do(t.Context(), ch)
			var pending *catalog.PendingError
			if !errors.Is(err, shardway.ErrPending) || !errors.As(err, &pending) || pending.Operation != ops[0].ID ||
				!strings.Contains(err.Error(), "slow@desk") || !strings.Contains(err.Error(), ops[0].ID.String()) || !strings.Contains(err.Error(), "[0, 100)") {
				t.Errorf("%T: %v", ch, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := &faults{rig: rg, at: 1, kind: undisturbed, meanwhile: cancel} // its first write is the try to take over
		if _, err := waiting.client(catalog.Config{Wait: time.Hour}).Do(ctx, catalog.SplitMapping{Mapping: w.a, At: k(60)}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it waits: %v", err)
		}
		// I4: other mappings, of the same shard too, are nobody's business.
		do(t, second, catalog.UpdateMapping{Mapping: w.b, Status: ptr(shardway.Online)})
		do(t, second, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 900, 901)}})
		if o, err := second.Outcome(t.Context(), ops[0].ID); o != store.Pending || err != nil {
			t.Errorf("Outcome = %s, %v", o, err)
		}
		// Recovery without force leaves the holder its operation, however often.
		for range 3 {
			if rec, err := second.Recover(t.Context(), false); err != nil || len(rec) != 1 || rec[0].Outcome != store.Pending || rec[0].Err == nil {
				t.Errorf("Recover = %+v, %v", rec, err)
			}
		}
		if err := h.finish(); err != nil {
			t.Errorf("the holder's change: %v", err)
		}
		h = rg.hold(catalog.Config{Lease: time.Hour}, 2, catalog.SplitMapping{Mapping: w.c, At: k(250), Token: token})
		if _, err := second.Do(t.Context(), catalog.UnlockOwner{Map: w.ranges, Token: token}); !errors.Is(err, shardway.ErrPending) {
			t.Errorf("unlocking what is being split: %v", err)
		}
		if err := h.finish(); err != nil {
			t.Errorf("the holder's change: %v", err)
		}
		if o, err := second.Outcome(t.Context(), ops[0].ID); o != store.Done || err != nil {
			t.Errorf("Outcome = %s, %v", o, err)
		}
		rg.look(t).checkSettled(t)
	})
}

// TestWaits lets a change wait for the one that holds its rows: when that has
// ended, it is made, or refused for what stands then.
func TestWaits(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		x3 := do(t, rg.client(catalog.Config{}), catalog.AddShard{Map: w.ranges, Name: "x3", Location: at("db-x3")}).Shards[0]
		for _, x := range []struct {
			held, waits catalog.Change
			want        error
		}{
			{catalog.AddShard{Map: w.points, Name: "p3", Location: at("db-s3")}, catalog.AddShard{Map: w.points, Name: "p3", Location: at("db-p4")}, shardway.ErrExists},
			{catalog.SplitMapping{Mapping: w.a, At: k(50)}, catalog.SplitMapping{Mapping: w.a, At: k(60)}, shardway.ErrStale},
			{
				catalog.DeleteMapping{Mapping: w.b},
				catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s2.ID, 100, 200)}},
				nil,
			},
			{
				catalog.DeleteMapping{Mapping: w.two},
				catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(2)), ShardID: w.p1.ID}}},
				nil,
			},
			{
				catalog.DeleteShard{Shard: x3},
				catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(x3.ID, 800, 900)}},
				shardway.ErrShardNotFound,
			},
			{
				catalog.UpdateShard{Shard: w.s3, Name: ptr("third")},
				catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s3.ID, 700, 800)}},
				nil,
			},
		} {
			h := rg.hold(catalog.Config{Lease: time.Hour}, 2, x.held)
			waits := &faults{rig: rg, at: 1, kind: undisturbed, meanwhile: func() { close(h.goOn) }}
			_, err := waits.client(catalog.Config{Wait: time.Hour}).Do(t.Context(), x.waits)
			if !errors.Is(err, x.want) {
				t.Errorf("%T: %v, want %v", x.waits, err, x.want)
			}
			if err := <-h.ended; err != nil {
				t.Errorf("%T: %v", x.held, err)
			}
		}
		rg.look(t).checkSettled(t)
	})
}

// TestLeaseEnds leaves a dead client's operation: while its lease runs, it
// stands; then the next change on its rows brings it to an end and goes on.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	for n := int32(2); n <= 3; n++ { // before the local step, before the publication
		rg, w := memory.world(t)
		f := &faults{rig: rg, at: n, kind: killBefore}
		if _, err := f.client(catalog.Config{Who: "dead", Lease: time.Hour}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)}); !errors.Is(err, errKilled) {
			t.Fatalf("Do = %v", err)
		}
		c := rg.client(catalog.Config{Wait: time.Nanosecond})
		next := catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 500, 600)}}
		again := catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)}
		if _, err := c.Do(t.Context(), again); !errors.Is(err, shardway.ErrPending) {
			t.Errorf("while the lease runs: %v", err)
		}
		do(t, c, next)
		rg.ahead.Store(int64(2 * time.Hour))
		_, err := c.Do(t.Context(), again)
		if want := map[int32]error{2: nil, 3: shardway.ErrStale}[n]; !errors.Is(err, want) { // taken back, or finished
			t.Errorf("after the lease: %v, want %v", err, want)
		}
		m, err := c.MappingForKey(t.Context(), w.ranges, k(5))
		if err != nil || m.Status != shardway.Offline {
			t.Errorf("the mapping is %+v, %v", m, err)
		}
		rg.look(t).checkSettled(t)
	}
}

// TestDeadShard leaves an operation whose target cannot be reached: I4, it
// blocks its own mapping and nothing else, and ends when the shard is back.
func TestDeadShard(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		f := &faults{rig: rg, at: 3, kind: killBefore} // the source has given the mapping up
		if _, err := f.client(catalog.Config{Who: "dead", Lease: 100 * time.Millisecond}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID}); !errors.Is(err, errKilled) {
			t.Fatalf("Do = %v", err)
		}
		rg.shut("db-s2", true)
		c := rg.client(catalog.Config{Who: "ann"})
		online := catalog.UpdateMapping{Mapping: w.b, Status: ptr(shardway.Online)}
		_, err := c.Do(t.Context(), online)
		if !errors.Is(err, shardway.ErrPending) || !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), "db-s2") || !strings.Contains(err.Error(), "[100, 200)") {
			t.Errorf("a change of its mapping: %v", err)
		}
		do(t, c, catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)})
		do(t, c, catalog.UpdateMapping{Mapping: w.c, ShardID: &w.s3.ID, Status: ptr(shardway.Offline), Token: token})
		do(t, c, catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{newRange(w.s1.ID, 900, 901)}})
		do(t, c, catalog.UpdateShard{Shard: w.s1, Name: ptr("first")})
		refused(t, c, catalog.SplitMapping{Mapping: w.d, At: k(350)}, shardway.ErrUnavailable, `"s2"`) // on the dead shard itself
		rg.look(t).checkAlways(t)

		rg.shut("db-s2", false)
		do(t, c, online)
		rg.look(t).checkSettled(t)
	})
}

// TestUnreachableTarget moves to a shard that goes down right before its step:
// the change is taken back, and the error says why.
func TestUnreachableTarget(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		before := rg.look(t).published
		f := &faults{rig: rg, at: 2, kind: undisturbed, meanwhile: func() { rg.shut("db-s2", true) }}
		res, err := f.client(catalog.Config{}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID})
		if !errors.Is(err, shardway.ErrUnavailable) || errors.Is(err, shardway.ErrPending) || !strings.Contains(err.Error(), `"s2"`) {
			t.Errorf("Do = %v", err)
		}
		c := rg.client(catalog.Config{})
		if o, err := c.Outcome(t.Context(), res.Operation); o != store.Undone || err != nil {
			t.Errorf("Outcome = %s, %v", o, err)
		}
		s := rg.look(t)
		s.checkSettled(t)
		s.checkPublished(t, "taken back", before)
	})
}

// TestCancelledInTheMiddle ends the caller's context at every commit: the change
// is brought to an end all the same, in its own time (ADM-06).
func TestCancelledInTheMiddle(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		for n, more := int32(1), true; more; n++ {
			more = false
			t.Run(fmt.Sprint(n), func(t *testing.T) { more = cancelInTheMiddle(t, e, n) })
		}
	})
}

func cancelInTheMiddle(t *testing.T, e engine, n int32) (more bool) {
	rg, w := e.world(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &faults{rig: rg, at: n, kind: undisturbed, meanwhile: cancel}
	res, err := f.client(catalog.Config{}).Do(ctx, catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID})
	rg.look(t).checkSettled(t)
	if f.label == "" {
		return false
	}
	o, oerr := rg.client(catalog.Config{}).Outcome(t.Context(), res.Operation)
	taken := errors.Is(err, context.Canceled) && (o == store.Undone || n == 1 && o == store.Unknown)
	made := err == nil && o == store.Done // every step had been applied
	if oerr != nil || !taken && !made {
		t.Errorf("cancelled at commit %d (%s): Do = %v, outcome %s, %v", n, f.label, err, o, oerr)
	}
	return true
}

// TestLateSuccess loses acknowledgements of changes that somebody else has made
// superfluous meanwhile.
func TestLateSuccess(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		other := rg.client(catalog.Config{Who: "other"})
		for name, ch := range map[string]catalog.Change{
			"unlock owner": catalog.UnlockOwner{Map: w.ranges, Token: token},
			"delete map":   catalog.DeleteShardMap{Map: w.empty},
		} {
			f := &faults{rig: rg, at: 1, kind: lostAck, twice: true, meanwhile: func() { do(t, other, ch) }}
			res, err := f.client(catalog.Config{}).Do(t.Context(), ch)
			if err != nil || res.Operation != 0 {
				t.Errorf("%s: Do = operation %s, %v", name, res.Operation, err)
			}
		}
		rg.look(t).checkSettled(t)
	})
}

// TestOutcomeUnknown loses the acknowledgement and then the store: the error
// says so, and carries the id by which the outcome can be looked up.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	each(t, twoEngines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		f := &faults{rig: rg, at: 1, kind: lostAck}
		f.afterwards = func() { f.dead.Store(true) }
		res, err := f.client(catalog.Config{}).Do(t.Context(), catalog.SplitMapping{Mapping: w.a, At: k(50)})
		if !errors.Is(err, store.ErrUnknownOutcome) || res.Operation == 0 {
			t.Fatalf("Do = operation %s, %v", res.Operation, err)
		}
		c := rg.client(catalog.Config{})
		if o, err := c.Outcome(t.Context(), res.Operation); o != store.Pending || err != nil {
			t.Errorf("Outcome = %s, %v", o, err)
		}
		if _, err := c.Recover(t.Context(), true); err != nil {
			t.Error(err)
		}
		if o, err := c.Outcome(t.Context(), res.Operation); o != store.Undone || err != nil {
			t.Errorf("Outcome = %s, %v", o, err)
		}
		rg.look(t).checkSettled(t)
	})
}

// TestOrphanedMark takes the operation away from under its marks, as a careless
// restore of the database does: whoever meets them says so, without end of waiting.
func TestOrphanedMark(t *testing.T) {
	fleet := fleets[0]
	t.Parallel()
	fleet.enter(t)
	s := fleet.take(t, true)
	rg := s.rig(t)
	f := &faults{rig: rg, at: 2, kind: killBefore}
	if _, err := f.client(catalog.Config{}).Do(t.Context(), catalog.SplitMapping{Mapping: s.world.a, At: k(50)}); !errors.Is(err, errKilled) {
		t.Fatalf("Do = %v", err)
	}
	s.exec(t, s.global, s.d.SQL("DELETE FROM {operations}"))
	_, err := rg.client(catalog.Config{Wait: time.Hour}).Do(t.Context(), catalog.SplitMapping{Mapping: s.world.a, At: k(50)})
	if !errors.Is(err, shardway.ErrPending) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Do = %v", err)
	}
}

// TestBigCounters lets the stores' counters stand where narrower numbers end:
// changes, and their recovery, go on (UPG-04).
func TestBigCounters(t *testing.T) {
	t.Parallel()
	for _, f := range fleets {
		f.enter(t)
		t.Run(string(f.engine), func(t *testing.T) {
			t.Parallel()
			f.require(t)
			for _, n := range []int64{1<<31 - 2, 1<<32 - 2, 1<<53 - 2} {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					s := f.take(t, true)
					rg, w := s.rig(t), s.world
					s.exec(t, s.global, s.d.SQL(fmt.Sprintf("UPDATE {counters} SET operation_seq = %d", n)),
						s.d.SQL(fmt.Sprintf("UPDATE {shard_maps} SET generation = %d", n)))
					c := rg.client(catalog.Config{})
					left, parts := w.a, []shardway.Mapping(nil)
					for at := int64(90); at > 60; at -= 10 {
						parts = do(t, c, catalog.SplitMapping{Mapping: left, At: k(at)}).Mappings
						left = parts[0]
					}
					dead := &faults{rig: rg, at: 2, kind: killAfter}
					if _, err := dead.client(catalog.Config{}).Do(t.Context(), catalog.DeleteMapping{Mapping: w.b}); !errors.Is(err, errKilled) {
						t.Fatalf("Do = %v", err)
					}
					if rec, err := c.Recover(t.Context(), true); err != nil || len(rec) != 1 || rec[0].Outcome != store.Done || rec[0].Operation.Seq != n+4 {
						t.Errorf("Recover = %+v, %v", rec, err)
					}
					m, err := c.ShardMap(t.Context(), w.ranges.Name)
					if err != nil || m.Generation != n+4 {
						t.Errorf("generation is %d, %v, want %d", m.Generation, err, n+4)
					}
					rg.look(t).checkSettled(t)
				})
			}
		})
	}
}

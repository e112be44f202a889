package sqlstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// ADM-03: the global store and a shard may be one database. Many clients that
// change many maps there at once neither wait for each other for ever nor fail.
// RTRY-08: on SQLite none of them sees a busy file.
func TestOneDatabase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		p := placeOf(t, e.NewDatabase(t))
		p.deployed(t)
		deployedLocal(t, p)
		const clients, changes = 6, 8
		var wg sync.WaitGroup
		for range clients {
			// A client of its own: another pool, as in another process.
			g, l := p.global(t), p.local(t)
			wg.Go(func() {
				for range changes {
					changeOnce(t, g, l)
				}
			})
		}
		wg.Wait()
		var maps []shardway.ShardMap
		var seqs []int64
		err := p.global(t).View(t.Context(), func(tx store.Reader) (err error) {
			maps, err = tx.ShardMaps(t.Context())
			for entry, err := range tx.History(t.Context(), store.HistoryQuery{}) {
				if err != nil {
					return err
				}
				seqs = append(seqs, int64(entry.Operation))
			}
			return err
		})
		local, localErr := p.local(t).Read(t.Context(), 0)
		if err != nil || localErr != nil || len(maps) != clients*changes || len(local) != clients*changes {
			t.Errorf("%d maps in the global store, %d in the local one, want %d: %v, %v", len(maps), len(local), clients*changes, err, localErr)
		}
		slices.Sort(seqs)
		if len(slices.Compact(seqs)) != clients*changes {
			t.Errorf("%d entries in the history, want %d", len(seqs), clients*changes)
		}
	})
}

// TestForgetting meets operations again after the store has forgotten them:
// those that changed nothing stay undone, those that were applied are known.
func TestForgetting(t *testing.T) {
	t.Parallel()
	db := dbtest.EngineSQLite.NewDatabase(t)
	p := placeOf(t, db)
	l := deployedLocal(t, p)
	m := shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}
	s := shardway.Shard{ID: 1, MapID: 1, Name: "s", Version: 1}
	seq := int64(0)
	step := func(want store.StepState, st store.Step) store.LocalStep {
		seq++
		return store.LocalStep{Operation: store.OperationID(store.NewID()), Seq: seq, Epoch: 1, Map: m, Step: st, Want: want}
	}
	take := func(s store.LocalStep, want store.StepState) {
		t.Helper()
		if got, err := l.Step(t.Context(), s); err != nil || got != want {
			t.Fatalf("Step wanting %d of operation %d = %d, %v, want %d", s.Want, s.Seq, got, err, want)
		}
	}
	applied := step(store.StepApplied, store.Step{Shard: s, After: &s})
	take(applied, store.StepApplied)
	never := step(store.StepApplied, store.Step{Shard: s}) // prepared, but the store is never asked
	undone := step(store.StepUndone, store.Step{Shard: s})
	take(undone, store.StepUndone)
	seen := step(store.StepSeen, store.Step{Shard: s})
	take(seen, store.StepSeen)

	// As many as the store remembers, all at once.
	pool := db.Open(t)
	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		seq++
		if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO shardway_local_operations (op_id, seq, epoch, state) VALUES (%d, %d, 1, 3)`, store.NewID(), seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		take(step(store.StepUndone, store.Step{Shard: s}), store.StepUndone)
	}
	var remembered, forgotten int64
	scan(t, pool, `SELECT COUNT(*) FROM shardway_local_operations WHERE state <> 2`, &remembered)
	scan(t, pool, `SELECT forgotten_seq FROM shardway_local_store`, &forgotten)
	if remembered > 1002 || forgotten < seen.Seq {
		t.Errorf("%d operations are remembered, up to %d are forgotten", remembered, forgotten)
	}

	for name, old := range map[string]store.LocalStep{"never met": never, "undone": undone, "seen": seen} {
		old.Want, old.Epoch = store.StepApplied, 9
		if _, err := l.Step(t.Context(), old); !errors.Is(err, store.ErrLostLease) {
			t.Errorf("applying an operation that was %s and forgotten = %v, want ErrLostLease", name, err)
		}
		old.Want = store.StepSeen
		take(old, store.StepUndone)
		old.Want = store.StepUndone
		take(old, store.StepUndone)
	}
	take(applied, store.StepApplied)
	applied.Want = store.StepUndone
	take(applied, store.StepUndone)
	if maps, err := l.Read(t.Context(), 0); err != nil || len(maps) != 0 {
		t.Errorf("Read after undoing the first operation = %+v, %v", maps, err)
	}
}

// TestPages reads more mappings than one page holds, with pending ones among
// them, while the loop asks other questions on the same session.
func TestPages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		g := placeOf(t, e.NewDatabase(t)).deployed(t)
		sqlstore.SetPage(g, 50)
		m := addMap(t, g, "m")
		s := shardway.Shard{ID: 1, MapID: m.ID, Name: "s", Version: 1}
		const n = 51 + 50
		visible := make([]shardway.Mapping, n)
		for i := range visible {
			low := int64(2 * i)
			visible[i] = shardway.Mapping{
				ID: shardway.MappingID(store.NewID()), MapID: m.ID, ShardID: s.ID,
				Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(low + 1)},
			}
		}
		pending := func(low int64) shardway.Mapping {
			return shardway.Mapping{
				ID: shardway.MappingID(store.NewID()), MapID: m.ID, ShardID: s.ID,
				Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(low + 1)},
			}
		}
		// Before all, twins at the ends of pages, in a hole, and behind all.
		waiting := []shardway.Mapping{pending(-5), pending(2 * 49), pending(2 * 50), pending(2*70 + 1), pending(2 * n)}
		twins := []shardway.Mapping{visible[49], visible[50]}
		update := func(d store.Delta) {
			t.Helper()
			if err := g.Update(t.Context(), m.ID, func(store.Reader, time.Time) (store.Delta, error) { return d, nil }); err != nil {
				t.Fatal(err)
			}
		}
		first := &store.Operation{ID: 1, Map: m, Epoch: 1, Steps: []store.Step{{Shard: s, After: &s, Add: visible}}}
		update(store.Delta{Prepare: first, Publish: first})
		update(store.Delta{Prepare: &store.Operation{ID: 2, Map: m, Epoch: 1, Steps: []store.Step{{Shard: s, Remove: twins, Add: waiting}}}})

		var want []string
		line := func(low shardway.Key, pending bool) string { return fmt.Sprint(low, pending) }
		for i, v := range visible {
			switch i {
			case 0:
				want = append(want, line(waiting[0].Range.Low, true))
			case 71:
				want = append(want, line(waiting[3].Range.Low, true))
			}
			want = append(want, line(v.Range.Low, false))
			switch i {
			case 49:
				want = append(want, line(waiting[1].Range.Low, true))
			case 50:
				want = append(want, line(waiting[2].Range.Low, true))
			}
		}
		want = append(want, line(waiting[4].Range.Low, true))
		for _, limit := range []int{0, 4, 51, 52, 54, len(want) - 1, len(want)} {
			var got []string
			err := g.View(t.Context(), func(tx store.Reader) error {
				got = nil
				for row, err := range tx.Mappings(t.Context(), store.MappingQuery{Map: m, Limit: limit}) {
					if err != nil {
						return err
					}
					if len(got)%40 == 0 {
						if shards, err := tx.Shards(t.Context(), m.ID); err != nil || len(shards) != 1 {
							return fmt.Errorf("Shards inside the loop = %+v, %w", shards, err)
						}
					}
					got = append(got, line(row.Range.Low, row.Pending))
				}
				return nil
			})
			expected := want
			if limit > 0 {
				expected = want[:limit]
			}
			if diff := cmp.Diff(expected, got); err != nil || diff != "" {
				t.Errorf("with limit %d: %v (-want +got):\n%s", limit, err, diff)
			}
		}
	})
}

// A loop that ends early leaves the session free.
func TestLoopEndsEarly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		p := placeOf(t, e.NewDatabase(t))
		g := p.deployed(t)
		m, _ := changeOnce(t, g, deployedLocal(t, p))
		stop := errors.New("enough")
		_, err := g.Load(t.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { return stop })
		if !errors.Is(err, stop) || errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("Load = %v, want the caller's error alone", err)
		}
		for range 20 { // more than the pool has
			err := g.View(t.Context(), func(tx store.Reader) error {
				for row, err := range tx.Mappings(t.Context(), store.MappingQuery{Map: m}) {
					if err != nil || row.MapID != m.ID {
						t.Errorf("Mappings = %+v, %v", row, err)
					}
					break
				}
				for entry, err := range tx.History(t.Context(), store.HistoryQuery{}) {
					if err != nil || entry.MapID != m.ID {
						t.Errorf("History = %+v, %v", entry, err)
					}
					break
				}
				return stop
			})
			if !errors.Is(err, stop) {
				t.Fatalf("View = %v", err)
			}
		}
	})
}

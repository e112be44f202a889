package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

// fault is what happens at one commit of a client.
type fault int

const (
	killBefore fault = iota // the client dies right before the commit
	killAfter               // the client dies right after it
	lostAck                 // the commit happens, its acknowledgement does not arrive
	lostCommit              // the commit does not happen, and nobody says so
	failOnce                // the commit fails once, in passing
	refuse                  // the store refuses it once, for good
	stall                   // the client stalls before it, another one recovers by force, it goes on
	numFaults
)

func (f fault) String() string {
	return [...]string{"kill before", "kill after", "lost acknowledgement", "lost commit", "fail once", "refuse", "stall"}[f]
}

var (
	errKilled       = errors.New("the client is dead")
	errRefused      = errors.New("injected: refused")
	errNotCommitted = errors.New("injected: not committed")
)

// victim is a client whose n-th commit goes wrong, in whichever store.
type victim struct {
	*rig

	at   int32
	kind fault
	// during is what others do while the client stalls. Nil: one recovers by force.
	during func() error
	seen   atomic.Int32
	dead   atomic.Bool
}

func (v *victim) commit(run, dry func() error) error {
	if v.dead.Load() {
		return errKilled
	}
	if v.seen.Add(1) != v.at {
		return run()
	}
	switch v.kind {
	case killBefore:
		v.dead.Store(true)
		return errKilled
	case lostCommit:
		if err := dry(); err != nil {
			return err
		}
		return fmt.Errorf("injected: %w", store.ErrUnknownOutcome)
	case failOnce:
		return fmt.Errorf("injected: %w", shardway.ErrUnavailable)
	case refuse:
		return errRefused
	case stall:
		if v.during != nil {
			if err := v.during(); err != nil {
				return err
			}
			return run()
		}
		if _, err := v.rig.client(catalog.Config{Who: "second"}).Recover(context.Background(), true); err != nil {
			return err
		}
		return run()
	default: // what happens after the commit
	}
	if err := run(); err != nil {
		return err
	}
	if v.kind == killAfter {
		v.dead.Store(true)
		return errKilled
	}
	return fmt.Errorf("injected: %w", store.ErrUnknownOutcome)
}

func (v *victim) Open(ctx context.Context, l shardway.Location) (store.Local, error) {
	if v.dead.Load() {
		return nil, errKilled
	}
	local, err := v.rig.Open(ctx, l)
	return victimLocal{local, v}, err
}

type victimGlobal struct {
	store.Global
	v *victim
}

func (g victimGlobal) View(ctx context.Context, fn func(store.Reader) error) error {
	if g.v.dead.Load() {
		return errKilled
	}
	return g.Global.View(ctx, fn)
}

func (g victimGlobal) Update(ctx context.Context, m shardway.MapID, fn func(store.Reader, time.Time) (store.Delta, error)) error {
	return g.v.commit(func() error { return g.Global.Update(ctx, m, fn) }, func() error {
		err := g.Global.Update(ctx, m, func(tx store.Reader, now time.Time) (store.Delta, error) {
			if _, err := fn(tx, now); err != nil {
				return store.Delta{}, err
			}
			return store.Delta{}, errNotCommitted
		})
		if errors.Is(err, errNotCommitted) {
			return nil
		}
		return err
	})
}

type victimLocal struct {
	store.Local
	v *victim
}

func (l victimLocal) Deploy(ctx context.Context, id string) error {
	return l.v.commit(func() error { return l.Local.Deploy(ctx, id) }, func() error { return nil })
}

func (l victimLocal) Step(ctx context.Context, s store.LocalStep) (found store.StepState, err error) {
	err = l.v.commit(func() error {
		found, err = l.Local.Step(ctx, s)
		return err
	}, func() error { return nil })
	return found, err
}

func (l victimLocal) Adopt(ctx context.Context, from, to string) error {
	adopter, ok := l.Local.(store.Adopter)
	if !ok {
		return errRefused
	}
	return l.v.commit(func() error { return adopter.Adopt(ctx, from, to) }, func() error { return nil })
}

// recoveryCase is one recovery call in a world that it repairs. call may be
// repeated by an operator who does not know what has come of it; done are
// errors that say that nothing is left to do.
type recoveryCase struct {
	name  string
	plant func(w *world)
	call  func(ctx context.Context, w *world, r *recovery.Recovery) error
	clean bool // afterwards there is no difference
}

func resolveWith(keep recovery.Keep, choices ...recovery.Choice) func(context.Context, *world, *recovery.Recovery) error {
	return func(ctx context.Context, w *world, r *recovery.Recovery) error {
		reports, err := r.Detect(ctx, w.m, w.s[0].ID)
		if err != nil {
			return err
		}
		res := recovery.Resolution{Report: reports[0], Keep: keep}
		for _, ch := range choices {
			if slices.ContainsFunc(reports[0].Differences, func(d recovery.Difference) bool { return d.Range.Intersects(ch.Range) }) {
				res.Choices = append(res.Choices, ch)
			}
		}
		_, err = r.Resolve(ctx, res)
		return err
	}
}

func rebuilt(all []recovery.Rebuilt, err error) error {
	for _, b := range all {
		err = errors.Join(err, b.Err)
	}
	return err
}

// plantMix gives s1 a local map with one of each kind of difference: [0, 100)
// under another id, [100, 200) missing, [200, 250) of s2 (which has lost it),
// and [600, 700) additional.
func plantMix(w *world) {
	ms := w.add(0, span(0, 100), span(100, 200))
	other := w.add(1, span(200, 300))
	w.plantLocal(1, other, nil)
	w.plantLocal(0, ms, []shardway.Mapping{
		w.mapping(0, span(0, 100), shardway.Offline), w.mapping(0, span(200, 250), shardway.Online), w.mapping(0, span(600, 700), shardway.Online),
	})
}

var recoveryCases = []recoveryCase{
	{"resolve, keep global", plantMix, resolveWith(recovery.KeepGlobal), false},
	{"resolve, keep local", plantMix, resolveWith(recovery.KeepLocal), false},
	{"resolve by ranges", plantMix, resolveWith(recovery.KeepLocal,
		recovery.Choice{Range: span(0, 50), Keep: recovery.KeepGlobal}, recovery.Choice{Range: span(610, 620), Keep: recovery.KeepGlobal}), false},
	{"rebuild local maps", func(w *world) {
		plantMix(w)
		w.lost("db-s2")
	}, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		return rebuilt(r.RebuildLocal(ctx, w.m, recovery.Rebuild{}))
	}, true},
	{"rebuild global map", plantMix, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		return rebuilt(r.RebuildGlobal(ctx, w.m, recovery.Rebuild{}))
	}, true},
	{"take over a foreign store", func(w *world) {
		plantMix(w)
		adopt(w.t, w.local(0), w, "another")
	}, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		return rebuilt(r.RebuildLocal(ctx, w.m, recovery.Rebuild{Takeover: true}))
	}, true},
	{"detach", func(w *world) { w.add(0, span(0, 100), span(100, 200)) }, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		_, err := r.Detach(ctx, recovery.Detach{Shard: w.s[0], Force: true})
		if errors.Is(err, shardway.ErrShardNotFound) {
			return nil
		}
		return err
	}, true},
	{"detach a dead one", func(w *world) { w.add(0, span(0, 100)); w.shut("db-s1", true) }, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		_, err := r.Detach(ctx, recovery.Detach{Shard: w.s[0], Force: true, Gone: true})
		if errors.Is(err, shardway.ErrShardNotFound) {
			return nil
		}
		return err
	}, true},
	{"attach", func(w *world) {
		w.add(0, span(0, 100))
		if _, err := w.r.Detach(w.t.Context(), recovery.Detach{Shard: w.s[0], Force: true, Gone: true}); err != nil {
			w.t.Fatal(err)
		}
		w.renamed("db-s1", "west-s1")
	}, func(ctx context.Context, w *world, r *recovery.Recovery) error {
		_, err := r.Attach(ctx, recovery.Attach{Map: "customers", Location: at("west-s1")})
		if errors.Is(err, shardway.ErrExists) {
			return nil
		}
		return err
	}, false},
}

func adopt(t *testing.T, l store.Local, w *world, to string) {
	t.Helper()
	d, err := w.global.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, ok := l.(store.Adopter)
	if !ok {
		t.Fatal("the local store cannot be adopted")
	}
	if err := a.Adopt(t.Context(), d.ID, to); err != nil {
		t.Fatal(err)
	}
}

// TestKillMatrix lets every recovery call go wrong at each of its commits, in
// each of the ways of fault. Afterwards another client recovers, the operator
// repeats the call, and the maps are what an undisturbed call makes of them.
// At no moment do two local maps own a key that one of them did not own before,
// and every mark belongs to an operation. See I1 to I6 of ARCHITECTURE.md.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig) {
		whole := t.Name() == "TestKillMatrix/memory"
		var cases atomic.Int32
		t.Cleanup(func() { t.Logf("%d cases", cases.Load()) })
		for i, c := range recoveryCases {
			want, commits := undisturbed(t, c)
			for kind := range numFaults {
				for n := int32(1); n <= commits; n++ {
					if !whole && (kind != killAfter && kind != lostAck || (int(n)+i)%3 > 0) { // a sample on the databases
						continue
					}
					cases.Add(1)
					rr := memory(t)
					if !whole {
						rr = r.another()
					}
					runKill(t, rr, c, kind, n, want)
				}
			}
		}
	})
}

// undisturbed makes the call without a fault and returns what it leaves behind.
func undisturbed(t *testing.T, c recoveryCase) (want []string, commits int32) {
	t.Helper()
	w := newWorld(memory(t), shardway.RangeMap)
	c.plant(w)
	v := &victim{rig: w.rig}
	if err := c.call(t.Context(), w, v.recovery()); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	if c.clean {
		w.checkClean(c.name)
	}
	if v.seen.Load() < 2 {
		t.Errorf("%s: only %d commits", c.name, v.seen.Load())
	}
	return w.everything(), v.seen.Load()
}

// recovery is that of a client which may die. Its leases outlive the case.
func (v *victim) recovery() *recovery.Recovery {
	g := victimGlobal{v.rig.global, v}
	return newRecovery(v.t, g, v, newCatalog(v.t, g, v, catalog.Config{Who: "victim", Lease: time.Minute, Wait: time.Minute}))
}

func runKill(t *testing.T, r *rig, c recoveryCase, kind fault, n int32, want []string) {
	t.Helper()
	name := fmt.Sprintf("%s: %s at commit %d", c.name, kind, n)
	w := newWorld(r, shardway.RangeMap)
	c.plant(w)
	before := w.doubles()
	v := &victim{rig: w.rig, at: n, kind: kind}
	err := c.call(t.Context(), w, v.recovery())
	if v.seen.Load() < n {
		t.Errorf("%s: it has only %d commits", name, v.seen.Load())
	}
	if kind == lostAck && err != nil || v.dead.Load() && err == nil { // I5
		t.Errorf("%s: %v", name, err)
	}
	w.checkDoubles(name, before)
	w.checkMarks(name)
	second := r.client(catalog.Config{Who: "second"})
	recovered, err := second.Recover(t.Context(), true)
	for _, rec := range recovered {
		if rec.Outcome != store.Done && rec.Outcome != store.Undone {
			t.Errorf("%s: operation %s is %s: %v", name, rec.Operation.Kind, rec.Outcome, rec.Err)
		}
	}
	if err != nil {
		t.Errorf("%s: recovering: %v", name, err)
	}
	w.checkDoubles(name+", recovered", before)
	for try := 0; ; try++ { // one that was taken over in the middle is told that its world has changed
		if err = c.call(t.Context(), w, newRecovery(t, r.global, r, second)); !errors.Is(err, shardway.ErrStale) || try == 2 {
			break
		}
	}
	if err != nil {
		t.Errorf("%s: repeated: %v", name, err)
	}
	if diff := cmp.Diff(want, w.everything()); diff != "" {
		t.Errorf("%s: (-undisturbed +got):\n%s", name, diff)
	}
	if ops, err := second.Operations(t.Context()); err != nil || len(ops) > 0 {
		t.Errorf("%s: operations are left: %v, %v", name, ops, err)
	}
}

// everything is what all stores say, without ids.
func (w *world) everything() []string {
	w.t.Helper()
	all := w.published()
	for _, address := range []string{"db-s1", "db-s2", "db-s3", "west-s1"} {
		w.mu.Lock()
		known := w.locals[address] != nil && !w.down[address]
		w.mu.Unlock()
		if known {
			all = append(all, address+":")
			all = append(all, w.owned(address)...)
		}
	}
	return all
}

// doubles are the pairs of local mappings that share a key.
func (w *world) doubles() map[string]bool {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	type owned struct {
		address string
		shardway.Mapping
	}
	var all []owned
	for address, local := range w.locals {
		maps, err := local.Read(w.t.Context(), w.m.ID)
		if err != nil {
			continue // lost, or empty
		}
		for _, m := range maps {
			for _, row := range m.Mappings {
				all = append(all, owned{address, row})
			}
		}
	}
	pairs := map[string]bool{}
	for _, a := range all {
		for _, b := range all {
			if a.address < b.address && a.Range.Intersects(b.Range) {
				pairs[fmt.Sprint(a.address, a.Range, " ", b.address, b.Range)] = true
			}
		}
	}
	return pairs
}

func (w *world) checkDoubles(what string, before map[string]bool) {
	w.t.Helper()
	for pair := range w.doubles() {
		if !before[pair] {
			w.t.Errorf("%s: I2: two local maps own a key: %s", what, pair)
		}
	}
}

// checkMarks checks I4: every mark belongs to an operation that holds the row.
func (w *world) checkMarks(what string) {
	w.t.Helper()
	err := w.global.View(w.t.Context(), func(tx store.Reader) error {
		ops, err := tx.Operations(w.t.Context(), store.OperationQuery{})
		if err != nil {
			return err
		}
		held := map[string]bool{}
		for _, op := range ops {
			for _, m := range append(op.Removed(), op.Added()...) {
				held[fmt.Sprint(op.ID, m.ID)] = true
			}
			for _, step := range op.Steps {
				if step.Before != nil || step.After != nil {
					held[fmt.Sprint(op.ID, "shard", step.Shard.ID)] = true
				}
			}
		}
		for row, err := range tx.Mappings(w.t.Context(), store.MappingQuery{Map: w.m}) {
			if err != nil {
				return err
			}
			if row.Operation != 0 && !held[fmt.Sprint(row.Operation, row.ID)] {
				w.t.Errorf("%s: I4: mapping %s is marked by %s", what, row.ID, row.Operation)
			}
		}
		shards, err := tx.Shards(w.t.Context(), w.m.ID)
		for _, row := range shards {
			if row.Operation != 0 && !held[fmt.Sprint(row.Operation, "shard", row.ID)] {
				w.t.Errorf("%s: I4: shard %q is marked by %s", what, row.Name, row.Operation)
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

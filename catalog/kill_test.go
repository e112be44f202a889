package catalog_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// fault is what happens at one commit of a client.
type fault int

const (
	killBefore  fault = iota // the client dies right before the commit
	killAfter                // the client dies right after the commit
	lostAck                  // the commit happens, its acknowledgement does not arrive
	lostCommit               // the commit does not happen, and nobody says so
	failOnce                 // the commit fails once, in passing
	refuse                   // the store refuses the commit once, for good (X1, X2)
	stallBefore              // the client stalls right before the commit; another one takes over; it goes on (I6)
	stallAfter               // the same right after the commit
	numFaults
	undisturbed // only meanwhile is called
)

func (f fault) String() string {
	return [...]string{"kill before", "kill after", "lost acknowledgement", "lost commit", "fail once", "refuse", "stall before", "stall after", "", "undisturbed"}[f]
}

var (
	errKilled  = errors.New("the client is dead")
	errRefused = errors.New("injected: refused")
	// errNotCommitted ends the transaction of a commit that is lost.
	errNotCommitted = errors.New("injected: not committed")
)

// faults counts the commits of one client, in whichever store, and lets one
// go wrong. It wraps the stores of a rig.
type faults struct {
	*rig
	at    int32 // which commit, from 1
	kind  fault
	seen  atomic.Int32
	dead  atomic.Bool
	label string // what the commit was, for people

	recovered  []catalog.Recovered // by takeOver
	recoverErr error
	meanwhile  func() // called right before the commit at which something happens
	twice      bool   // the transaction runs and fails in passing before that, and then runs again
	remembered bool   // no shard forgets what takeOver has ended
	afterwards func() // called right after it, when its acknowledgement is lost
}

// commit runs a transaction, or does to it what is to happen. dry runs it and
// does not commit.
func (f *faults) commit(label string, run, dry func() error) error {
	if f.dead.Load() {
		return errKilled
	}
	if f.seen.Add(1) != f.at {
		return run()
	}
	f.label = label
	if f.twice {
		if err := dry(); err != nil {
			return err
		}
	}
	if f.meanwhile != nil {
		f.meanwhile()
	}
	switch f.kind {
	case killBefore:
		f.dead.Store(true)
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
	case stallBefore:
		f.takeOver()
		return run()
	case undisturbed:
		return run()
	default: // what happens after the commit
	}
	if err := run(); err != nil {
		return err
	}
	if f.kind == stallAfter {
		f.takeOver()
		return nil
	}
	if f.kind == killAfter {
		f.dead.Store(true)
		return errKilled
	}
	if f.afterwards != nil {
		f.afterwards()
	}
	return fmt.Errorf("injected: %w", store.ErrUnknownOutcome)
}

// takeOver lets another client bring everything pending to an end.
func (f *faults) takeOver() {
	f.recovered, f.recoverErr = f.rig.client(catalog.Config{Who: "second"}).Recover(context.Background(), true)
	for _, rec := range f.recovered {
		if !f.remembered {
			f.rig.forget(rec)
		}
	}
}

func (f *faults) client(cfg catalog.Config) *catalog.Catalog {
	c, err := catalog.New(faultyGlobal{f.rig.global, f}, f, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *faults) Open(ctx context.Context, l shardway.Location) (store.Local, error) {
	if f.dead.Load() {
		return nil, errKilled
	}
	local, err := f.rig.Open(ctx, l)
	return faultyLocal{local, f}, err
}

type faultyGlobal struct {
	store.Global
	f *faults
}

func (g faultyGlobal) View(ctx context.Context, fn func(store.Reader) error) error {
	if g.f.dead.Load() {
		return errKilled
	}
	return g.Global.View(ctx, fn)
}

func (g faultyGlobal) Update(ctx context.Context, m shardway.MapID, fn func(store.Reader, time.Time) (store.Delta, error)) error {
	return g.f.commit("global", func() error { return g.Global.Update(ctx, m, fn) }, func() error {
		err := g.Global.Update(ctx, m, func(tx store.Reader, now time.Time) (store.Delta, error) {
			_, err := fn(tx, now)
			return store.Delta{}, cmp.Or(err, errNotCommitted)
		})
		if errors.Is(err, errNotCommitted) {
			return nil
		}
		return err
	})
}

type faultyLocal struct {
	store.Local
	f *faults
}

func nothing() error { return nil }

func (l faultyLocal) Deploy(ctx context.Context, id string) error {
	return l.f.commit("deploy", func() error { return l.Local.Deploy(ctx, id) }, nothing)
}

func (l faultyLocal) Step(ctx context.Context, s store.LocalStep) (found store.StepState, err error) {
	err = l.f.commit("local "+s.Step.Shard.Name, func() error {
		found, err = l.Local.Step(ctx, s)
		return err
	}, nothing)
	return found, err
}

// killCases are all kinds of change.
var killCases = []struct {
	name   string
	change func(w world) catalog.Change
}{
	{"create map", func(world) catalog.Change {
		return catalog.CreateShardMap{Name: "new", Kind: shardway.ListMap, KeyKind: shardway.KindUUID}
	}},
	{"delete map", func(w world) catalog.Change { return catalog.DeleteShardMap{Map: w.empty} }},
	{"add shard", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.ranges, Name: "s4", Location: at("db-s4")}
	}},
	{"add shard in a database of another map", func(w world) catalog.Change {
		return catalog.AddShard{Map: w.points, Name: "p3", Location: at("db-s3")}
	}},
	{"rename shard", func(w world) catalog.Change { return catalog.UpdateShard{Shard: w.s1, Name: ptr("renamed")} }},
	{"change shard's servers", func(w world) catalog.Change {
		l := at("db-s1")
		l.Servers = append(l.Servers, shardway.Server{Address: "db-s1-standby", Tags: map[string]string{"zone": "b"}})
		return catalog.UpdateShard{Shard: w.s1, Location: &l}
	}},
	{"take shard offline", func(w world) catalog.Change {
		return catalog.UpdateShard{Shard: w.s1, Status: ptr(shardway.ShardOffline)}
	}},
	{"delete shard", func(w world) catalog.Change { return catalog.DeleteShard{Shard: w.s3} }},
	{"add range", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.ranges, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(500)), ShardID: w.s3.ID}}}
	}},
	{"add point", func(w world) catalog.Change {
		return catalog.AddMappings{Map: w.points, New: []catalog.NewMapping{{Range: shardway.RangeFrom(k(3)), ShardID: w.p1.ID}}}
	}},
	{"add ranges on three shards", func(w world) catalog.Change {
		var n []catalog.NewMapping
		for i, s := range []shardway.ShardID{w.s1.ID, w.s2.ID, w.s3.ID, w.s1.ID} {
			n = append(n, catalog.NewMapping{Range: rangeOf(500+10*int64(i), 510+10*int64(i)), ShardID: s, Offline: i == 1})
		}
		return catalog.AddMappings{Map: w.ranges, New: n}
	}},
	{"take range offline", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)}
	}},
	{"take range offline at once", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: store.Drain{Mode: store.DrainAtOnce}}
	}},
	{"take range offline and end nobody", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: store.Drain{Mode: store.DrainNobody}}
	}},
	{"take point online", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.two, Status: ptr(shardway.Online)}
	}},
	{"move offline range", func(w world) catalog.Change { return catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s2.ID} }},
	{"move range and take it offline", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, ShardID: &w.s3.ID, Status: ptr(shardway.Offline)}
	}},
	{"move range and take it online", func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.b, ShardID: &w.s3.ID, Status: ptr(shardway.Online)}
	}},
	{"move point", func(w world) catalog.Change { return catalog.UpdateMapping{Mapping: w.two, ShardID: &w.p1.ID} }},
	{"split", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(50)} }},
	{"split locked", func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.c, At: k(250), Token: token} }},
	{"merge", func(w world) catalog.Change { return catalog.MergeMappings{Left: w.d, Right: w.e} }},
	{"delete range", func(w world) catalog.Change { return catalog.DeleteMapping{Mapping: w.b} }},
	{"delete point", func(w world) catalog.Change { return catalog.DeleteMapping{Mapping: w.two} }},
	{"lock", func(w world) catalog.Change {
		return catalog.LockMapping{Mapping: w.a, Lock: shardway.Lock{Token: "t", Owner: "bob"}}
	}},
	{"unlock", func(w world) catalog.Change { return catalog.UnlockMapping{Mapping: w.c, Token: token} }},
	{"unlock owner", func(w world) catalog.Change { return catalog.UnlockOwner{Map: w.ranges, Token: token} }},
}

// TestKillMatrix stops a client right before and right after every commit of
// every kind of change, loses the acknowledgement, lets the commit fail in
// passing or for good, and lets the client stall while another one takes over.
// Then another client comes. See I1-I6, X1-X5, ADM-06 and ADM-07.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		var cases atomic.Int32
		t.Cleanup(func() { t.Logf("kill matrix: %d cases on %s", cases.Load(), e.name) })
		for _, kc := range killCases {
			t.Run(kc.name, func(t *testing.T) {
				t.Parallel()
				x := expect(t, kc.change)
				//nolint:paralleltest // the kinds of change are parallel; more would only need more databases
				t.Run("undisturbed", func(t *testing.T) { runKill(t, e, kc.change, x, undisturbed, 0) })
				for kind := range numFaults {
					for n := int32(1); n <= x.commits; n++ {
						if e.name != memory.name && sameMoment(kind) && n < x.commits {
							continue
						}
						cases.Add(1)
						//nolint:paralleltest // as above
						t.Run(fmt.Sprintf("%s %d", kind, n), func(t *testing.T) { runKill(t, e, kc.change, x, kind, n) })
					}
				}
			})
		}
	})
}

// sameMoment reports whether a fault right after a commit is the fault right
// before the next one: nothing is written between them. Memory runs both.
func sameMoment(kind fault) bool { return kind == killAfter || kind == stallAfter }

// kill is one case of the matrix.
type kill struct {
	*faults
	expectation

	name string
	res  catalog.Result
	err  error
}

// runKill makes a change in a new world, with a fault at its n-th commit.
func runKill(t *testing.T, e engine, change func(world) catalog.Change, x expectation, kind fault, n int32) {
	t.Helper()
	r, w := e.world(t)
	runKillIn(t, r, w, change, x, kind, n)
}

// runKillIn is runKill in a world that is there, and returns what has come of it.
func runKillIn(t *testing.T, r *rig, w world, change func(world) catalog.Change, x expectation, kind fault, n int32) *kill {
	t.Helper()
	k := &kill{faults: &faults{rig: r, at: n, kind: kind}, expectation: x}
	// The lease outlives the case: a dead client's operation is taken over by force.
	victim := k.client(catalog.Config{Who: "victim", Lease: time.Minute, Wait: time.Minute})
	k.res, k.err = victim.Do(t.Context(), change(w))
	s := k.look(t)
	k.name = fmt.Sprintf("%s at commit %d (%s)", k.kind, k.at, k.label)
	if (k.label == "") != (n == 0) {
		t.Errorf("%s: the change has %d commits", k.name, k.seen.Load())
	}
	s.checkPublished(t, k.name+", I1", k.before, k.after)

	switch k.kind {
	case killBefore, killAfter:
		s.checkAlways(t)
		if k.err == nil {
			t.Errorf("%s: a dead client reported success", k.name)
		}
		k.checkRecovery(t, s)
	case stallBefore, stallAfter:
		k.checkTakenOver(t, s)
	default:
		want := k.after
		if honest := (k.kind == failOnce || k.kind == lostCommit) && k.at == 1 && errors.Is(k.err, shardway.ErrUnavailable) || k.kind == refuse; honest && k.err != nil {
			want = k.before // nothing has changed, and the error says so
		} else if k.err != nil { // I5
			t.Errorf("%s: the change became an error: %v", k.name, k.err)
		}
		s.checkSettled(t)
		s.checkPublished(t, k.name, want)
	}
	return k
}

// checkRecovery lets another client recover, and compares what routers see with
// the outcome it reports.
func (k *kill) checkRecovery(t *testing.T, s *sight) {
	t.Helper()
	second := k.rig.client(catalog.Config{Who: "second"})
	recovered, err := second.Recover(t.Context(), true)
	if err != nil || len(recovered) != len(s.operations) {
		t.Errorf("%s: recovered %d of %d operations: %v", k.name, len(recovered), len(s.operations), err)
	}
	// Right before the publication every step has been applied: forward is the only way.
	forward := k.kind == killBefore && k.label == "global" && k.at > 1
	want := []dump{k.before, k.after} // without an operation the only commit has happened, or not
	for _, rec := range recovered {
		o, err := second.Outcome(t.Context(), rec.Operation.ID)
		if err != nil || o != rec.Outcome || o != store.Done && o != store.Undone {
			t.Errorf("%s: outcome of %s is %s, recovery said %s (%v, %v)", k.name, rec.Operation.ID, o, rec.Outcome, rec.Err, err)
		}
		if forward && o != store.Done {
			t.Errorf("%s: a complete operation was %s", k.name, o)
		}
		want = []dump{k.before}
		if o == store.Done {
			want = []dump{k.after}
		}
	}
	s = k.look(t)
	s.checkSettled(t)
	s.checkPublished(t, k.name+", after recovery", want...)
}

// checkTakenOver compares what a client that was taken over in the middle
// reports with what has come of its change.
func (k *kill) checkTakenOver(t *testing.T, s *sight) {
	t.Helper()
	for _, rec := range k.recovered {
		if rec.Outcome != store.Done && rec.Outcome != store.Undone {
			t.Errorf("%s: taking over %s ended %s: %v", k.name, rec.Operation.ID, rec.Outcome, rec.Err)
		}
		if (rec.Outcome == store.Done) != (k.err == nil) {
			t.Errorf("%s: the operation was %s, the client reported %v", k.name, rec.Outcome, k.err)
		}
	}
	want := k.before
	if k.err == nil {
		want = k.after
	}
	if k.recoverErr != nil || k.err != nil && k.res.Operation != 0 && !errors.Is(k.err, store.ErrLostLease) {
		t.Errorf("%s: %v, %v", k.name, k.recoverErr, k.err)
	}
	s.checkSettled(t)
	s.checkPublished(t, k.name, want)
}

// expectation is what is known about a change from making it in memory.
type expectation struct {
	before, after dump // what routers see
	commits       int32
}

func expect(t *testing.T, change func(world) catalog.Change) (x expectation) {
	t.Helper()
	r, w := memory.world(t)
	x.before = r.look(t).published
	f := &faults{rig: r}
	do(t, f.client(catalog.Config{}), change(w))
	x.after, x.commits = r.look(t).published, f.seen.Load()
	return x
}

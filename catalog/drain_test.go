package catalog_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// drained are the engines that can end sessions.
var drained = []*fleet{{engine: dbtest.EnginePostgres}, {engine: dbtest.EngineMySQL}}

// worker is a session of an application on the first shard's database.
type worker struct {
	*sql.Conn
	id int64
}

// work begins a transaction that keeps a mapping where it is and writes a row.
func (s *site) work(t *testing.T, m shardway.Mapping) worker {
	t.Helper()
	w := s.session(t)
	for _, text := range append(s.d.Begin(dialect.Write), "INSERT INTO work VALUES (1)") {
		if _, err := w.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	s.ask(t, w, s.d.LockTagged(), m)
	return w
}

// session opens a session that is gone when the test ends.
func (s *site) session(t *testing.T) worker {
	t.Helper()
	conn, err := s.shards[0].Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	})
	w := worker{Conn: conn}
	if w.id, err = s.number(t, w); err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *site) ask(t *testing.T, w worker, text string, m shardway.Mapping) {
	t.Helper()
	rows, err := w.QueryContext(t.Context(), text, dialect.Tag(int64(m.ID)), int64(m.ID))
	if err != nil {
		t.Fatal(err)
	}
	found := rows.Next()
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !found {
		t.Fatalf("mapping found: %t, %v", found, err)
	}
}

func (s *site) number(t *testing.T, w worker) (id int64, err error) {
	text := "SELECT pg_backend_pid()"
	if s.fleet.engine == dbtest.EngineMySQL {
		text = "SELECT CONNECTION_ID()"
	}
	err = w.QueryRowContext(t.Context(), text).Scan(&id)
	return id, err
}

// TestKillMatrixDrained is the kill matrix with people at work: whatever
// happens to the client, once the mapping is offline nobody is left who was at
// work for it, and those at work for another mapping have not noticed.
func TestKillMatrixDrained(t *testing.T) {
	t.Parallel()
	change := func(w world) catalog.Change {
		return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: store.Drain{Mode: store.DrainAtOnce}}
	}
	x := expect(t, change)
	for _, f := range drained {
		f.enter(t)
		t.Run(string(f.engine), func(t *testing.T) {
			t.Parallel()
			f.require(t)
			var cases, dead atomic.Int32
			t.Cleanup(func() { t.Logf("%d cases, in %d the sessions were ended", cases.Load(), dead.Load()) })
			for kind := range numFaults {
				for n := int32(1); n <= x.commits; n++ {
					t.Run(fmt.Sprintf("%s %d", kind, n), func(t *testing.T) { //nolint:paralleltest // more would only need more databases
						cases.Add(1)
						if f.killDrained(t, change, x, kind, n) {
							dead.Add(1)
						}
					})
				}
			}
		})
	}
}

func (f *fleet) killDrained(t *testing.T, change func(world) catalog.Change, x expectation, kind fault, n int32) (ended bool) {
	t.Helper()
	s := f.take(t, true)
	r := s.rig(t)
	s.exec(t, s.shards[0], "CREATE TABLE IF NOT EXISTS work (n int)")
	mine, other, out, otherOut := s.work(t, s.world.a), s.work(t, s.world.c), s.session(t), s.session(t)
	s.ask(t, out, s.d.ValidateTagged(), s.world.a)
	s.ask(t, otherOut, s.d.ValidateTagged(), s.world.c)
	runKillIn(t, r, s.world, change, x, kind, n)
	for name, w := range map[string]worker{"transaction": other, "session": otherOut} {
		if id, err := s.number(t, w); err != nil || id != w.id {
			t.Errorf("another mapping's %s: now %d, was %d: %v", name, id, w.id, err)
		}
	}
	online := slices.ContainsFunc(r.look(t).owned, func(m owned) bool { return m.ID == s.world.a.ID })
	if online {
		return false
	}
	if _, err := s.number(t, mine); err == nil {
		t.Error("a transaction goes on whose mapping is offline")
	}
	// Where MariaDB shows no tags, plain sessions are not found.
	if _, err := s.number(t, out); err == nil && f.engine == dbtest.EnginePostgres {
		t.Error("a session goes on that was checked out for the mapping")
	}
	return true
}

// A client that dies after its local commit may not have ended all sessions:
// who finishes its change does.
func TestRecoveryEndsSessions(t *testing.T) {
	t.Parallel()
	f := drained[0]
	f.enter(t)
	f.require(t)
	s := f.take(t, true)
	r, w := s.rig(t), s.world
	dying := &faults{rig: r, at: 2, kind: killAfter}
	_, err := dying.client(catalog.Config{Lease: time.Minute}).Do(t.Context(), catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)})
	if err == nil || dying.label != "local s1" {
		t.Fatalf("the client did not die at the local commit: %q, %v", dying.label, err)
	}
	late, other := s.tagged(t, w.a), s.tagged(t, w.c)
	done, err := r.client(catalog.Config{}).Recover(t.Context(), true)
	if err != nil || len(done) != 1 || done[0].Outcome != store.Done {
		t.Fatalf("Recover = %+v, %v", done, err)
	}
	if _, err := s.number(t, late); err == nil {
		t.Error("a session goes on whose mapping has left")
	}
	if _, err := s.number(t, other); err != nil {
		t.Errorf("another mapping's session: %v", err)
	}
}

// tagged is a session with the tag of a mapping that may be gone.
func (s *site) tagged(t *testing.T, m shardway.Mapping) worker {
	t.Helper()
	w := s.session(t)
	if _, err := w.ExecContext(t.Context(), "SELECT set_config('application_name', $1, false)", dialect.Tag(int64(m.ID))); err != nil {
		t.Fatal(err)
	}
	return w
}

// Sessions that are checked out are ended as soon as the mapping leaves, whatever
// the limit, and none when nobody is to be ended.
func TestDrainOfSessionsCheckedOut(t *testing.T) {
	t.Parallel()
	f := drained[0]
	f.enter(t)
	f.require(t)
	for name, d := range map[string]store.Drain{
		"default": {}, "long": {Limit: time.Hour}, "at once": {Mode: store.DrainAtOnce}, "nobody": {Mode: store.DrainNobody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := f.take(t, true)
			r, w := s.rig(t), s.world
			mine, other := s.tagged(t, w.a), s.tagged(t, w.c)
			res := do(t, r.client(catalog.Config{}), catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: d})
			want := store.Drained{Ended: 1}
			if d.Mode == store.DrainNobody {
				want = store.Drained{}
			}
			if _, err := s.number(t, mine); (err == nil) != (want.Ended == 0) || res.Drained != want {
				t.Errorf("drained %+v, and the session says %v", res.Drained, err)
			}
			if _, err := s.number(t, other); err != nil {
				t.Errorf("another mapping's session: %v", err)
			}
		})
	}
}

// busyLocal is a local store whose mapping is in use for some time.
type busyLocal struct {
	store.Local
	log   *[]string
	until time.Time
}

func (l busyLocal) Step(ctx context.Context, s store.LocalStep) (store.StepState, error) {
	if s.Want != store.StepApplied || len(s.Taken()) == 0 {
		return l.Local.Step(ctx, s)
	}
	deadline, _ := ctx.Deadline()
	*l.log = append(*l.log, fmt.Sprintf("mode %d, %v of %v", s.Drain.Mode, s.Drain.Wait(), time.Until(deadline)))
	s.Drained.Waited++
	if free := time.Until(l.until); free <= s.Drain.Wait() {
		time.Sleep(max(free, 0)) // fake time
		return l.Local.Step(ctx, s)
	}
	time.Sleep(s.Drain.Wait()) // fake time
	if s.Drain.Mode == store.DrainNobody || s.Drain.Mode == store.DrainPart {
		return 0, &store.BusyError{Map: s.Map, Mappings: s.Taken()}
	}
	s.Drained.Ended++
	return l.Local.Step(ctx, s)
}

// The wait is cut into parts that end well before the lease does, whatever the
// limit; sessions are ended at its end, or never.
func TestDrainWithinTheLease(t *testing.T) {
	t.Parallel()
	offline := func(d store.Drain) func(w world) catalog.Change {
		return func(w world) catalog.Change {
			return catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: d}
		}
	}
	split := func(w world) catalog.Change { return catalog.SplitMapping{Mapping: w.a, At: k(50)} }
	for name, c := range map[string]struct {
		change func(w world) catalog.Change
		busy   time.Duration
		want   []string
		met    store.Drained
		err    error
	}{
		"default":      {offline(store.Drain{}), time.Hour, []string{"mode 3, 1s of 4s", "mode 3, 1s of 3s", "mode 3, 1s of 4s", "mode 3, 1s of 3s", "mode 0, 1s of 4s"}, store.Drained{Waited: 1, Ended: 1}, nil},
		"in time":      {offline(store.Drain{Limit: time.Minute}), 1500 * time.Millisecond, []string{"mode 3, 1s of 4s", "mode 3, 1s of 3s"}, store.Drained{Waited: 1}, nil},
		"at once":      {offline(store.Drain{Mode: store.DrainAtOnce}), time.Hour, []string{"mode 1, 0s of 4s"}, store.Drained{Waited: 1, Ended: 1}, nil},
		"nobody":       {offline(store.Drain{Mode: store.DrainNobody, Limit: 1500 * time.Millisecond}), time.Hour, []string{"mode 2, 1s of 4s", "mode 2, 500ms of 3s"}, store.Drained{}, store.ErrMappingBusy},
		"those stay":   {split, time.Hour, []string{"mode 2, 1s of 4s", "mode 2, 1s of 3s"}, store.Drained{}, store.ErrMappingBusy},
		"a short wait": {offline(store.Drain{Limit: 300 * time.Millisecond}), time.Hour, []string{"mode 0, 300ms of 4s"}, store.Drained{Waited: 1, Ended: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, w := memory.world(t)
				before := r.look(t).published
				var log []string
				for address, local := range r.locals {
					r.locals[address] = busyLocal{local, &log, time.Now().Add(c.busy)}
				}
				cat := r.client(catalog.Config{Lease: 4 * time.Second, Wait: 2 * time.Second})
				res, err := cat.Do(t.Context(), c.change(w))
				if !errors.Is(err, c.err) || err != nil && c.err == nil || res.Drained != c.met {
					t.Errorf("Do = %+v, %v", res.Drained, err)
				}
				if !slices.Equal(log, c.want) {
					t.Errorf("steps %q, want %q", log, c.want)
				}
				s := r.look(t)
				s.checkSettled(t)
				if c.err != nil {
					s.checkPublished(t, name, before)
				}
			})
		})
	}
}

// A limit below zero is refused by name, and nothing has changed.
func TestDrainLimitBelowZero(t *testing.T) {
	t.Parallel()
	r, w := memory.world(t)
	before := r.look(t).published
	below := store.Drain{Limit: -1}
	for _, ch := range []catalog.Change{
		catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: below},
		catalog.UpdateShard{Shard: w.s1, Status: ptr(shardway.ShardOffline), Drain: below},
		catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline), Drain: store.Drain{Mode: 4}},
	} {
		_, err := r.client(catalog.Config{}).Do(t.Context(), ch)
		var argument *shardway.ArgumentError
		if !errors.As(err, &argument) || argument.Argument != "drain limit" && argument.Argument != "drain mode" {
			t.Errorf("%+v: %v", ch, err)
		}
	}
	if _, err := catalog.New(r.global, r, catalog.Config{Drain: below}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("New = %v", err)
	}
	r.look(t).checkPublished(t, "refused", before)
}

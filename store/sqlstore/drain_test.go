package sqlstore_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// A transaction that ends in time is waited for, and nobody is ended (ADM-01).
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	eachTenants(t, func(w *tenants) {
		others := []*user{w.fenced(w.other), w.validated(w.other), w.open()}
		u := w.fenced(w.mine)
		s := w.offline(store.Drain{Limit: time.Minute})
		done := w.begin(s)
		w.waiting()
		u.alive("during the wait")
		w.looked()
		w.exec(u, "COMMIT")
		if err := <-done; err != nil {
			w.Fatalf("Step = %v", err)
		}
		if w.e == dbtest.EngineMySQL && s.Drained.Waited == 0 {
			s.Drained.Waited = 1 // nobody needs to have looked
		}
		if *s.Drained != (store.Drained{Waited: 1}) || w.owned() {
			w.Errorf("drained %+v, owned %t", *s.Drained, w.owned())
		}
		for _, o := range others {
			o.alive("another tenant")
		}
		w.exec(others[0], "COMMIT")
	})
}

// Sessions that do not leave in time are ended: those of transactions, at work
// or idle, of holders, and those checked out for the mapping. Others go on
// (ADM-01, ADM-10).
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	test := func(w *tenants, limits ...store.Drain) {
		for _, drain := range limits {
			w.Run(fmt.Sprintf("mode %d limit %v", drain.Mode, drain.Limit), func(t *testing.T) { //nolint:paralleltest // one mapping for all
				outer := w.T
				w.T = t
				defer func() { w.T = outer }()
				w.drainOut(drain)
			})
		}
	}
	both := []store.Drain{{Limit: 50 * time.Millisecond}, {Mode: store.DrainAtOnce}}
	eachTenants(t, func(w *tenants) { test(w, both...) })
	t.Run("mysql with tags", func(t *testing.T) {
		t.Parallel()
		test(newTagged(t), both...)
	})
}

// newTagged is a MariaDB that shows tags.
func newTagged(t *testing.T) *tenants {
	t.Helper()
	server := dbtest.NewMariaDB(t, dbtest.MariaDBOptions{Settings: []string{"performance-schema=1"}})
	return newTenantsOn(t, server, server.NewDatabase(t))
}

func (w *tenants) drainOut(drain store.Drain) {
	w.Helper()
	others := map[string]*user{"transaction": w.fenced(w.other), "checked out": w.validated(w.other), "without a tag": w.open()}
	mine := map[string]*user{"idle in a transaction": w.fenced(w.mine), "second": w.fenced(w.mine), "at work": w.fenced(w.mine)}
	if w.d.LockHold() != "" {
		others["holder"], mine["holder"] = w.holding(w.other), w.holding(w.mine)
	}
	if w.tagged {
		mine["checked out"], mine["pooled"] = w.validated(w.mine), w.validated(w.mine)
		mine["quiet"], others["quiet"] = w.quiet(w.mine), w.quiet(w.other)
	}
	work := make(chan error, 1)
	go func() {
		_, err := mine["at work"].ExecContext(w.Context(), map[dbtest.Engine]string{
			dbtest.EnginePostgres: "SELECT pg_sleep(60)", dbtest.EngineMySQL: "DO SLEEP(60)",
		}[w.e])
		work <- err
	}()
	s := w.offline(drain)
	got := w.must(s)
	if err := <-work; err == nil {
		w.Error("a session at work went on")
	}
	for name, u := range mine {
		if name != "at work" {
			u.dead(name)
		}
	}
	for name, u := range others {
		u.alive("another tenant's " + name)
	}
	if got.Ended != len(mine) || got.Left != 0 || w.owned() {
		w.Errorf("drained %+v of %d, owned %t", got, len(mine), w.owned())
	}
	for _, u := range others {
		w.exec(u, "COMMIT")
	}

	// Once more, as who finishes the change of a dead client: harmless, and it
	// finds who has come late.
	if w.tagged && w.e == dbtest.EnginePostgres {
		late := w.open()
		w.exec(late, "SELECT set_config('application_name', $1, false)", dialect.Tag(int64(w.mine.ID)))
		w.must(s)
		late.dead("who came late")
	}
	before := *s.Drained
	w.must(s)
	if *s.Drained != before {
		w.Errorf("once more: %+v, before %+v", *s.Drained, before)
	}
	back := s
	back.Want, back.Epoch = store.StepUndone, 2
	w.must(back)
	if !w.owned() {
		w.Error("not owned after undoing")
	}
}

// Splitting a mapping waits for those who keep it where it is, and ends nobody.
func TestDrainSparesThoseWhoStay(t *testing.T) {
	t.Parallel()
	eachTenants(t, func(w *tenants) {
		split := func(drain store.Drain) store.LocalStep {
			return w.step(store.Step{Shard: w.shard, Remove: []shardway.Mapping{w.mine}, Add: []shardway.Mapping{w.mapping(0, 50), w.mapping(50, 100)}}, drain)
		}
		users := []*user{w.fenced(w.mine), w.validated(w.mine)}
		if w.d.LockHold() != "" {
			users = append(users, w.holding(w.mine))
		}
		for _, drain := range []store.Drain{{Limit: 20 * time.Millisecond}, {Mode: store.DrainAtOnce}, {Mode: store.DrainNobody, Limit: time.Millisecond}} {
			w.refused(split(drain))
		}
		done := w.begin(split(store.Drain{Limit: time.Minute}))
		w.waiting()
		w.exec(users[0], "COMMIT")
		if w.d.LockHold() != "" { // it is next
			w.looked()
			if !w.owned() {
				w.Error("split under a holder")
			}
			w.exec(users[2], w.d.ReleaseHold(), w.d.HoldKey(int64(w.mine.ID)))
		}
		if err := <-done; err != nil {
			w.Fatalf("Step = %v", err)
		}
		for _, u := range users {
			u.alive("a split")
		}
	})
}

// refused takes a step that must find the mapping in use and change nothing.
func (w *tenants) refused(s store.LocalStep) *store.BusyError {
	w.Helper()
	_, err := w.local.Step(w.Context(), s)
	var busy *store.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, store.ErrMappingBusy) || !strings.Contains(err.Error(), `[0, 100) of shard map "customers"`) {
		w.Fatalf("Step = %v", err)
	}
	if !w.owned() || s.Drained.Ended != 0 {
		w.Fatalf("refused, but owned %t, drained %+v", w.owned(), *s.Drained)
	}
	return busy
}

// With DrainNobody a change is given up, and the next one succeeds once the
// users have left. Sessions that are checked out stay.
func TestDrainNobody(t *testing.T) {
	t.Parallel()
	eachTenants(t, func(w *tenants) {
		u, idle := w.fenced(w.mine), w.validated(w.mine)
		drain := store.Drain{Mode: store.DrainNobody, Limit: 2 * time.Second} // time for a look
		busy := w.refused(w.offline(drain))
		if want := fmt.Sprintf("session %d", u.id); len(busy.Users) != 1 || !strings.HasPrefix(busy.Users[0], want) || busy.Reason != "" {
			w.Errorf("%+v, want %s", busy, want)
		}
		u.alive("a change that was given up")
		w.exec(u, "COMMIT")
		if got := w.must(w.offline(drain)); got.Ended != 0 {
			w.Errorf("drained %+v", got)
		}
		u.alive("nobody is ended")
		idle.alive("nobody is ended")
	})
}

// A step of who has lost the operation ends nobody (I6).
func TestDrainTooLate(t *testing.T) {
	t.Parallel()
	eachTenants(t, func(w *tenants) {
		late := w.offline(store.Drain{Mode: store.DrainAtOnce})
		fence := late
		fence.Epoch, fence.Want = 2, store.StepSeen
		w.must(fence)
		u, idle := w.fenced(w.mine), w.validated(w.mine)
		if _, err := w.local.Step(w.Context(), late); !errors.Is(err, store.ErrLostLease) {
			w.Errorf("Step = %v", err)
		}
		fence.Want = store.StepUndone
		w.must(fence)
		fence.Want = store.StepApplied
		if _, err := w.local.Step(w.Context(), fence); !errors.Is(err, store.ErrLostLease) {
			w.Errorf("Step = %v", err)
		}
		u.alive("too late")
		idle.alive("too late")

		// Nor does that of who comes after the shard has forgotten the operation.
		late = w.offline(store.Drain{Mode: store.DrainAtOnce})
		w.seq += 1000
		later := w.step(store.Step{Shard: w.shard}, store.Drain{})
		later.Horizon = w.seq
		w.must(later)
		if _, err := w.local.Step(w.Context(), late); !errors.Is(err, store.ErrLostLease) {
			w.Errorf("Step = %v", err)
		}
		u.alive("forgotten")
		idle.alive("forgotten")
	})
}

// Two mappings of one shard drain side by side: neither waits for the users of
// the other, and each ends its own.
func TestDrainTwoAtOnce(t *testing.T) {
	t.Parallel()
	eachTenants(t, func(w *tenants) {
		mine, other := w.fenced(w.mine), w.fenced(w.other)
		slow := w.offline(store.Drain{Limit: time.Minute})
		done := w.begin(slow)
		w.waiting()
		quick := w.step(store.Step{Shard: w.shard, Remove: []shardway.Mapping{w.other}}, store.Drain{Mode: store.DrainAtOnce})
		if got := w.must(quick); got.Ended != 1 {
			w.Errorf("drained %+v", got)
		}
		other.dead("its mapping has left")
		mine.alive("the limit of its drain is not over")
		w.exec(mine, "COMMIT")
		if err := <-done; err != nil {
			w.Errorf("Step = %v", err)
		}
	})
}

// Sessions that vanish while others are being ended are no error, and none is
// tried for ever (ADM-01).
func TestDrainVanishingSessions(t *testing.T) {
	t.Parallel()
	test := func(w *tenants) {
		for range 5 {
			var users []*user
			for range 12 {
				users = append(users, w.validated(w.mine))
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for _, u := range users {
					_ = u.Raw(func(any) error { return driver.ErrBadConn })
				}
			}()
			s := w.offline(store.Drain{})
			w.must(s)
			<-gone
			if s.Drained.Left != 0 {
				w.Errorf("drained %+v", *s.Drained)
			}
			s.Want = store.StepUndone
			w.must(s)
		}
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(newTenants(t, dbtest.EnginePostgres.NewDatabase(t)))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(newTagged(t))
	})
}

// A prepared transaction is no session: the change waits, names it, and is
// given up (ADM-13).
func TestDrainPreparedTransaction(t *testing.T) {
	t.Parallel()
	server := dbtest.NewPostgres(t, dbtest.PostgresOptions{Settings: []string{"max_prepared_transactions=5"}})
	w := newTenantsOn(t, server, server.NewDatabase(t))
	u := w.quiet(w.mine) // a mapping's tag cannot be prepared with it
	w.exec(u, "PREPARE TRANSACTION 'in doubt'")
	for _, drain := range []store.Drain{{Limit: 20 * time.Millisecond}, {Mode: store.DrainNobody, Limit: 2 * time.Second}} {
		busy := w.refused(w.offline(drain))
		if len(busy.Users) != 1 || busy.Users[0] != "prepared transaction 'in doubt'" {
			w.Errorf("%+v", busy)
		}
	}
	w.exec(u, "COMMIT PREPARED 'in doubt'")
	w.must(w.offline(store.Drain{}))
}

// MariaDB does not tell which of several transactions that have written nothing
// is in the way; where tags are not shown either, nobody is ended by guess.
func TestDrainQuietTransactions(t *testing.T) {
	t.Parallel()
	w := newTenants(t, dbtest.EngineMySQL.NewDatabase(t))
	mine, other := w.quiet(w.mine), w.quiet(w.other)
	busy := w.refused(w.offline(store.Drain{Mode: store.DrainAtOnce}))
	if !strings.Contains(busy.Reason, "transactions that have written nothing yet") {
		w.Errorf("%+v", busy)
	}
	mine.alive("refused")
	other.alive("refused")
}

// A login without the right to see or to end the sessions of others says so
// while nothing has changed, and can do it once it has the right.
func TestDrainRights(t *testing.T) {
	t.Parallel()
	test := func(w *tenants, tables []string, missing ...string) {
		login := w.login("catalog", tables)
		w.local = placeOf(w.T, login).local(w.T)
		u, idle := w.fenced(w.mine), w.validated(w.mine)
		tell := func(what string) {
			w.Helper()
			_, err := w.local.Step(w.Context(), w.offline(store.Drain{Mode: store.DrainAtOnce}))
			var busy *store.BusyError
			if !errors.As(err, &busy) || !slices.Equal(busy.Grants, missing) || !strings.Contains(err.Error(), missing[0]) || !w.owned() {
				w.Fatalf("%s: Step = %v, owned %t", what, err, w.owned())
			}
		}
		tell("a transaction")
		u.alive("no right to end it")
		w.exec(u, "COMMIT")
		tell("a session that was checked out")
		idle.alive("no right to end it")
		u = w.fenced(w.mine)
		w.grant(login.User, missing...)
		w.local = placeOf(w.T, login).local(w.T) // rights are those of the login
		w.must(w.offline(store.Drain{Mode: store.DrainAtOnce}))
		u.dead("with all rights")
		idle.dead("with all rights")
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		w := newTenants(t, dbtest.EnginePostgres.NewDatabase(t))
		test(w, []string{"USAGE ON SCHEMA shardway", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA shardway"}, "pg_signal_backend")
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(newTagged(t), []string{"SELECT, INSERT, UPDATE, DELETE ON *"}, "PROCESS ON *.*", "CONNECTION ADMIN ON *.*",
			"SELECT ON performance_schema.user_variables_by_thread", "SELECT ON performance_schema.threads")
	})
}

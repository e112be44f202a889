package sqlstore_test

import (
	"context"
	"database/sql"
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
	"github.com/shardway/shardway/store/sqlstore"
)

// tenants is a shard with the mappings of two tenants and an application that
// plays by the rules of the fence, as another user than the catalog.
type tenants struct {
	*testing.T
	e       dbtest.Engine
	d       *dialect.Dialect
	db      dbtest.Database
	local   *sqlstore.Local
	app     *sql.DB
	admin   *sql.DB
	m       shardway.ShardMap
	shard   shardway.Shard
	mine    shardway.Mapping // is to leave
	other   shardway.Mapping // is not
	tagged  bool             // the server shows tags
	seq     int64
	private *dbtest.Server // when it is not the shared one
}

func newTenants(t *testing.T, db dbtest.Database) *tenants {
	t.Helper()
	return newTenantsOn(t, nil, db)
}

// newTenantsOn is for a server of the test's own.
func newTenantsOn(t *testing.T, server *dbtest.Server, db dbtest.Database) *tenants {
	t.Helper()
	e := dbtest.Engine(db.Engine)
	d, err := dialect.For(db.Engine)
	if err != nil {
		t.Fatal(err)
	}
	w := &tenants{T: t, e: e, d: d, db: db, local: placeOf(t, db).local(t), admin: db.Open(t), private: server}
	w.tagged = e == dbtest.EnginePostgres || server != nil
	if err := w.local.Deploy(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	w.m = shardway.ShardMap{ID: 1, Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	w.shard = shardway.Shard{ID: 2, MapID: 1, Name: "s1", Version: 1}
	w.mine, w.other = w.mapping(0, 100), w.mapping(100, 200)
	w.must(w.step(store.Step{Shard: w.shard, After: &w.shard, Add: []shardway.Mapping{w.mine, w.other}}, store.Drain{}))
	w.exec(w.admin, "CREATE TABLE work (n int)")
	w.app = w.admin
	if e != dbtest.EngineSQLite {
		w.app = w.login("app", applicationRights(e)).Open(t)
	}
	return w
}

// applicationRights are what the fence takes.
func applicationRights(e dbtest.Engine) []string {
	if e == dbtest.EnginePostgres {
		return []string{"USAGE ON SCHEMA shardway", "SELECT, UPDATE (fence) ON shardway.local_mappings", "INSERT ON work"}
	}
	return []string{"SELECT ON shardway_local_mappings", "INSERT ON work"}
}

// login makes a user with rights.
func (w *tenants) login(hint string, rights []string) dbtest.Database {
	w.Helper()
	server := w.server()
	user, password := server.NewUser(w, hint)
	w.grant(user, rights...)
	return w.db.As(user, password)
}

func (w *tenants) server() *dbtest.Server {
	w.Helper()
	if w.private != nil {
		return w.private
	}
	return w.e.Server(w)
}

func (w *tenants) grant(user string, rights ...string) {
	w.Helper()
	name := `"` + user + `"`
	if w.e == dbtest.EngineMySQL {
		name = "'" + user + "'@'%'"
	}
	for _, r := range rights {
		w.exec(w.admin, "GRANT "+r+" TO "+name)
	}
}

func (w *tenants) mapping(low, high int64) shardway.Mapping {
	return shardway.Mapping{
		ID: shardway.MappingID(store.NewID()), MapID: 1, ShardID: 2, Status: shardway.Online,
		Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)},
	}
}

// step is a new operation's request.
func (w *tenants) step(step store.Step, drain store.Drain) store.LocalStep {
	w.seq++
	return store.LocalStep{
		Operation: store.OperationID(store.NewID()), Seq: w.seq, Epoch: 1, Map: w.m, Step: step, Want: store.StepApplied,
		Drain: drain, Drained: &store.Drained{},
	}
}

// offline takes my mapping offline.
func (w *tenants) offline(drain store.Drain) store.LocalStep {
	after := w.mapping(0, 100)
	after.Status = shardway.Offline
	return w.step(store.Step{Shard: w.shard, Remove: []shardway.Mapping{w.mine}, Add: []shardway.Mapping{after}}, drain)
}

func (w *tenants) must(s store.LocalStep) store.Drained {
	w.Helper()
	if got, err := w.local.Step(w.Context(), s); err != nil || got != s.Want {
		w.Fatalf("Step = %d, %v", got, err)
	}
	return *s.Drained
}

// begin takes a step in the background.
func (w *tenants) begin(s store.LocalStep) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := w.local.Step(context.WithoutCancel(w.Context()), s)
		done <- err
	}()
	return done
}

// owned reports whether the shard has my mapping online.
func (w *tenants) owned() bool {
	w.Helper()
	maps, err := w.local.Read(w.Context(), 1)
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(maps[0].Mappings, func(m shardway.Mapping) bool { return m.ID == w.mine.ID && m.Status == shardway.Online })
}

func (w *tenants) exec(db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, text string, args ...any,
) {
	w.Helper()
	if _, err := db.ExecContext(w.Context(), text, args...); err != nil {
		w.Fatalf("%s: %v", text, err)
	}
}

// user is a session of the application.
type user struct {
	*sql.Conn
	w  *tenants
	id int64
}

func (w *tenants) open() *user {
	w.Helper()
	conn, err := w.app.Conn(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	u := &user{Conn: conn, w: w}
	if u.id, err = u.number(); err != nil {
		w.Fatal(err)
	}
	return u
}

// number asks the session for its number on the server.
func (u *user) number() (id int64, err error) {
	text := map[dbtest.Engine]string{dbtest.EnginePostgres: "SELECT pg_backend_pid()", dbtest.EngineMySQL: "SELECT CONNECTION_ID()", dbtest.EngineSQLite: "SELECT 1"}[u.w.e]
	err = u.QueryRowContext(u.w.Context(), text).Scan(&id)
	return id, err
}

// validated tags a session for a mapping, as a checkout does.
func (w *tenants) validated(m shardway.Mapping) *user {
	w.Helper()
	u := w.open()
	u.ask(w.d.ValidateTagged(), dialect.Tag(int64(m.ID)), int64(m.ID))
	return u
}

// fenced begins a transaction that keeps a mapping where it is, and writes.
func (w *tenants) fenced(m shardway.Mapping) *user {
	w.Helper()
	u := w.quiet(m)
	w.exec(u, "INSERT INTO work VALUES (1)")
	return u
}

// quiet is fenced without a write.
func (w *tenants) quiet(m shardway.Mapping) *user {
	w.Helper()
	u := w.open()
	for _, s := range w.d.Begin(dialect.Write) {
		w.exec(u, s)
	}
	if w.d.Tags() {
		u.ask(w.d.LockTagged(), dialect.Tag(int64(m.ID)), int64(m.ID))
	} else {
		u.ask(w.d.LockMapping(), int64(m.ID))
	}
	return u
}

// holding takes the lock of a holder.
func (w *tenants) holding(m shardway.Mapping) *user {
	w.Helper()
	u := w.open()
	w.exec(u, w.d.LockHold(), w.d.HoldKey(int64(m.ID)))
	u.ask(w.d.ValidateMapping(), int64(m.ID))
	return u
}

// ask demands one row.
func (u *user) ask(text string, args ...any) {
	u.w.Helper()
	rows, err := u.QueryContext(u.w.Context(), text, args...)
	if err != nil {
		u.w.Fatalf("%s: %v", text, err)
	}
	found := rows.Next()
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !found {
		u.w.Fatalf("%s: found %t, %v", text, found, err)
	}
}

// alive demands that the session goes on: the same one, its transaction too.
func (u *user) alive(what string) {
	u.w.Helper()
	if id, err := u.number(); err != nil || id != u.id {
		u.w.Errorf("%s: the session is %d, was %d: %v", what, id, u.id, err)
	}
}

// dead demands that the session has ended.
func (u *user) dead(what string) {
	u.w.Helper()
	if _, err := u.number(); err == nil {
		u.w.Errorf("%s: the session lives on", what)
	}
}

// waiting returns once a session of ours waits for a lock.
func (w *tenants) waiting() {
	w.Helper()
	text := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()",
		dbtest.EngineMySQL:    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE '%local_mappings%FOR UPDATE' AND ID <> CONNECTION_ID()",
	}[w.e]
	w.until("nobody waits for a lock", func() bool {
		var n int
		if err := w.admin.QueryRowContext(w.Context(), text).Scan(&n); err != nil {
			w.Fatal(err)
		}
		return n > 0
	})
}

// looked returns once somebody has looked who is in the way. MySQL does not
// show that.
func (w *tenants) looked() {
	w.Helper()
	if w.e != dbtest.EnginePostgres {
		return
	}
	const text = "SELECT COALESCE(MAX(query_start)::text, '') FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE '%AS blockers'"
	seen := map[string]bool{"": true}
	w.until("nobody looks", func() bool { // the first is that of preparing the query
		var at string
		if err := w.admin.QueryRowContext(w.Context(), text).Scan(&at); err != nil {
			w.Fatal(err)
		}
		seen[at] = true
		return len(seen) > 3
	})
}

func (w *tenants) until(otherwise string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			w.Fatal(otherwise)
		}
	}
}

// eachTenants runs a test on the engines that can end sessions, on servers that
// show tags.
func eachTenants(t *testing.T, test func(w *tenants)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(newTenants(t, dbtest.EnginePostgres.NewDatabase(t)))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(newTenants(t, dbtest.EngineMySQL.NewDatabase(t)))
	})
}

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

package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
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

package sqlshard_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
	"github.com/shardway/shardway/topology/mysqlprobe"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/probe"
)

// members is what both kinds of replica set can do.
type members interface {
	Server(i int) *dbtest.Server
	Servers() []*dbtest.Server
	Addr(i int) string
	At(d dbtest.Database, i int) dbtest.Database
	NewDatabase(t testing.TB) dbtest.Database
	Proxy(i int) *faultconn.Proxy
	Kill(t testing.TB, i int)
	Restart(t testing.TB, i int)
	Promote(t testing.TB, i int)
	Follow(t testing.TB, i, primary int)
	AwaitReplay(t testing.TB, i int)
}

// replicas is a shard "a" with the keys [0, 100) on a real primary, server 0,
// and its secondaries. The application's login has no more rights than it needs.
type replicas struct {
	t      testing.TB
	kind   dbtest.Engine
	set    members
	at     dbtest.Database // for the administrator
	engine shardway.Engine
	login  shardway.Credentials
	source *counted
	beat   probe.Heartbeat // MySQL only: its terms
}

// eachSet runs a test on a PostgreSQL primary with two standbys and a MariaDB
// primary with one replica, each server behind a proxy.
func eachSet(t *testing.T, test func(t *testing.T, r *replicas)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newReplicas(t, dbtest.EnginePostgres, dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, newReplicas(t, dbtest.EngineMySQL, dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{Proxied: true})))
	})
}

func newReplicas(t *testing.T, e dbtest.Engine, set members) *replicas {
	t.Helper()
	r := &replicas{t: t, kind: e, set: set, at: set.NewDatabase(t)}
	admin, at, adminLogin := parse(t, r.at)
	r.engine = admin
	at.Servers = nil
	for i := range set.Servers() {
		at.Servers = append(at.Servers, shardway.Server{Address: set.Addr(i), Tags: map[string]string{"zone": fmt.Sprint("z", i)}})
	}
	_, global, _ := parse(t, dbtest.Database{Engine: "sqlite", Name: dbtest.SQLite(t)})
	store, err := sqlstore.OpenGlobal(sqlite.Engine{}, global, shardway.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	locals, err := sqlstore.NewLocals([]shardway.Engine{admin}, adminLogin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locals.Close() })
	cat, err := catalog.New(store, locals, catalog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	setup := &rig{t: t, cat: cat}
	m := setup.do(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	shard := setup.do(catalog.AddShard{Map: m, Name: "a", Location: at}).Shards[0]
	setup.do(catalog.AddMappings{Map: m, New: []catalog.NewMapping{{
		Range: shardway.Range{Low: shardway.Int64Key(0), High: shardway.Int64Key(100)}, ShardID: shard.ID,
	}}})
	r.source = &counted{Source: store}
	r.prepare()
	return r
}

// prepare makes the table and the login, and waits until all servers have them.
func (r *replicas) prepare() {
	r.t.Helper()
	user, password := r.set.Server(0).NewUser(r.t, "app")
	r.login = shardway.Credentials{User: user, Password: password}
	admin := r.open(0)
	do(r.t, admin, "CREATE TABLE written (id bigint PRIMARY KEY)")
	if r.kind == dbtest.EnginePostgres {
		do(r.t, admin, fmt.Sprintf(`GRANT ALL ON written TO %q`, user))
		do(r.t, admin, fmt.Sprintf(`GRANT USAGE ON SCHEMA shardway TO %q`, user))
		do(r.t, admin, fmt.Sprintf(`GRANT SELECT ON ALL TABLES IN SCHEMA shardway TO %q`, user))
		do(r.t, admin, pgprobe.Grants(user, pgprobe.Options{})...)
	} else {
		o := mysqlprobe.Options{Heartbeat: "heartbeat"}
		var err error
		if r.beat, err = probe.NewHeartbeat("mysql", o.Heartbeat); err != nil {
			r.t.Fatal(err)
		}
		do(r.t, admin, r.beat.Create())
		r.beatOn(0)
		do(r.t, admin, fmt.Sprintf("GRANT ALL ON `%s`.* TO '%s'@'%%'", r.at.Name, user))
		do(r.t, admin, mysqlprobe.GrantsMariaDB(user, o)...)
		r.engine = mysql.Engine{Options: r.engine.(mysql.Engine).Options, Probe: o}
	}
	for i := range r.set.Servers() {
		if i > 0 {
			r.set.AwaitReplay(r.t, i)
		}
	}
}

// open returns the administrator's pool of a server, past its proxy.
func (r *replicas) open(i int) *sql.DB {
	r.t.Helper()
	d := r.at
	d.Host, d.Port = r.set.Server(i).Host(), r.set.Server(i).Port()
	return d.Open(r.t)
}

// beatOn writes a heartbeat, by which MariaDB's terms are told.
func (r *replicas) beatOn(i int) {
	r.t.Helper()
	if err := r.beat.Beat(r.t.Context(), r.open(i)); err != nil {
		r.t.Fatal(err)
	}
}

func do(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// connect returns a DB whose servers are checked as often as may be and count
// as equally fast, unless cfg says otherwise.
func (r *replicas) connect(cfg sqlshard.Config) *sqlshard.DB[int64] {
	r.t.Helper()
	if cfg.Servers.LocalThreshold == 0 {
		cfg.Servers.LocalThreshold = time.Minute
	}
	if cfg.Servers.Heartbeat == 0 {
		cfg.Servers.Heartbeat = 500 * time.Millisecond
	}
	return (&rig{t: r.t, engine: r.engine, login: r.login, source: r.source}).open(cfg)
}

// known waits until what is known of the servers satisfies a condition.
func known(t testing.TB, db *sqlshard.DB[int64], what string, condition func([]selection.Verdict) bool) []selection.Verdict {
	t.Helper()
	var e selection.Explanation
	eventually(t, what, func() bool {
		var err error
		if e, err = db.Servers(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		return condition(e.Servers)
	})
	return e.Servers
}

// addresses are those of some servers.
func (r *replicas) addresses(at ...int) []string {
	var list []string
	for _, i := range at {
		list = append(list, r.set.Addr(i))
	}
	return list
}

func write(ctx context.Context, db *sqlshard.DB[int64], id int64) (server string, err error) {
	conn, err := db.OpenConnectionForKey(ctx, 7)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO written (id) VALUES (%d)", id))
	return conn.Server(), err
}

// rows are the ids that a server has in its table, past its proxy.
func (r *replicas) rows(i int) []int64 {
	r.t.Helper()
	rows, err := r.open(i).QueryContext(r.t.Context(), "SELECT id FROM written ORDER BY id")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

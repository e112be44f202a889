package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
)

// The login of all clients. On MariaDB it respects read_only, which an
// administrator does not.
const (
	login  = "chaos"
	secret = "k7-Tq-93-zw"
)

// pair is a primary with its secondary, either engine.
type pair interface {
	Kill(t testing.TB, i int)
	Restart(t testing.TB, i int)
	Promote(t testing.TB, i int)
	Rejoin(t testing.TB, i int)
	AwaitReplay(t testing.TB, i int)
	Primary() int
	Proxy(i int) *faultconn.Proxy
	Server(i int) *dbtest.Server
	Addr(i int) string
	At(d dbtest.Database, i int) dbtest.Database
	NewDatabase(t testing.TB) dbtest.Database
}

// world is everything the clients work on.
type world struct {
	store      *dbtest.Server
	storeProxy *faultconn.Proxy
	storeDB    dbtest.Database // at the proxy
	pairs      map[string]pair // by engine
	shards     []place
}

// place is a shard's database.
type place struct {
	name     string
	engine   string
	database dbtest.Database
}

// Replication is synchronous: a failover loses nothing that was acknowledged.
var (
	postgresSettings = []string{"synchronous_standby_names=*", "synchronous_commit=on"}
	mariadbSettings  = []string{
		"rpl-semi-sync-slave-enabled=1", "rpl-semi-sync-master-timeout=600000", "rpl-semi-sync-master-wait-point=AFTER_SYNC",
	}
)

// synchronize has MariaDB's primary wait for its secondary. It is no setting, for
// with that a secondary would wait as well. What was committed a moment before
// reaches the secondary before all that waits.
func (w *world) synchronize(t *testing.T) {
	t.Helper()
	m := w.pairs["mysql"]
	m.Server(m.Primary()).Exec(t, "", "SET GLOBAL rpl_semi_sync_master_enabled = 1")
}

// newWorld starts all servers and makes an empty store and the shards' databases.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{store: dbtest.NewPostgres(t, dbtest.PostgresOptions{})}
	w.storeProxy = faultconn.New(t, w.store.Addr())
	w.storeDB = w.store.NewDatabase(t)
	w.storeDB.Host, w.storeDB.Port = w.storeProxy.Host(), w.storeProxy.Port()
	p := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Proxied: true, Settings: postgresSettings})
	m := dbtest.NewMariaDBSet(t, dbtest.MariaDBSetOptions{Proxied: true, Settings: mariadbSettings})
	w.pairs = map[string]pair{"postgres": p, "mysql": m}
	p.Server(0).Exec(t, "", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'; GRANT pg_monitor, pg_signal_backend TO %s", login, secret, login))
	m.Server(0).Exec(t, "", fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'; GRANT PROCESS, CONNECTION ADMIN, SLAVE MONITOR, BINLOG MONITOR ON *.* TO %s@'%%'", login, secret, login))
	w.synchronize(t)
	for _, engine := range []string{"postgres", "mysql"} {
		for i := range 2 {
			d := w.pairs[engine].NewDatabase(t)
			grant := fmt.Sprintf(`ALTER DATABASE "%s" OWNER TO %s`, d.Name, login)
			if engine == "mysql" {
				grant = fmt.Sprintf("GRANT ALL ON `%s`.* TO %s@'%%'", d.Name, login)
			}
			w.pairs[engine].Server(0).Exec(t, "", grant)
			w.shards = append(w.shards, place{name: fmt.Sprintf("%s%d", engine, i+1), engine: engine, database: d})
		}
	}
	for _, s := range w.shards {
		db := s.database.As(login, secret).Open(t)
		for _, table := range Tables {
			if _, err := db.ExecContext(t.Context(), table); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil { // else its sessions are left for ones of clients
			t.Fatal(err)
		}
	}
	return w
}

// location is where a shard's servers are, as the clients reach them.
func (w *world) location(s place) shardway.Location {
	l := shardway.Location{Engine: s.engine, Database: s.database.Name}
	for i := range 2 {
		l.Servers = append(l.Servers, shardway.Server{Address: w.pairs[s.engine].Addr(i)})
	}
	return l
}

// config is that of a client, but for what it does.
func (w *world) config(id string) Config {
	return Config{ID: id, Store: w.storeDB.DSN(), User: login, Password: secret, Lease: 2 * time.Second}
}

// deploy makes the store, the shards and the first mappings.
func (w *world) deploy(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	global, err := postgres.GlobalStore(w.storeDB.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer global.Close()
	if _, err := global.Deploy(ctx, false); err != nil {
		t.Fatal(err)
	}
	c := &client{cfg: w.config("setup"), log: t.Output()}
	if err := c.openCatalog(global); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	r, err := c.catalog.Do(ctx, catalog.CreateShardMap{Name: MapName, Kind: shardway.RangeMap, KeyKind: shardway.KindInt64})
	if err != nil {
		t.Fatal(err)
	}
	m := r.Map
	var ids []shardway.ShardID
	for _, s := range w.shards {
		l, err := normalize(w.location(s))
		if err != nil {
			t.Fatal(err)
		}
		if r, err = c.catalog.Do(ctx, catalog.AddShard{Map: m, Name: s.name, Location: l}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.Shards[0].ID)
	}
	const ranges = 8
	var mappings []catalog.NewMapping
	for i := range int64(ranges) {
		mappings = append(mappings, catalog.NewMapping{
			Range:   shardway.Range{Low: shardway.Int64Key(i * Keys / ranges), High: shardway.Int64Key((i + 1) * Keys / ranges)},
			ShardID: ids[i%int64(len(ids))],
		})
	}
	if _, err := c.catalog.Do(ctx, catalog.AddMappings{Map: m, New: mappings}); err != nil {
		t.Fatal(err)
	}
}

func normalize(l shardway.Location) (shardway.Location, error) {
	if l.Engine == "mysql" {
		return mysql.Engine{}.Normalize(l)
	}
	return postgres.Engine{}.Normalize(l)
}

// sessions describes the clients' sessions on all servers.
func (w *world) sessions(ctx context.Context, t *testing.T) (all []string) {
	t.Helper()
	for engine, p := range w.pairs {
		query := "SELECT concat_ws(' ', pid, application_name, state, wait_event, left(query, 60)) FROM pg_stat_activity WHERE usename = '" + login + "'"
		if engine == "mysql" {
			query = "SELECT concat_ws(' ', id, command, state, left(info, 60)) FROM information_schema.processlist WHERE user = '" + login + "'"
		}
		for i := range 2 {
			rows, err := p.Server(i).Admin().Open(t).QueryContext(ctx, query)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var session string
				if err := rows.Scan(&session); err != nil {
					t.Fatal(err)
				}
				all = append(all, fmt.Sprintf("%s server %d: %s", engine, i, session))
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// advisoryLocks counts the locks of sessions on PostgreSQL.
func (w *world) advisoryLocks(ctx context.Context, t *testing.T) (n int) {
	t.Helper()
	p := w.pairs["postgres"]
	err := p.Server(p.Primary()).Admin().Open(t).QueryRowContext(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// what the judge reads.
func (w *world) evidence(t *testing.T, journals string) Case {
	t.Helper()
	operations, err := ReadJournals(journals)
	if err != nil {
		t.Fatal(err)
	}
	c := Case{Operations: operations, Global: w.storeDB.Open(t)}
	for _, s := range w.shards {
		p, table := w.pairs[s.engine], "shardway.local_mappings"
		if s.engine == "mysql" {
			table = "shardway_local_mappings"
		}
		c.Shards = append(c.Shards, Shard{Name: s.name, DB: p.At(s.database, p.Primary()).Open(t), Local: table})
	}
	return c
}

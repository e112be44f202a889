package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

// program is the command-line tool with an environment of its own.
type program struct {
	t   *testing.T
	env []string
	dir string
}

func newProgram(t *testing.T, env ...string) program {
	t.Helper()
	dir := t.TempDir()
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "SHARDWAY_WHO=tester"}
	return program{t: t, env: append(base, env...), dir: dir}
}

func (p program) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(p.t.Context(), "shardway", args...)
	c.Env, c.Dir = p.env, p.dir
	return c
}

// result is how a command ended.
type result struct {
	code      int
	out, errs string
}

func (p program) run(args ...string) result {
	p.t.Helper()
	var out, errs bytes.Buffer
	c := p.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return result{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// must demands success.
func (p program) must(args ...string) result {
	p.t.Helper()
	r := p.run(args...)
	if r.code != exitOK {
		p.t.Fatalf("shardway %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.errs)
	}
	return r
}

// world is a global store, two shards, and three users without any rights.
type world struct {
	engine               dbtest.Engine
	global, s1, s2       dbtest.Database
	router, catalog, app shardway.Credentials
}

func newWorld(t *testing.T, e dbtest.Engine) *world {
	t.Helper()
	w := &world{engine: e, global: e.NewDatabase(t), s1: e.NewDatabase(t), s2: e.NewDatabase(t)}
	for hint, c := range map[string]*shardway.Credentials{"router": &w.router, "catalog": &w.catalog, "app": &w.app} {
		c.User, c.Password = e.Server(t).NewUser(t, hint)
	}
	return w
}

// as is the program with the login of one user, for stores and shards.
func (w *world) as(t *testing.T, c shardway.Credentials) program {
	t.Helper()
	return newProgram(t, "SHARDWAY_STORE="+w.global.As(c.User, c.Password).DSN(),
		"SHARDWAY_SHARD_USER="+c.User, "SHARDWAY_SHARD_PASSWORD="+c.Password,
		"SHARDWAY_"+strings.ToUpper(string(w.engine))+"_OPTIONS="+w.global.Query, "SHARDWAY_MAP=customers")
}

// grant runs the statements of one moment, as administrator.
func (w *world) grant(t *testing.T, where, when string) {
	t.Helper()
	databases, statements := w.section(t, where, when)
	for _, d := range databases {
		w.engine.Server(t).Exec(t, d.Name, strings.Join(statements, ";\n"))
	}
}

// grantAs runs them as another user.
func (w *world) grantAs(t *testing.T, c shardway.Credentials, where, when string) {
	t.Helper()
	databases, statements := w.section(t, where, when)
	for _, d := range databases {
		for _, s := range statements {
			execAs(t, d.As(c.User, c.Password), s)
		}
	}
}

func (w *world) section(t *testing.T, where, when string) ([]dbtest.Database, []string) {
	t.Helper()
	sections, err := grantSections(string(w.engine), grantees{router: w.router.User, catalog: w.catalog.User, application: w.app.User})
	if err != nil {
		t.Fatal(err)
	}
	databases := []dbtest.Database{w.s1, w.s2}
	if strings.Contains(where, "global") {
		databases = []dbtest.Database{w.global}
	}
	i := slices.IndexFunc(sections, func(s grantSection) bool { return s.Where == where && strings.HasPrefix(s.When, when) })
	if i < 0 {
		t.Fatalf("no section %s, %s", where, when)
	}
	return databases, sections[i].Statements
}

// TestGrants gives three users exactly the rights that the command prints, on
// real servers, and tries what each can do and cannot. C1: whole lives of maps
// under the logins of router, catalog and application.
func TestGrants(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLServer} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			admin := w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password})
			catalog := w.as(t, w.catalog)
			if r := catalog.run("map", "create", "customers", "--kind", "range", "--key", "int64"); r.code != exitUnavailable {
				t.Fatalf("without rights: exit code %d, want %d\n%s", r.code, exitUnavailable, r.errs)
			}
			admin.must("init")
			w.grant(t, "global store's database", "after")
			w.grant(t, "every shard's database", "before")
			w.grant(t, drainSection(e), "so that")
			w.changeEverything(t, catalog)
			if e == dbtest.EnginePostgres { // the tables belong to the user that ran shard add
				w.grantAs(t, w.catalog, "every shard's database", "after")
			} else {
				w.grant(t, "every shard's database", "after")
			}

			t.Run("router", func(t *testing.T) {
				t.Parallel()
				w.tryRouter(t)
			})
			t.Run("application", func(t *testing.T) {
				t.Parallel()
				w.tryApplication(t)
			})
			t.Run("catalog", func(t *testing.T) {
				t.Parallel()
				w.tryCatalog(t)
			})
		})
	}
}

// drainSection is where the rights to end sessions are given.
func drainSection(e dbtest.Engine) string {
	switch e {
	case dbtest.EngineMySQL:
		return "every shard's server, on MariaDB"
	case dbtest.EngineSQLServer:
		return "database master on every shard's server"
	default:
		return "every shard's server"
	}
}

// The owner of the databases has made them shards already, as after the first
// steps of the README. The grants let the catalog's user work there all the same.
func TestGrantsForShardsOfOthers(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLServer} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			admin := w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password})
			for _, line := range []string{
				"init", "map create customers --kind range --key int64", "shard add s1 " + location(w.s1), "shard add s2 " + location(w.s2),
				"mapping add --shard s1 --low 0 --high 30",
			} {
				admin.must(strings.Fields(line)...)
			}
			w.grant(t, "global store's database", "after")
			catalog := w.as(t, w.catalog)
			r := catalog.run("mapping", "split", "--at", "10")
			if hint := "shardway grants " + string(e) + " prints the rights"; r.code != exitUnavailable || !strings.Contains(r.errs, hint) {
				t.Fatalf("without rights on the shards: exit code %d, want %d and the hint %q\n%s", r.code, exitUnavailable, hint, r.errs)
			}
			w.grant(t, "every shard's database", "before")
			if e == dbtest.EnginePostgres {
				w.grant(t, "shards that another user than the catalog added", "after")
			}
			w.grant(t, "every shard's database", "after")
			w.grant(t, drainSection(e), "so that")
			for _, line := range []string{
				"mapping split --at 10", "mapping split --at 20", "mapping offline --key 10", "mapping move-metadata --key 10 --to s2 --status online",
				"mapping offline --key 20", "mapping delete --key 20", "mapping split --at 5", "mapping merge --left 0 --right 5", "shard update s2 --name second",
				"map create other --kind list --key string", "shard add s1 " + location(w.s1) + " --map other", "mapping add a --shard s1 --map other", "status",
			} {
				catalog.must(strings.Fields(line)...)
			}
		})
	}
}

// An application's login is enough on the shards to explain a route; without
// any right there the local map gives no answer, which is exit code 5.
func TestExplainRights(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL, dbtest.EngineSQLServer} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e)
			admin := w.as(t, shardway.Credentials{User: w.global.User, Password: w.global.Password})
			for _, line := range []string{
				"init", "map create customers --kind range --key int64", "shard add s1 " + location(w.s1), "shard add s2 " + location(w.s2),
				"mapping add --shard s1 --low 0 --high 30",
			} {
				admin.must(strings.Fields(line)...)
			}
			w.grant(t, "global store's database", "after")
			app := w.as(t, w.router)
			app.env = append(app.env, "SHARDWAY_SHARD_USER="+w.app.User, "SHARDWAY_SHARD_PASSWORD="+w.app.Password)
			r := app.run("route", "12", "--explain")
			if r.code != exitUnavailable || !strings.Contains(r.out, "local    NOT validated: the local map on the shard gives no answer: ") ||
				!strings.Contains(r.errs, "shardway grants "+string(e)) {
				t.Errorf("without rights: exit code %d\n%s%s", r.code, r.out, r.errs)
			}
			w.grant(t, "every shard's database", "before")
			w.grant(t, "every shard's database", "after")
			if r = app.must("route", "12", "--explain"); !strings.Contains(r.out, "local    validated: ") {
				t.Errorf("with an application's rights:\n%s", r.out)
			}
			execAs(t, w.s1, "DELETE FROM "+granters[string(e)].prefix+"local_mappings")
			if r = app.run("route", "12", "--explain"); r.code != exitDiffer || !strings.Contains(r.out, "NOT validated: the local map on the shard does not have this mapping") {
				t.Errorf("without the mapping: exit code %d\n%s", r.code, r.out)
			}
		})
	}
}

func execAs(t *testing.T, d dbtest.Database, statement string) {
	t.Helper()
	if _, err := d.Open(t).ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// changeEverything makes every kind of change, and leaves [0, 10) on s1 and
// [10, 20) on s2.
func (w *world) changeEverything(t *testing.T, p program) {
	t.Helper()
	for _, line := range []string{
		"map create customers --kind range --key int64",
		"map create other --kind list --key string",
		"map delete other",
		"shard add s1 " + location(w.s1),
		"shard add first " + location(w.s2),
		"shard update first --name s2",
		"mapping add --shard s1 --low 0 --high 30",
		"mapping split --at 10",
		"mapping split --at 20",
		"mapping offline --key 10",
		"mapping move-metadata --key 10 --to s2 --status online",
		"mapping offline --key 20",
		"mapping delete --key 20",
		"mapping split --at 5",
		"mapping merge --left 0 --right 5",
		"mapping lock --key 0 --token t",
		"mapping unlock --key 0 --token t",
		"shard delete s2 --dry-run",
		"recover",
		"status",
	} {
		args := strings.Fields(line)
		if line == "shard delete s2 --dry-run" {
			if r := p.run(args...); r.code != exitConflict {
				t.Fatalf("%s: exit code %d\n%s", line, r.code, r.errs)
			}
			continue
		}
		p.must(args...)
	}
	if r := p.must("history"); !strings.Contains(r.out, "merge mappings") {
		t.Fatalf("history:\n%s", r.out)
	}
}

// tryRouter routes, by key and eagerly, and fails to write.
func (w *world) tryRouter(t *testing.T) {
	p := w.as(t, w.router)
	if r := p.must("route", "12"); !strings.Contains(r.out, "shard s2") {
		t.Errorf("route: %s", r.out)
	}
	for _, line := range []string{"map create x --kind list --key int64", "mapping offline --key 0", "mapping lock --key 0", "init --replace", "recover --force"} {
		if r := p.run(strings.Fields(line)...); r.code != exitUnavailable {
			t.Errorf("%s as router: exit code %d, want %d\n%s", line, r.code, exitUnavailable, r.errs)
		}
	}
	src := w.openStore(t, w.router)
	router, err := shardway.Open(t.Context(), src, shardway.Config{LoadPolicy: shardway.Eager})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	if _, err := router.Map(t.Context(), "customers"); err != nil {
		t.Errorf("loading the map: %v", err)
	}
	m, err := src.ShardMap(t.Context(), "customers")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Changes(t.Context(), m, 1); err != nil {
		t.Errorf("following the map: %v", err)
	}
	w.cannotWrite(t, w.global, w.router, tablesOf(catalogRights))
}

func (w *world) openStore(t *testing.T, c shardway.Credentials) *sqlstore.Global {
	t.Helper()
	a, err := parseAddress("store", w.global.As(c.User, c.Password).DSN())
	if err != nil {
		t.Fatal(err)
	}
	g, err := sqlstore.OpenGlobal(a.engine, a.location, a.credentials)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// tryApplication opens validated connections and fails to touch the maps.
func (w *world) tryApplication(t *testing.T) {
	ctx := t.Context()
	router, err := shardway.Open(ctx, w.openStore(t, w.router), shardway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	customers, err := shardway.OpenRangeShardMap[int64](ctx, router, "customers")
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAddress("store", w.global.DSN())
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{a.engine}, Credentials: w.app})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for key, shard := range map[int64]string{1: "s1", 11: "s2"} {
		conn, err := db.OpenConnectionForKey(ctx, key)
		if err != nil {
			t.Errorf("opening a connection for key %d: %v", key, err)
			continue
		}
		if conn.Shard() != shard {
			t.Errorf("key %d is on %s, want %s", key, conn.Shard(), shard)
		}
		_ = conn.Close()
		w.tryTransactions(t, db, key)
	}
	conn, err := db.OpenConnectionForShard(ctx, "s1")
	if err != nil {
		t.Errorf("opening a connection for a shard: %v", err)
	} else {
		_ = conn.Close()
	}
	w.cannotWrite(t, w.s1, w.app, tablesOf(catalogLocalRights))
	if r := w.as(t, w.app).run("map", "list"); r.code != exitUnavailable {
		t.Errorf("reading the global store as application: exit code %d\n%s", r.code, r.errs)
	}
}

// tryTransactions runs fenced transactions in every isolation level, and holds
// a mapping where the engine can.
func (w *world) tryTransactions(t *testing.T, db *sqlshard.DB[int64], key int64) {
	t.Helper()
	for _, options := range []sqlshard.TxOptions{
		{}, {Isolation: sql.LevelReadCommitted}, {Isolation: sql.LevelRepeatableRead}, {Isolation: sql.LevelSerializable}, {ReadOnly: true},
	} {
		err := db.InTx(t.Context(), key, &options, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			return tx.QueryRowContext(ctx, "SELECT 1").Scan(&n)
		})
		if err != nil {
			t.Errorf("a transaction for key %d with %+v: %v", key, options, err)
		}
	}
	if w.engine == dbtest.EngineMySQL {
		return
	}
	conn, err := db.HoldConnectionForKey(t.Context(), key)
	if err != nil {
		t.Errorf("holding the mapping of key %d: %v", key, err)
		return
	}
	_ = conn.Close()
}

// tryCatalog fails to rewrite the history.
func (w *world) tryCatalog(t *testing.T) {
	db := w.global.As(w.catalog.User, w.catalog.Password).Open(t)
	for _, statement := range []string{"UPDATE %s SET who = 'nobody'", "DELETE FROM %s"} {
		if err := execute(t.Context(), db, fmt.Sprintf(statement, granters[string(w.engine)].prefix+"history")); err == nil {
			t.Errorf("%s: the catalog's user may", statement)
		}
	}
}

func tablesOf(rights []right) []string {
	var names []string
	for _, r := range rights {
		names = append(names, r.table)
	}
	return names
}

// cannotWrite tries to empty tables and to drop them, as one user.
func (w *world) cannotWrite(t *testing.T, d dbtest.Database, c shardway.Credentials, tables []string) {
	t.Helper()
	db := d.As(c.User, c.Password).Open(t)
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := d.Open(t)
	for _, table := range tables {
		name := granters[string(w.engine)].prefix + table
		if err := execute(t.Context(), admin, "DELETE FROM "+name); err != nil {
			t.Errorf("the administrator cannot either, so the test says nothing: %v", err)
		}
		for _, statement := range []string{"DELETE FROM " + name, "DROP TABLE " + name} {
			if err := execute(t.Context(), db, statement); err == nil {
				t.Errorf("%s: %s may", statement, c.User)
			}
		}
	}
}

// execute runs a statement and takes it back.
func execute(ctx context.Context, db *sql.DB, statement string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, statement)
	return errors.Join(err, tx.Rollback())
}

package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// released are the versions before the current one. Each has fixtures.
func released() (versions []store.Version) {
	for minor := range store.Current.Minor {
		versions = append(versions, store.Version{Major: store.Current.Major, Minor: minor})
	}
	return versions
}

// eachRelease runs a test on a database of every released version.
func eachRelease(t *testing.T, test func(t *testing.T, e dbtest.Engine, v store.Version, db dbtest.Database)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.EngineSQLServer {
			t.Skip("its statements are pinned by TestTransactSQL")
		}
		for _, v := range released() {
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				db := e.NewDatabase(t)
				loadFixture(t, db.Open(t), v, e)
				test(t, e, v, db)
			})
		}
	})
}

// U1, U2, UPG-01: stores of every released version work before their upgrade
// and after it; no row changes but the number of the version; the tables are
// then those that a new store has.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, e dbtest.Engine, v store.Version, db dbtest.Database) {
		p, pool := placeOf(t, db), db.Open(t)
		columns := columnsOf(t, pool, e)
		rows := rowsOf(t, pool, e, columns)
		g, l := p.global(t), p.local(t) // in use from before the upgrade to after it
		before := contents(t, g, l)
		changeOnce(t, g, l) // the version is in the window in which programs change stores
		pristine(t, pool, e, v)

		for name, s := range map[string]store.Upgrader{"global": g, "local": l} {
			if from, to, err := s.Upgrade(t.Context()); err != nil || from != v || to != store.Current {
				t.Fatalf("upgrading the %s store = %s, %s, %v, want %s to %s", name, from, to, err, v, store.Current)
			}
			if from, to, err := s.Upgrade(t.Context()); err != nil || from != store.Current || to != store.Current {
				t.Errorf("upgrading the %s store again = %s, %s, %v", name, from, to, err)
			}
		}
		if diff := cmp.Diff(rows, rowsOf(t, pool, e, columns)); diff != "" {
			t.Errorf("rows have changed (-before +after):\n%s", diff)
		}
		for name, read := range map[string]string{"handles in use": contents(t, g, l), "new handles": contents(t, p.global(t), p.local(t))} {
			if diff := cmp.Diff(before, read); diff != "" {
				t.Errorf("%s read other contents (-before +after):\n%s", name, diff)
			}
		}
		changeOnce(t, g, l)

		fresh := e.NewDatabase(t)
		q := placeOf(t, fresh)
		q.deployed(t)
		if err := q.local(t).Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(schemaOf(t, fresh.Open(t), e), schemaOf(t, pool, e)); diff != "" {
			t.Errorf("the tables differ from those of a new store (-new +upgraded):\n%s", diff)
		}
	})
}

// pristine brings the rows of the fixture back.
func pristine(t *testing.T, pool *sql.DB, e dbtest.Engine, v store.Version) {
	t.Helper()
	d, err := dialect.For(string(e))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []dialect.Part{dialect.Global, dialect.Local} {
		for _, s := range d.Drop(part) {
			mustExec(t, pool, s)
		}
	}
	loadFixture(t, pool, v, e)
}

// UPG-05: an upgrade that ended after any statement is made good by the next
// ones, two of which come at once.
func TestUpgradeInterrupted(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, e dbtest.Engine, v store.Version, db dbtest.Database) {
		d, err := dialect.For(string(e))
		if err != nil {
			t.Fatal(err)
		}
		p, pool := placeOf(t, db), db.Open(t)
		pool.SetMaxOpenConns(1)
		columns := columnsOf(t, pool, e)
		rows := rowsOf(t, pool, e, columns)
		var want string
		global, local := d.Upgrade(dialect.Global, v.Minor+1), d.Upgrade(dialect.Local, v.Minor+1)
		for n := range max(len(global), len(local)) + 1 {
			for _, s := range append(global[:min(n, len(global)):len(global)], local[:min(n, len(local))]...) {
				mustExec(t, pool, s)
			}
			upgradeAtOnce(t, p, v)
			schema := schemaOf(t, pool, e)
			if want == "" {
				want = schema
			}
			if schema != want {
				t.Errorf("after %d statements (-undisturbed +interrupted):\n%s", n, cmp.Diff(want, schema))
			}
			if diff := cmp.Diff(rows, rowsOf(t, pool, e, columns)); diff != "" {
				t.Errorf("after %d statements rows have changed:\n%s", n, diff)
			}
			pristine(t, pool, e, v)
		}
	})
}

// upgradeAtOnce upgrades both stores from several programs. One of them does
// the work, the others find it done.
func upgradeAtOnce(t *testing.T, p place, v store.Version) {
	t.Helper()
	for name, open := range map[string]func() store.Upgrader{
		"global": func() store.Upgrader { return p.global(t) },
		"local":  func() store.Upgrader { return p.local(t) },
	} {
		var mu sync.Mutex
		worked := 0
		var all sync.WaitGroup
		for range 3 {
			s := open()
			all.Go(func() {
				from, to, err := s.Upgrade(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if err != nil || to != store.Current {
					t.Errorf("upgrading the %s store = %s, %s, %v", name, from, to, err)
				}
				if from == v {
					worked++
				}
			})
		}
		all.Wait()
		if worked != 1 {
			t.Errorf("%d of 3 programs upgraded the %s store, want 1", worked, name)
		}
	}
}

// A store older than this program's changes need is read, and refused before
// any write by whoever would change it; the error says what to run.
func TestTooOldToChange(t *testing.T) {
	t.Parallel()
	old := store.Version{Major: store.Writable.Major, Minor: store.Writable.Minor - 1}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p, pool := placeOf(t, db), db.Open(t)
		g, l := p.deployed(t), p.local(t)
		if err := l.Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		m, _ := changeOnce(t, g, l)
		for _, name := range []string{"store", "local_store"} {
			mustExec(t, pool, fmt.Sprintf("UPDATE %s SET minor = %d", table(t, e, name), old.Minor))
		}
		before := rowsOf(t, pool, e, columnsOf(t, pool, e))
		errs := versionCalls(t, p, g, l, m)
		for _, name := range []string{"ShardMap", "Lookup", "Load", "Changes", "View", "Read", "local Deploy"} {
			if errs[name] != nil && name != "ShardMap" || errs[name] != nil && !errors.Is(errs[name], shardway.ErrMapNotFound) {
				t.Errorf("%s = %v", name, errs[name])
			}
		}
		for _, name := range []string{"Update", "Update, known", "Step", "Step, known"} {
			want := fmt.Sprintf("version %s, this program reads it and changes stores from %s on: run \"shardway upgrade\" first", old, store.Writable)
			if err := errs[name]; !errors.Is(err, shardway.ErrStoreVersion) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s = %v, want ErrStoreVersion with %q", name, err, want)
			}
		}
		if diff := cmp.Diff(before, rowsOf(t, pool, e, columnsOf(t, pool, e))); diff != "" {
			t.Errorf("a refused store was written to:\n%s", diff)
		}
		for _, s := range []store.Upgrader{g, l} {
			if from, to, err := s.Upgrade(t.Context()); err != nil || from != old || to != store.Current {
				t.Fatalf("Upgrade = %s, %s, %v", from, to, err)
			}
		}
		changeOnce(t, g, l)
	})
}

// A change of a shard whose local store is too old is refused before the global
// store is written to, so that nothing is left pending.
func TestTooOldShard(t *testing.T) {
	t.Parallel()
	p := place{engine: sqlite.Engine{}, location: shardway.Location{Servers: []shardway.Server{{Address: dbtest.SQLite(t)}}}}
	g := p.deployed(t)
	locals, err := sqlstore.NewLocals([]shardway.Engine{sqlite.Engine{}}, shardway.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locals.Close() })
	c, err := catalog.New(g, locals, catalog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := addMap(t, g, "m")
	file := dbtest.SQLite(t)
	r, err := c.Do(t.Context(), catalog.AddShard{Map: m, Name: "s", Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: file}}}})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	mustExec(t, pool, fmt.Sprintf("UPDATE shardway_local_store SET minor = %d", store.Writable.Minor-1))
	_, err = c.Do(t.Context(), catalog.AddMappings{Map: m, New: []catalog.NewMapping{{Range: shardway.FullRange(shardway.KindInt64), ShardID: r.Shards[0].ID}}})
	if !errors.Is(err, shardway.ErrStoreVersion) {
		t.Errorf("AddMappings = %v, want ErrStoreVersion", err)
	}
	history, err := c.History(t.Context(), m.ID, 0)
	ops, opsErr := c.Operations(t.Context())
	if len(history) != 1 || len(ops) != 0 || errors.Join(err, opsErr) != nil {
		t.Errorf("the refused change left %d entries (of 1) and %d operations, %v", len(history), len(ops), errors.Join(err, opsErr))
	}
}

// What is no store, is another program's, or is newer, is left as it is.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p, pool := placeOf(t, db), db.Open(t)
		g, l := p.global(t), p.local(t)
		if _, _, err := g.Upgrade(t.Context()); !errors.Is(err, shardway.ErrNoStore) {
			t.Errorf("upgrading no store = %v", err)
		}
		if _, _, err := l.Upgrade(t.Context()); !errors.Is(err, shardway.ErrNoStore) {
			t.Errorf("upgrading no local store = %v", err)
		}
		p.deployed(t)
		if err := l.Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		newer := store.Version{Major: store.Current.Major, Minor: store.Current.Minor + 3}
		for _, v := range []store.Version{newer, {Major: store.Current.Major + 1}} {
			for _, name := range []string{"store", "local_store"} {
				mustExec(t, pool, fmt.Sprintf("UPDATE %s SET major = %d, minor = %d", table(t, e, name), v.Major, v.Minor))
			}
			before := rowsOf(t, pool, e, columnsOf(t, pool, e))
			for _, s := range []store.Upgrader{g, l} {
				from, to, err := s.Upgrade(t.Context())
				if v == newer && (err != nil || from != v || to != v) || v != newer && !errors.Is(err, shardway.ErrStoreVersion) {
					t.Errorf("upgrading version %s = %s, %s, %v", v, from, to, err)
				}
			}
			if diff := cmp.Diff(before, rowsOf(t, pool, e, columnsOf(t, pool, e))); diff != "" {
				t.Errorf("version %s was written to:\n%s", v, diff)
			}
		}
	})
}

// contents is everything that both stores hold, as text.
func contents(t *testing.T, g *sqlstore.Global, l *sqlstore.Local) string {
	t.Helper()
	var b strings.Builder
	err := g.View(t.Context(), func(tx store.Reader) error {
		b.Reset()
		maps, err := tx.ShardMaps(t.Context())
		if err != nil {
			return err
		}
		for _, m := range maps {
			shards, err := tx.Shards(t.Context(), m.ID)
			fmt.Fprintf(&b, "%+v\n%+v\n", m, shards)
			if err != nil {
				return err
			}
			for row, err := range tx.Mappings(t.Context(), store.MappingQuery{Map: m}) {
				fmt.Fprintf(&b, "%+v\n", row)
				if err != nil {
					return err
				}
			}
		}
		ops, err := tx.Operations(t.Context(), store.OperationQuery{})
		for _, o := range ops {
			fmt.Fprintf(&b, "%+v\n", o.Removed())
		}
		return err
	})
	local, localErr := l.Read(t.Context(), 0)
	if err := errors.Join(err, localErr); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s%+v\n", b.String(), local)
}

// columnsOf are the columns that every table has now.
func columnsOf(t *testing.T, pool *sql.DB, e dbtest.Engine) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, name := range slices.Concat(globalTables, localTables) {
		all[name] = columnNames(t, pool, table(t, e, name))
	}
	return all
}

func columnNames(t *testing.T, pool *sql.DB, table string) []string {
	t.Helper()
	rows, err := pool.Query("SELECT * FROM " + table + " WHERE 1 = 0")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err = errors.Join(err, rows.Err()); err != nil {
		t.Fatal(err)
	}
	return names
}

// rowsOf are the rows of these columns in both stores, but for their versions.
func rowsOf(t *testing.T, pool *sql.DB, e dbtest.Engine, columns map[string][]string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, list := range columns {
		list = slices.DeleteFunc(slices.Clone(list), func(c string) bool { return c == "major" || c == "minor" })
		rows, err := pool.Query("SELECT " + strings.Join(list, ", ") + " FROM " + table(t, e, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = texts(t, rows, len(list))
	}
	return all
}

// texts are rows as sorted lines.
func texts(t *testing.T, rows *sql.Rows, columns int) (lines []string) {
	t.Helper()
	defer rows.Close()
	for rows.Next() {
		values, dest := make([]sql.NullString, columns), make([]any, columns)
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		line := ""
		for _, v := range values {
			if v.Valid {
				line += fmt.Sprintf("%q ", v.String)
			} else {
				line += "NULL "
			}
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// schemaOf describes the columns and indexes of an engine's database.
func schemaOf(t *testing.T, pool *sql.DB, e dbtest.Engine) string {
	t.Helper()
	queries := map[dbtest.Engine][]string{
		dbtest.EngineSQLite: {`SELECT name, coalesce(sql, '') FROM sqlite_master`},
		dbtest.EnginePostgres: {
			`SELECT table_name || '.' || column_name, data_type || is_nullable || coalesce(collation_name, '') FROM information_schema.columns WHERE table_schema = 'shardway'`,
			`SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'shardway'`,
			`SELECT conname, pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_namespace n ON n.oid = connamespace WHERE nspname = 'shardway'`,
		},
		dbtest.EngineMySQL: {
			`SELECT concat(table_name, '.', column_name), concat(column_type, is_nullable, coalesce(collation_name, '')) FROM information_schema.columns WHERE table_schema = database()`,
			`SELECT concat(table_name, '.', index_name), concat(seq_in_index, column_name, non_unique, coalesce(sub_part, '')) FROM information_schema.statistics WHERE table_schema = database()`,
		},
	}
	var all []string
	for _, q := range queries[e] {
		rows, err := pool.Query(q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, texts(t, rows, 2)...)
	}
	return strings.Join(all, "\n")
}

// UPG-04: numbers beyond 31 and 53 bits go through both stores.
func TestLargeNumbers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p, pool := placeOf(t, db), db.Open(t)
		g, l := p.deployed(t), p.local(t)
		if err := l.Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{1<<31 - 2, 1 << 53} {
			mustExec(t, pool, fmt.Sprintf("UPDATE %s SET operation_seq = %d", table(t, e, "counters"), at))
			mustExec(t, pool, fmt.Sprintf("UPDATE %s SET generation = %d", table(t, e, "shard_maps"), at))
			for range 3 {
				changeOnce(t, g, l)
			}
			m := addMap(t, g, fmt.Sprint("at ", at))
			mustExec(t, pool, fmt.Sprintf("UPDATE %s SET generation = %d", table(t, e, "shard_maps"), at+7))
			var seq int64
			scan(t, pool, "SELECT operation_seq FROM "+table(t, e, "counters"), &seq)
			found, err := g.ShardMap(t.Context(), m.Name)
			if err != nil || found.Generation != at+7 || seq != at+3 {
				t.Errorf("generation %d, sequence %d, %v, want %d and %d", found.Generation, seq, err, at+7, at+3)
			}
		}
	})
}

// ADM-02: the lock by which tables are created and changed is free again after
// any number of deployments and upgrades on pooled sessions, cancelled ones
// included, and never in the way of other work on them.
func TestDeployLockIsFreed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p, pool := placeOf(t, db), db.Open(t)
		g, l := p.deployed(t), p.local(t)
		if err := l.Deploy(t.Context(), "id"); err != nil {
			t.Fatal(err)
		}
		for n := range 60 {
			for _, name := range []string{"store", "local_store"} {
				mustExec(t, pool, fmt.Sprintf("UPDATE %s SET minor = 0", table(t, e, name)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			if n%5 == 0 {
				time.AfterFunc(time.Duration(n)*50*time.Microsecond, cancel) // somewhere in the middle
			}
			for _, s := range []store.Upgrader{g, l} {
				if _, _, err := s.Upgrade(ctx); err != nil && ctx.Err() == nil {
					t.Fatal(err)
				}
			}
			cancel()
			if err := g.View(t.Context(), func(tx store.Reader) error { _, err := tx.ShardMaps(t.Context()); return err }); err != nil {
				t.Fatal(err)
			}
		}
		free := map[dbtest.Engine]string{
			dbtest.EnginePostgres:  "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
			dbtest.EngineSQLServer: "SELECT COUNT(*) FROM sys.dm_tran_locks WHERE resource_type = 'APPLICATION' AND resource_database_id = DB_ID()",
		}
		if free[e] != "" {
			var held int
			scan(t, pool, free[e], &held)
			if held > 0 {
				t.Errorf("%d locks are held", held)
			}
		}
		// Another program, on sessions of its own, does not wait.
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := p.global(t).Upgrade(limited); err != nil {
			t.Error(err)
		}
		if _, _, err := p.local(t).Upgrade(limited); err != nil {
			t.Error(err)
		}
	})
}

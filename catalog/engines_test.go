package catalog_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
	"github.com/shardway/shardway/store/sqlstore"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// engine gives tests stores of one kind.
type engine struct {
	name    string
	require func(t *testing.T)               // skips the test when the engine is not available
	empty   func(t *testing.T) *rig          // a deployed, empty global store, and shards to come
	world   func(t *testing.T) (*rig, world) // the same with the world in it
}

var memory = engine{
	name:    "memory",
	require: func(*testing.T) {},
	empty:   newMemoryRig,
	world: func(t *testing.T) (*rig, world) {
		r := newMemoryRig(t)
		return r, populate(r)
	},
}

func newMemoryRig(t *testing.T) *rig {
	g := memstore.NewGlobal()
	r := newRig(t, g, func(*testing.T) store.Local { return memstore.NewLocal() })
	g.Now = func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return r
}

// fleets are the databases of the SQL engines.
var fleets = []*fleet{
	{engine: dbtest.EngineSQLite},
	{engine: dbtest.EnginePostgres},
	{engine: dbtest.EngineMySQL},
	{engine: dbtest.EngineSQLServer},
}

// joint are the same with the global store in the first shard's database.
var joint = []*fleet{
	{engine: dbtest.EngineSQLite, joint: true},
	{engine: dbtest.EnginePostgres, joint: true},
	{engine: dbtest.EngineMySQL, joint: true},
	{engine: dbtest.EngineSQLServer, joint: true},
}

// engines returns all engines. What they set up is kept until the last of the
// running tests that have called it ends.
func engines(t *testing.T) []engine { return append([]engine{memory}, sqlEngines(t, fleets)...) }

// twoEngines returns the engines that cost little: memory and SQLite.
func twoEngines(t *testing.T) []engine { return append([]engine{memory}, sqlEngines(t, fleets[:1])...) }

func sqlEngines(t *testing.T, fleets []*fleet) []engine {
	list := make([]engine, len(fleets))
	for i, f := range fleets {
		f.enter(t)
		list[i] = engine{
			name:    string(f.engine),
			require: f.require,
			empty:   func(t *testing.T) *rig { return f.take(t, false).rig(t) },
			world: func(t *testing.T) (*rig, world) {
				s := f.take(t, true)
				return s.rig(t), s.world
			},
		}
	}
	return list
}

// each runs a test on several engines, side by side.
func each(t *testing.T, engines []engine, test func(t *testing.T, e engine)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			e.require(t)
			test(t, e)
		})
	}
}

// fleet is the databases of one engine, lent to one test after the other:
// making them, and the world in them, would take longer than most tests.
type fleet struct {
	engine dbtest.Engine
	joint  bool // the global store lives in the first shard's database

	mu    sync.Mutex // guards the fields below
	users int        // top-level tests that have not ended
	sites []*site
}

func (f *fleet) enter(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users--; f.users > 0 {
			return
		}
		for _, s := range f.sites {
			s.keep.end(t)
		}
		f.sites = nil
	})
}

func (f *fleet) require(t *testing.T) {
	t.Helper()
	if f.engine.Available() != nil {
		f.engine.NewDatabase(t) // skips or fails, and says why
	}
}

// take lends a site until the test ends.
func (f *fleet) take(t *testing.T, populated bool) *site {
	t.Helper()
	s := f.idle(populated)
	if s == nil {
		s = newSite(t, f)
		if populated {
			s.save(t)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sites = append(f.sites, s)
	}
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		s.busy = false
	})
	return s
}

func (f *fleet) idle(populated bool) *site {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sites {
		if !s.busy && (s.saved != nil) == populated {
			s.busy = true
			return s
		}
	}
	return nil
}

// site is one global database and some shard databases.
type site struct {
	fleet  *fleet
	keep   *lasting
	d      *dialect.Dialect
	global *sql.DB
	shards []*sql.DB
	used   int  // how many of the shards have tables
	busy   bool // lent to a test; guarded by fleet.mu

	// With the world in it: what restores it.
	world     world
	addresses []string // of the shards that belong to the world
	saved     []string // statements for the global database, then for each of those shards
}

func newSite(t *testing.T, f *fleet) *site {
	t.Helper()
	d, err := dialect.For(string(f.engine))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{fleet: f, keep: &lasting{TB: t}, d: d, busy: true}
	db := f.engine.NewDatabase(s.keep)
	s.global = s.pool(db)
	if f.joint {
		s.shards = append(s.shards, s.pool(db))
	}
	return s
}

func (s *site) pool(db dbtest.Database) *sql.DB {
	s.keep.Helper()
	pool := db.Open(s.keep)
	if s.fleet.engine == dbtest.EngineSQLite { // as package sqlite opens files, but without waiting for the disk
		file := url.URL{Scheme: "file", Path: db.Name, RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"}
		fast, err := sql.Open("sqlite", file.String())
		if err != nil {
			s.keep.Fatal(err)
		}
		s.keep.Cleanup(func() { _ = fast.Close() })
		pool = fast
	}
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	return pool
}

// rig returns the site as it was when the world was new, or empty.
func (s *site) rig(t *testing.T) *rig {
	t.Helper()
	s.keep.TB = t
	for _, pool := range s.shards[min(len(s.addresses), s.used):s.used] {
		s.exec(t, pool, s.d.Drop(dialect.Local)...)
	}
	g, err := sqlstore.NewGlobal(s.global, s.d.Name())
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, g, s.local)
	s.used = 0
	if s.saved == nil {
		if _, err := g.Deploy(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return r
	}
	s.exec(t, s.global, s.saved[0])
	for i, address := range s.addresses {
		s.exec(t, s.shards[i], s.saved[i+1])
		r.locals[address] = s.local(t)
	}
	return r
}

// local returns the local store in the next of the site's databases.
func (s *site) local(t *testing.T) store.Local {
	t.Helper()
	if s.used == len(s.shards) {
		s.shards = append(s.shards, s.pool(s.fleet.engine.NewDatabase(s.keep)))
	}
	l, err := sqlstore.NewLocal(s.shards[s.used], s.d.Name())
	if err != nil {
		t.Fatal(err)
	}
	s.used++
	return l
}

// save makes the world and remembers it.
func (s *site) save(t *testing.T) {
	t.Helper()
	r := s.rig(t)
	s.world = populate(r)
	s.addresses = r.opened
	s.saved = []string{s.saveTables(t, s.global, dialect.Global)}
	for i := range s.addresses {
		s.saved = append(s.saved, s.saveTables(t, s.shards[i], dialect.Local))
	}
}

// saveTables copies the tables of a part and returns what brings them back.
func (s *site) saveTables(t *testing.T, pool *sql.DB, part dialect.Part) string {
	t.Helper()
	restore := slices.Clone(s.d.Begin(dialect.Write))
	for _, drop := range s.d.Drop(part) {
		table := strings.TrimPrefix(drop, "DROP TABLE IF EXISTS ")
		if table == s.d.SQL("{history}") { // its ids are given by the engine
			var last int64
			if err := pool.QueryRowContext(t.Context(), "SELECT MAX(entry_id) FROM "+table).Scan(&last); err != nil {
				t.Fatal(err)
			}
			restore = append(restore, fmt.Sprintf("DELETE FROM %s WHERE entry_id > %d", table, last))
			continue
		}
		saved := "saved_" + strings.ReplaceAll(table, ".", "_")
		if s.fleet.engine == dbtest.EngineSQLServer {
			s.exec(t, pool, fmt.Sprintf("SELECT * INTO %s FROM %s", saved, table))
		} else {
			s.exec(t, pool, fmt.Sprintf("CREATE TABLE %s AS SELECT * FROM %s", saved, table))
		}
		restore = append(restore, "DELETE FROM "+table, fmt.Sprintf("INSERT INTO %s SELECT * FROM %s", table, saved))
	}
	return strings.Join(append(restore, s.d.Commit()), ";\n")
}

func (s *site) exec(t *testing.T, pool *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), text); err != nil {
			t.Fatalf("running %q: %v", text, err)
		}
	}
}

// lasting is a test to those who set something up that lasts until end.
type lasting struct {
	testing.TB

	cleanups []func()
}

// Cleanup puts fn off until end.
func (l *lasting) Cleanup(fn func()) { l.cleanups = append(l.cleanups, fn) }

// TempDir returns a folder that goes at the end.
func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "shardway-catalog")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (l *lasting) end(t *testing.T) {
	l.TB = t
	for _, fn := range slices.Backward(l.cleanups) {
		fn()
	}
}

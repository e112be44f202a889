package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Engine names a kind of database, as in [Database.Engine].
type Engine string

// The engines, in the order of [Engines]. EngineMySQL stands for MariaDB too.
const (
	EngineSQLite    Engine = "sqlite"
	EnginePostgres  Engine = "postgres"
	EngineMySQL     Engine = "mysql"
	EngineSQLServer Engine = "sqlserver"
)

// requireVariable names the engines that must not be skipped.
const requireVariable = "SHARDWAY_TEST_REQUIRE"

// Engines lists every engine, available here or not: taking a database of an engine that is not skips the test.
func Engines() []Engine {
	return []Engine{EngineSQLite, EnginePostgres, EngineMySQL, EngineSQLServer}
}

// Each runs test as one parallel subtest for each engine, named after it. An engine that is not available shows as
// a skipped subtest, or as a failed one where SHARDWAY_TEST_REQUIRE names it.
func Each(t *testing.T, test func(t *testing.T, e Engine)) {
	t.Helper()
	for _, e := range Engines() {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			e.require(t)
			test(t, e)
		})
	}
}

// Available says why no database of the engine can be had here, or returns nil. It starts nothing.
func (e Engine) Available() error {
	switch e {
	case EngineSQLite:
		return nil
	case EnginePostgres, EngineMySQL, EngineSQLServer:
		if os.Getenv(e.variable()) != "" {
			return nil
		}
		_, err := locate(e)
		return err
	default:
		return fmt.Errorf("unknown engine %q, not one of %v", string(e), Engines())
	}
}

// Server returns the shared server of the engine, or skips the test as [Postgres] does. SQLite has none: fatal.
func (e Engine) Server(t testing.TB) *Server {
	t.Helper()
	e.require(t)
	if e == EngineSQLite {
		t.Fatal("SQLite has no server: take a path from dbtest.SQLite, or a database from Engine.NewDatabase")
	}
	s, err := shared[e]()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewDatabase returns a fresh, empty database of the engine for this test alone, on its shared server.
// It skips the test when the engine is not available, and fails it where SHARDWAY_TEST_REQUIRE names the engine.
func (e Engine) NewDatabase(t testing.TB) Database {
	t.Helper()
	if e == EngineSQLite {
		return Database{Engine: string(e), Name: SQLite(t)}
	}
	return e.Server(t).NewDatabase(t)
}

// SQLite returns the path of a database file that does not exist yet, in a folder that goes with the test.
func SQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "shardway.db")
}

// require ends the test, loudly, when the engine is not available.
func (e Engine) require(t testing.TB) {
	t.Helper()
	if err := e.Available(); err != nil {
		e.unavailable(t, err)
	}
}

// unavailable skips the test or, where the engine is required, fails it.
func (e Engine) unavailable(t testing.TB, err error) {
	t.Helper()
	if slices.Contains(requiredEngines(), e) {
		t.Fatalf("%s is required by %s: %v", e, requireVariable, err)
	}
	t.Skipf("SKIPPED, nothing was tested on %s: %v", e, err)
}

// variable is the name of the environment variable with the URL of a user's own server.
func (e Engine) variable() string { return "SHARDWAY_TEST_" + strings.ToUpper(string(e)) }

// requiredEngines are those that SHARDWAY_TEST_REQUIRE names.
func requiredEngines() []Engine {
	var required []Engine
	for name := range strings.SplitSeq(os.Getenv(requireVariable), ",") {
		if name = strings.TrimSpace(name); name != "" {
			required = append(required, Engine(name))
		}
	}
	return required
}

// checkRequired refuses a name that is no engine: a typing error would turn a requirement into a silent skip.
func checkRequired() error {
	known := append(Engines(), EngineMongoDB)
	for _, e := range requiredEngines() {
		if !slices.Contains(known, e) {
			return fmt.Errorf("reading %s: unknown engine %q, not one of %v", requireVariable, string(e), known)
		}
	}
	return nil
}

package shardway_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// floors is the architecture: a package imports lower floors only, siblings
// never import each other. See ARCHITECTURE.md. Tests may import anything.
var floors = map[string]int{
	"internal/dialect": 0, "internal/interval": 0, "internal/faultconn": 0, "internal/installed": 0, "topology": 0,
	"internal/served": 0,
	"selection":       1, "topology/probe": 1,
	".": 2, "internal/predicate": 2,
	"store":        3,
	"retry":        3,
	"internal/dsn": 3, "internal/replicaset": 3,
	"internal/mongomap": 3,
	"internal/mapfile":  3,
	"topology/pgprobe":  3, "topology/mysqlprobe": 3, "topology/sqlserverprobe": 3, "topology/sqliteprobe": 3,
	"store/sqlstore": 4, "store/memstore": 4, "store/mongostore": 4, "store/storetest": 4, "catalog": 4, "sqlshard": 4, "pgxshard": 4, "mongoshard": 4,
	"postgres": 5, "mysql": 5, "sqlserver": 5, "sqlite": 5, "mongodb": 5,
	"recovery":           5,
	"internal/customers": 6, "internal/replicas": 6,
	"cmd/shardway": 7, "examples/customers": 7, "examples/quickstart": 7, "examples/replicas": 7, "internal/chaos": 7,
	"internal/mongotest":       8,
	"examples/mongo-localhost": 7, "examples/mongo-replicaset": 7,
	"internal/dbtest": 8, "topology/probe/probetest": 8, // for tests only
}

// std are the packages that promise no third-party import. Adapters are not
// among them: they repeat units of work by package retry, which stands on
// cenkalti/backoff.
var std = map[string]bool{".": true, "selection": true, "topology": true, "topology/probe": true, "topology/pgprobe": true, "topology/mysqlprobe": true, "topology/sqlserverprobe": true, "topology/sqliteprobe": true, "internal/interval": true, "internal/dialect": true, "internal/mapfile": true, "store": true, "store/memstore": true, "catalog": true, "recovery": true}

const module = "github.com/shardway/shardway"

func TestFloors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != "." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(file, "go.mod")); d.IsDir() && file != "." && err == nil {
			return filepath.SkipDir // another module
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		pkg := path.Dir(filepath.ToSlash(file))
		seen[pkg] = true
		checkImports(t, file, pkg)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range floors {
		if !seen[pkg] {
			t.Errorf("package %s stands in floors but not in the tree", pkg)
		}
	}
}

func checkImports(t *testing.T, file, pkg string) {
	t.Helper()
	floor, ok := floors[pkg]
	if !ok {
		t.Errorf("%s: package %s has no floor", file, pkg)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range f.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		rest, ours := strings.CutPrefix(imported, module)
		if !ours {
			if first, _, _ := strings.Cut(imported, "/"); std[pkg] && strings.Contains(first, ".") {
				t.Errorf("%s imports %s: package %s promises the standard library alone", file, imported, pkg)
			}
			continue
		}
		below := "."
		if rest != "" {
			below = rest[1:]
		}
		if to, known := floors[below]; !known || to >= floor {
			t.Errorf("%s (floor %d) imports %s (floor %d)", file, floor, imported, to)
		}
	}
}

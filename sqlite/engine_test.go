package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlite"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"sqlite:/no/maps.db":                     {"/no/maps.db", ""},
		"sqlite:///no/maps.db?_txlock=immediate": {"/no/maps.db", "_txlock=immediate"},
		"sqlite:/no/a%20b%3F%23%25.db":           {"/no/a b?#%.db", ""},
		"SQLite:/no/./x/../maps.db":              {"/no/maps.db", ""},
	} {
		e, l, _, err := sqlite.Parse(text)
		if err != nil || len(l.Servers) != 1 || l.Servers[0].Address != want[0] || e.Options != want[1] || l.Engine != "sqlite" {
			t.Errorf("Parse(%q) = %+v, %+v, %v", text, e, l, err)
		}
	}
	for _, text := range []string{"", "sqlite", "sqlite:", "sqlite://host/x.db", "sqlite::memory:", "sqlite:file:x", "postgres:/x", "sqlite:/x?user=y", "sqlite:/%zz"} {
		if _, _, _, err := sqlite.Parse(text); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("Parse(%q) = %v, want it refused", text, err)
		}
	}
}

// ADM-03: one file has one location, through a symbolic link too.
func TestNormalize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "x.db"), filepath.Join(dir, "link.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	at := func(path string) shardway.Location {
		return shardway.Location{Servers: []shardway.Server{{Address: path, Tags: map[string]string{"a": "b"}}}}
	}
	a, errA := sqlite.Engine{}.Normalize(at(file))
	b, errB := sqlite.Engine{}.Normalize(at(link))
	if diff := cmp.Diff(a, b); errA != nil || errB != nil || diff != "" || !a.Overlaps(b) {
		t.Errorf("two paths of a file: %v, %v\n%s", errA, errB, diff)
	}
	two := at(file)
	two.Servers = append(two.Servers, two.Servers[0])
	named := at(file)
	named.Database = "db"
	other := at(file)
	other.Engine = "mysql"
	for name, l := range map[string]shardway.Location{
		"two files": two, "a database": named, "another engine": other, "no file": {}, "memory": at(":memory:"), "URI": at("file:x.db"), "NUL": at("x\x00"),
	} {
		if _, err := (sqlite.Engine{}).Normalize(l); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("Normalize of %s = %v", name, err)
		}
	}
}

func open(t *testing.T, e sqlite.Engine, path string) *sql.DB {
	t.Helper()
	c, err := e.Connector(path, "", shardway.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A connection does not create a file; a deployment does, for its owner alone.
func TestFileIsCreatedByDeployOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?#%.db")
	db := open(t, sqlite.Engine{}, path)
	if err := db.PingContext(t.Context()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("Ping = %v, want a missing file with its path", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
	g, err := sqlite.GlobalStore("sqlite:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Describe(t.Context()); !errors.Is(err, shardway.ErrNoStore) {
		t.Errorf("Describe = %v, want ErrNoStore", err)
	}
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("Ping = %v", err)
	}
}

func TestPragmas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(db *sql.DB) map[string]string {
		got := map[string]string{}
		for _, name := range []string{"journal_mode", "synchronous", "busy_timeout", "foreign_keys"} {
			var v string
			if err := db.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&v); err != nil {
				t.Fatal(err)
			}
			got[name] = v
		}
		return got
	}
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "0"}
	if diff := cmp.Diff(want, read(open(t, sqlite.Engine{}, path))); diff != "" {
		t.Errorf("pragmas (-want +got):\n%s", diff)
	}
	want["busy_timeout"], want["foreign_keys"] = "7", "1"
	if diff := cmp.Diff(want, read(open(t, sqlite.Engine{Options: "_pragma=busy_timeout(7)&_pragma=foreign_keys(1)"}, path))); diff != "" {
		t.Errorf("pragmas with options (-want +got):\n%s", diff)
	}
	readOnly := open(t, sqlite.Engine{Options: "mode=ro"}, path)
	if _, err := readOnly.ExecContext(t.Context(), "CREATE TABLE t (a)"); err == nil {
		t.Error("a file opened for reading was written to")
	}
	if _, err := (sqlite.Engine{Options: "user=x"}).Connector(path, "", shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("options with a user = %v", err)
	}
}

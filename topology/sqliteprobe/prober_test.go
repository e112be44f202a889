package sqliteprobe_test

import (
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
	"github.com/shardway/shardway/topology/probe/probetest"
	"github.com/shardway/shardway/topology/sqliteprobe"
)

// files makes a database, with a table and a heartbeat, and the path of a copy of it.
func files(t *testing.T) (original dbtest.Database, copied string) {
	t.Helper()
	d := dbtest.EngineSQLite.NewDatabase(t)
	h, err := probe.NewHeartbeat("sqlite", "heartbeat")
	if err != nil {
		t.Fatal(err)
	}
	pool := d.Open(t)
	for _, statement := range []string{"PRAGMA journal_mode = WAL", "PRAGMA user_version = 5", h.Create()} {
		if _, err := pool.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Beat(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	copied = filepath.Join(t.TempDir(), "copy.db")
	if _, err := pool.Exec("VACUUM INTO ?", copied); err != nil {
		t.Fatal(err)
	}
	return d, copied
}

// newProber opens every file but the writable one for reading only.
func newProber(t *testing.T, writable string, o sqliteprobe.Options) *sqliteprobe.Prober {
	t.Helper()
	prober, err := sqliteprobe.New(func(address string) (driver.Connector, error) {
		e := sqlite.Engine{}
		if address != writable {
			e.Options = "mode=ro"
		}
		return e.Connector(address, "", shardway.Credentials{})
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	return prober
}

func TestProbeRoles(t *testing.T) {
	t.Parallel()
	d, copied := files(t)
	m := probetest.Open(t, newProber(t, d.Name, sqliteprobe.Options{Heartbeat: "heartbeat"}), d.Name, copied)
	seen := m.Await(t, "a primary and a copy", func(s topology.Set) bool {
		return probetest.IsPrimary(d.Name)(s) && s.Server(1).Role == topology.RoleSecondary
	})
	if c := seen.Server(1); c.Detached || !c.Staleness.AtMost(probetest.Limit) || c.Engine != "sqlite" || c.Version == "" {
		t.Errorf("copy is %+v", c)
	}
	if o := probetest.Once(t, newProber(t, d.Name, sqliteprobe.Options{}), copied); o.Staleness.Known() {
		t.Errorf("without a heartbeat the copy is %v behind", o.Staleness)
	}
}

// The probe neither waits for a writer nor disturbs one.
func TestWriterAtWork(t *testing.T) {
	t.Parallel()
	d, _ := files(t)
	prober := newProber(t, d.Name, sqliteprobe.Options{})
	pool := d.Open(t)
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"BEGIN IMMEDIATE", "UPDATE heartbeat SET term = 7"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if o := probetest.Once(t, prober, d.Name); o.Role != topology.RolePrimary {
		t.Errorf("while somebody writes the file is %+v", o)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if o := probetest.Once(t, prober, d.Name); o.Role != topology.RolePrimary {
		t.Errorf("afterwards the file is %+v", o)
	}
	if _, err := pool.Exec("UPDATE heartbeat SET term = 8"); err != nil {
		t.Errorf("the probe left a lock behind: %v", err)
	}
	var version int
	if err := pool.QueryRow("PRAGMA user_version").Scan(&version); err != nil || version != 5 {
		t.Errorf("the file's version is %d after the probes, want 5 (error %v)", version, err)
	}
}

// A copy that takes writes is refused together with the original.
func TestWritableCopy(t *testing.T) {
	t.Parallel()
	d, copied := files(t)
	prober, err := sqliteprobe.New(func(address string) (driver.Connector, error) {
		return sqlite.Engine{}.Connector(address, "", shardway.Credentials{})
	}, sqliteprobe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prober.Close() })
	m := probetest.Open(t, prober, d.Name, copied)
	m.Await(t, "an undecided conflict", func(s topology.Set) bool {
		var conflict *topology.ConflictError
		return probetest.NoPrimary(s) && errors.As(s.Conflict(), &conflict) && conflict.Undecided
	})
}

func TestUnusableFile(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text.db")
	if err := os.WriteFile(text, []byte("no database, but text that is long enough to be one"), 0o600); err != nil {
		t.Fatal(err)
	}
	prober := newProber(t, text, sqliteprobe.Options{})
	for _, path := range []string{text, filepath.Join(t.TempDir(), "missing.db")} {
		if o, err := probetest.Try(t, prober, path); err == nil || o.Role != topology.RoleUnknown {
			t.Errorf("%s is %+v with error %v", path, o, err)
		}
	}
}

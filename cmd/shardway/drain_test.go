package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// The command ends who is at work for the mapping and says how many; told not
// to, it leaves everything as it is and says who is in the way.
func TestDrainCommand(t *testing.T) {
	t.Parallel()
	d, err := dialect.For("postgres")
	if err != nil {
		t.Fatal(err)
	}
	global, shard := dbtest.EnginePostgres.NewDatabase(t), dbtest.EnginePostgres.NewDatabase(t)
	p := newProgram(t, "SHARDWAY_STORE="+global.DSN(), "SHARDWAY_SHARD_USER="+shard.User, "SHARDWAY_SHARD_PASSWORD="+shard.Password,
		"SHARDWAY_POSTGRES_OPTIONS="+global.Query, "SHARDWAY_MAP=customers")
	for _, line := range []string{"init", "map create customers --kind range --key int64", "shard add s1 " + location(shard), "mapping add --shard s1 --low 0 --high 100"} {
		p.must(strings.Fields(line)...)
	}
	app := shard.Open(t)
	var id int64
	if err := app.QueryRowContext(t.Context(), "SELECT mapping_id FROM shardway.local_mappings").Scan(&id); err != nil {
		t.Fatal(err)
	}
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var status int
		if err := tx.QueryRowContext(t.Context(), d.LockMapping(), id).Scan(&status); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	tx := begin()
	r := p.run("mapping", "move-metadata", "--key", "5", "--to", "s1", "--status", "offline", "--drain", "none", "--dry-run")
	if r.code != exitOK {
		t.Fatalf("dry run: exit code %d\n%s", r.code, r.errs)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
		t.Fatalf("after a dry run: %v", err)
	}
	r = p.must("mapping", "offline", "--key", "5", "--drain", "kill", "--output", "json")
	var v changeView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Drained == nil || *v.Drained != (drainedView{Waited: 1, Ended: 1}) {
		t.Errorf("drained %+v\n%s", v.Drained, r.out)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err == nil {
		t.Error("the session goes on")
	}
	p.must("mapping", "online", "--key", "5")
	if err := app.QueryRowContext(t.Context(), "SELECT mapping_id FROM shardway.local_mappings").Scan(&id); err != nil {
		t.Fatal(err)
	}
	tx = begin()
	if r = p.must("mapping", "offline", "--key", "5", "--drain", "200ms"); !strings.Contains(r.out, "sessions at work: waited for 1, ended 1\n") {
		t.Errorf("output:\n%s", r.out)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err == nil {
		t.Error("the session goes on")
	}
}

// Who ends nobody is told who is in the way, and nothing has changed.
func TestBusyMapping(t *testing.T) {
	t.Parallel()
	code, hint := judge(t.Context(), fate(catalog.Result{Operation: 1}, fmt.Errorf("offline: %w", &store.BusyError{Users: []string{"session 5"}})))
	if code != exitConflict || hint == "" {
		t.Errorf("exit code %d, hint %q", code, hint)
	}
}

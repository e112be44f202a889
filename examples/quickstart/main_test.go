package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/store/sqlstore"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestRun runs the program twice on real databases: the customer ends up on
// the shard that owns its key, once, and nowhere else.
func TestRun(t *testing.T) {
	t.Parallel()
	global := dbtest.EnginePostgres.NewDatabase(t)
	shards := []dbtest.Database{dbtest.EnginePostgres.NewDatabase(t), dbtest.EnginePostgres.NewDatabase(t)}
	setUp(t, global, shards)
	for range 2 {
		var out bytes.Buffer
		if err := run(t.Context(), global.As(global.User, "").DSN(), global.Password, &out); err != nil {
			t.Fatal(err)
		}
		if want := "customer 4711 on shard eu2 is Ada\n"; out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	}
	for i, want := range []int{0, 1} {
		var rows int
		if err := shards[i].Open(t).QueryRowContext(t.Context(), `SELECT count(*) FROM customer`).Scan(&rows); err != nil || rows != want {
			t.Errorf("shard %d has %d customers, %v; want %d", i+1, rows, err, want)
		}
	}
}

// A wrong password is told, and not shown.
func TestRunRefused(t *testing.T) {
	t.Parallel()
	global := dbtest.EnginePostgres.NewDatabase(t)
	err := run(t.Context(), global.As(global.User, "").DSN(), "hunter2", &bytes.Buffer{})
	if !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), "password authentication failed") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := run(t.Context(), "", "", &bytes.Buffer{}); !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), "SHARDWAY_STORE") {
		t.Errorf("without a store: %v", err)
	}
}

// setUp does what README.md does with the tool.
func setUp(t *testing.T, global dbtest.Database, shards []dbtest.Database) {
	t.Helper()
	ctx := t.Context()
	source, err := postgres.GlobalStore(global.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := source.Deploy(ctx, false); err != nil {
		t.Fatal(err)
	}
	locals, err := sqlstore.NewLocals([]shardway.Engine{postgres.Engine{}}, shardway.Credentials{User: global.User, Password: global.Password})
	if err != nil {
		t.Fatal(err)
	}
	defer locals.Close()
	c, err := catalog.New(source, locals, catalog.Config{Who: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	do := func(ch catalog.Change) catalog.Result {
		t.Helper()
		r, err := c.Do(ctx, ch)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	m := do(catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	ends := []shardway.Key{shardway.Int64Key(0), shardway.Int64Key(1000), {}}
	for i, d := range shards {
		_, l, _, err := postgres.Parse(d.DSN())
		if err != nil {
			t.Fatal(err)
		}
		sh := do(catalog.AddShard{Map: m, Name: []string{"eu1", "eu2"}[i], Location: l}).Shards[0]
		do(catalog.AddMappings{Map: m, New: []catalog.NewMapping{{Range: shardway.Range{Low: ends[i], High: ends[i+1]}, ShardID: sh.ID}}})
		if _, err := d.Open(t).ExecContext(ctx, `CREATE TABLE customer (customer_id bigint PRIMARY KEY, name text)`); err != nil {
			t.Fatal(err)
		}
	}
}

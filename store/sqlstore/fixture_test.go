package sqlstore_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

var release = flag.Bool("release", false, "write the fixtures of the current schema version; never over those of a released one")

// globalTables and localTables in an order in which they can be filled.
var (
	globalTables = []string{"store", "counters", "shard_maps", "shards", "mappings", "pending_mappings", "operations", "operation_parts", "history"}
	localTables  = []string{"local_store", "local_shard_maps", "local_shards", "local_mappings", "local_operations"}
)

func fixtureFile(v store.Version, e dbtest.Engine) string {
	return fmt.Sprintf("testdata/store-%d.%d-%s.sql", v.Major, v.Minor, e)
}

// TestReleaseFixtures writes, with -release, a global and a local store of
// today's version with rows of every kind. It is run once for each version, on
// the day of its release, and the files are never written again: that is what
// makes them witnesses.
func TestReleaseFixtures(t *testing.T) {
	t.Parallel()
	if !*release {
		t.Skip("writes files with -release alone")
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		file := fixtureFile(store.Current, e)
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%s is there: a released version does not change", file)
		}
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		g, l := p.deployed(t), p.local(t)
		d, err := g.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Deploy(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		fill(t, g, l)
		if err := os.WriteFile(file, []byte(dumpStore(t, db.Open(t), e)), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}

// fill makes rows of every kind: maps of several key kinds, both statuses,
// locks, an operation that is pending and ones that have ended.
func fill(t *testing.T, g *sqlstore.Global, l *sqlstore.Local) {
	t.Helper()
	text, err := shardway.StringKey("a'b\\c\x00ü\xff")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		kind shardway.MapKind
		keys shardway.KeyKind
		of   []shardway.Range
	}{
		{"customers", shardway.RangeMap, shardway.KindInt64, []shardway.Range{
			{Low: shardway.Int64Key(-5), High: shardway.Int64Key(0)}, shardway.RangeFrom(shardway.Int64Key(1 << 53)),
		}},
		{"tenants ü", shardway.ListMap, shardway.KindUUID, []shardway.Range{{Low: shardway.UUIDKey([16]byte{1, 2, 3})}, {Low: shardway.UUIDKey([16]byte{0xff})}}},
		{"words", shardway.RangeMap, shardway.KindString, []shardway.Range{{Low: shardway.MinKey(shardway.KindString), High: text}, {Low: text}}},
	} {
		fillMap(t, g, l, shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: c.name, Kind: c.kind, KeyKind: c.keys}, c.of)
	}
	addMap(t, g, "empty")
}

func fillMap(t *testing.T, g *sqlstore.Global, l *sqlstore.Local, m shardway.ShardMap, ranges []shardway.Range) {
	t.Helper()
	update := func(id shardway.MapID, d store.Delta) {
		t.Helper()
		if err := g.Update(t.Context(), id, func(store.Reader, time.Time) (store.Delta, error) { return d, nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(0, store.Delta{AddMap: &m})
	s := shardway.Shard{
		ID: shardway.ShardID(store.NewID()), MapID: m.ID, Name: "eu1 'quoted'", Version: store.NewID(),
		Location: shardway.Location{Engine: "postgres", Database: "tenants", Servers: []shardway.Server{
			{Address: "db1.example:5432", Tags: map[string]string{"zone": "a"}}, {Address: "[::1]:5432"},
		}},
	}
	add := make([]shardway.Mapping, len(ranges))
	for i, r := range ranges {
		add[i] = shardway.Mapping{ID: shardway.MappingID(store.NewID()), MapID: m.ID, ShardID: s.ID, Range: r, Status: shardway.MappingStatus(i % 2)}
	}
	operation := func(steps ...store.Step) *store.Operation {
		return &store.Operation{
			ID: store.OperationID(store.NewID()), Kind: "add", Map: m, Steps: steps, Who: "anna", Reason: `why 'so'`, Summary: "some \\ mappings",
			Started: time.Date(2026, 11, 30, 1, 2, 3, 4000, time.UTC), Epoch: 1, Owner: "anna/1", LeaseUntil: time.Date(2026, 11, 30, 1, 3, 0, 0, time.UTC),
		}
	}
	step := func(o *store.Operation, i int, want store.StepState) {
		t.Helper()
		_, err := l.Step(t.Context(), store.LocalStep{Operation: o.ID, Seq: o.Seq, Epoch: 1, Map: m, Step: o.Steps[i], Want: want})
		if err != nil {
			t.Fatal(err)
		}
	}
	o := operation(store.Step{Shard: s, After: &s, Add: add})
	update(m.ID, store.Delta{Prepare: o})
	step(o, 0, store.StepApplied)
	update(m.ID, store.Delta{Publish: o, History: []store.Entry{{
		Operation: o.ID, At: o.Started, MapID: m.ID, MapName: m.Name, Kind: o.Kind, Outcome: store.Done, Who: o.Who, Reason: o.Reason, Summary: o.Summary, Ranges: ranges,
	}}})
	locked := add[0]
	locked.Lock = shardway.Lock{Token: "secret \xff token", Owner: "mover", Reason: "moves", Expires: time.Date(2036, 1, 2, 3, 4, 5, 6000, time.UTC)}
	update(m.ID, store.Delta{Lock: []shardway.Mapping{locked}})
	next := locked
	next.ID, next.Status = shardway.MappingID(store.NewID()), shardway.Online
	pending := operation(store.Step{Shard: s, Remove: []shardway.Mapping{locked}, Add: []shardway.Mapping{next}})
	update(m.ID, store.Delta{Prepare: pending})
	step(pending, 0, store.StepSeen)
	never := add[1]
	never.ID = shardway.MappingID(store.NewID())
	undone := operation(store.Step{Shard: s, Remove: add[1:], Add: []shardway.Mapping{never}})
	update(m.ID, store.Delta{Prepare: undone})
	step(undone, 0, store.StepUndone)
	update(m.ID, store.Delta{Abort: undone, History: []store.Entry{{
		Operation: undone.ID, At: undone.Started, MapID: m.ID, MapName: m.Name, Kind: undone.Kind, Outcome: store.Undone, Who: "recover",
	}}})
}

// dumpStore writes the tables of both stores and all their rows as statements.
func dumpStore(t *testing.T, pool *sql.DB, e dbtest.Engine) string {
	t.Helper()
	d, err := dialect.For(string(e))
	if err != nil {
		t.Fatal(err)
	}
	statements := slices.Concat(d.Create(dialect.Global), d.Create(dialect.Local))
	for _, name := range slices.Concat(globalTables, localTables) {
		statements = append(statements, dumpTable(t, pool, e, d.SQL("{"+name+"}"))...)
	}
	if e == dbtest.EnginePostgres { // rows with given numbers do not move the counter
		statements = append(statements, `SELECT setval(pg_get_serial_sequence('shardway.history', 'entry_id'), (SELECT max(entry_id) FROM shardway.history))`)
	}
	return strings.Join(statements, "\n\n") + "\n"
}

// dumpTable returns an insert for each row, in the order of their texts.
func dumpTable(t *testing.T, pool *sql.DB, e dbtest.Engine, table string) (inserts []string) {
	t.Helper()
	rows, err := pool.Query("SELECT * FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		t.Fatal(err)
	}
	overriding := ""
	if e == dbtest.EnginePostgres && strings.HasSuffix(table, ".history") {
		overriding = " OVERRIDING SYSTEM VALUE"
	}
	for rows.Next() {
		values := make([]sql.RawBytes, len(types))
		dest := make([]any, len(types))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(types))
		for i, v := range values {
			texts[i] = literal(e, types[i].DatabaseTypeName(), v)
		}
		inserts = append(inserts, "INSERT INTO "+table+overriding+" VALUES ("+strings.Join(texts, ", ")+")")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(inserts)
	return inserts
}

// literal is a value in the words of an engine.
func literal(e dbtest.Engine, kind string, v []byte) string {
	switch kind = strings.ToUpper(kind); {
	case v == nil:
		return "NULL"
	case strings.Contains(kind, "INT"):
		return string(v)
	case kind == "BYTEA":
		return fmt.Sprintf(`'\x%x'`, v)
	case strings.Contains(kind, "BLOB") || strings.Contains(kind, "BINARY"):
		return fmt.Sprintf("x'%x'", v)
	case e == dbtest.EngineMySQL:
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(string(v)) + "'"
	}
	return "'" + strings.ReplaceAll(string(v), "'", "''") + "'"
}

// loadFixture fills an empty database with a store of a released version.
func loadFixture(t testing.TB, pool *sql.DB, v store.Version, e dbtest.Engine) {
	t.Helper()
	body, err := os.ReadFile(fixtureFile(v, e))
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(string(body)), "\n\n") {
		if _, err := pool.Exec(statement); err != nil {
			t.Fatalf("%v: %s", err, statement)
		}
	}
}

package sqlstore_test

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

func deployedLocal(t testing.TB, p place) *sqlstore.Local {
	t.Helper()
	l := p.local(t)
	if err := l.Deploy(t.Context(), "id"); err != nil {
		t.Fatal(err)
	}
	return l
}

func tryAddMap(t testing.TB, g *sqlstore.Global) error {
	t.Helper()
	m := shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: fmt.Sprint(store.NewID()), Kind: 1, KeyKind: 1}
	return g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{AddMap: &m}, nil })
}

// KEY-03, KEY-08: the bytes of keys are the same in every engine, and they
// route the same after the store was opened anew.
func TestStoredKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		g := p.deployed(t)
		m := addMap(t, g, "m")
		var keys []shardway.Key
		for _, v := range []int64{1000, 256, 9, 10, -1, -256} {
			keys = append(keys, shardway.Int64Key(v))
		}
		points(t, g, m, keys)
		uuids := addMapOf(t, g, "uuids", shardway.ListMap, shardway.KindUUID)
		ids := []shardway.Key{
			shardway.UUIDKey([16]byte{15: 1}), shardway.UUIDKey([16]byte{0: 1}), shardway.UUIDKey([16]byte{8: 1}), shardway.UUIDKey([16]byte{0: 0xff, 3: 1}),
		}
		points(t, g, uuids, ids)

		got := hexRows(t, db.Open(t), "SELECT low_key FROM "+table(t, e, "mappings")+fmt.Sprintf(" WHERE map_id = %d ORDER BY low_key", m.ID))
		want := []string{"7fffffffffffff00", "7fffffffffffffff", "8000000000000009", "800000000000000a", "8000000000000100", "80000000000003e8"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stored int64 keys (-want +got):\n%s", diff)
		}
		got = hexRows(t, db.Open(t), "SELECT low_key FROM "+table(t, e, "mappings")+fmt.Sprintf(" WHERE map_id = %d ORDER BY low_key", uuids.ID))
		want = []string{
			"00000000000000000000000000000001", "00000000000000000100000000000000", "01000000000000000000000000000000", "ff000001000000000000000000000000",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stored uuid keys (-want +got):\n%s", diff)
		}
		again := p.global(t)
		for _, key := range append(slices.Clone(keys), ids...) {
			of := m
			if key.Kind() == shardway.KindUUID {
				of = uuids
			}
			answer, err := again.Lookup(t.Context(), of, key)
			if err != nil || !answer.Found || answer.Mapping.Range.Low != key {
				t.Errorf("Lookup(%s) after reopening = %+v, %v", key, answer, err)
			}
		}
	})
}

func addMapOf(t testing.TB, g *sqlstore.Global, name string, kind shardway.MapKind, keys shardway.KeyKind) shardway.ShardMap {
	t.Helper()
	m := shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: name, Kind: kind, KeyKind: keys}
	err := g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{AddMap: &m}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// points publishes one mapping for each key: the point, or the range of it alone.
func points(t testing.TB, g *sqlstore.Global, m shardway.ShardMap, keys []shardway.Key) {
	t.Helper()
	s := shardway.Shard{ID: shardway.ShardID(store.NewID()), MapID: m.ID, Name: "s", Version: store.NewID()}
	step := store.Step{Shard: s, After: &s}
	for _, k := range keys {
		step.Add = append(step.Add, shardway.Mapping{ID: shardway.MappingID(store.NewID()), MapID: m.ID, ShardID: s.ID, Range: shardway.Range{Low: k}})
	}
	o := &store.Operation{ID: store.OperationID(store.NewID()), Map: m, Epoch: 1, Steps: []store.Step{step}}
	err := g.Update(t.Context(), m.ID, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{Prepare: o, Publish: o}, nil })
	if err != nil {
		t.Fatal(err)
	}
}

func hexRows(t testing.TB, pool *sql.DB, text string) (all []string) {
	t.Helper()
	rows, err := pool.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			t.Fatal(err)
		}
		all = append(all, hex.EncodeToString(b))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// SEC-05: names that would end a statement, or that a collation takes for
// equal, are names like others.
func TestNamesAreData(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		p := placeOf(t, e.NewDatabase(t))
		g := p.deployed(t)
		names := []string{
			"order", `a"b`, "a`b", "a.b", "x'); DROP TABLE shardway_shard_maps;--", "Ünïcode", "ünïcode", "a", "A", "á", "ß", "ss", `\`, `\'`, "%", "_", "?", "$1", "@p1", "{store}", "😀",
		}
		for _, name := range names {
			addMap(t, g, name)
		}
		again := p.global(t)
		for _, name := range names {
			if m, err := again.ShardMap(t.Context(), name); err != nil || m.Name != name {
				t.Errorf("ShardMap(%q) = %+v, %v", name, m, err)
			}
		}
		for _, name := range []string{"ORDER", "a ", " a", "a\x00", "\xff", "", "ÜNÏCODE"} {
			if m, err := again.ShardMap(t.Context(), name); err == nil {
				t.Errorf("ShardMap(%q) = %+v, want ErrMapNotFound", name, m)
			}
		}
	})
}

// KEY-13: neither the time zone of a session nor that of a server moves an instant.
func TestClockIgnoresZones(t *testing.T) {
	t.Parallel()
	for e, engines := range map[dbtest.Engine][2]shardway.Engine{
		dbtest.EnginePostgres: {postgres.Engine{Options: "timezone=Asia/Kathmandu"}, postgres.Engine{Options: "timezone=America/St_Johns"}},
		dbtest.EngineMySQL:    {mysql.Engine{Options: "time_zone=%27%2B05:45%27"}, mysql.Engine{Options: "time_zone=%27-02:30%27&loc=Asia%2FKathmandu&parseTime=true"}},
	} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := placeOf(t, e.NewDatabase(t))
			p.deployed(t)
			var clocks [2]time.Time
			until := time.Date(2026, 3, 29, 1, 30, 0, 123456000, time.UTC) // skipped or doubled where clocks change
			m := addMap(t, p.global(t), "m")
			for i, engine := range engines {
				p.engine = engine
				g := p.global(t)
				err := g.Update(t.Context(), m.ID, func(tx store.Reader, now time.Time) (store.Delta, error) {
					clocks[i] = now
					if i == 0 {
						return store.Delta{Prepare: &store.Operation{ID: 1, Map: m, Started: now, LeaseUntil: until}}, nil
					}
					ops, err := tx.Operations(t.Context(), store.OperationQuery{})
					if err != nil || len(ops) != 1 {
						t.Errorf("Operations = %+v, %v", ops, err)
						return store.Delta{}, err
					}
					if !ops[0].Started.Equal(clocks[0]) || !ops[0].LeaseUntil.Equal(until) {
						t.Errorf("an operation started at %v with a lease until %v was read as %v and %v", clocks[0], until, ops[0].Started, ops[0].LeaseUntil)
					}
					return store.Delta{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			// Zones differ by hours; machines and servers here are one.
			if d := clocks[1].Sub(clocks[0]); d < 0 || d > time.Hour {
				t.Errorf("clocks of two sessions: %v and %v", clocks[0], clocks[1])
			}
			if d := time.Since(clocks[0]).Abs(); d > time.Hour {
				t.Errorf("clock of the store is %v off", d)
			}
		})
	}
}

// UPG-04: counters beyond 2^53 neither wrap nor lose digits.
func TestCountersAreWide(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t)
		p := placeOf(t, db)
		g := p.deployed(t)
		m := addMap(t, g, "m")
		pool := db.Open(t)
		mustExec(t, pool, fmt.Sprintf("UPDATE %s SET operation_seq = %d", table(t, e, "counters"), int64(1)<<53))
		mustExec(t, pool, fmt.Sprintf("UPDATE %s SET generation = %d", table(t, e, "shard_maps"), int64(1)<<53))
		s := shardway.Shard{ID: 1<<63 - 1, MapID: m.ID, Name: "s", Version: 1<<63 - 1}
		o := &store.Operation{ID: 1<<63 - 1, Map: m, Epoch: 1<<63 - 1, Steps: []store.Step{{Shard: s, After: &s}}}
		err := g.Update(t.Context(), m.ID, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{Prepare: o}, nil })
		if err != nil {
			t.Fatal(err)
		}
		err = g.View(t.Context(), func(tx store.Reader) error {
			ops, err := tx.Operations(t.Context(), store.OperationQuery{})
			if err == nil && (len(ops) != 1 || ops[0].Seq != 1<<53+1 || ops[0].ID != 1<<63-1 || ops[0].Epoch != 1<<63-1) {
				t.Errorf("operations = %+v", ops)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = g.Update(t.Context(), m.ID, func(store.Reader, time.Time) (store.Delta, error) { return store.Delta{Publish: o}, nil })
		if err != nil {
			t.Fatal(err)
		}
		state, err := g.Load(t.Context(), m, shardway.Range{}, func(shardway.MappingRow) error { return nil })
		if err != nil || state.Generation != 1<<53+1 || len(state.Shards) != 1 || state.Shards[0].Version != 1<<63-1 {
			t.Errorf("Load = %+v, %v", state, err)
		}
	})
}

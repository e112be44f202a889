package sqlstore

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// A range is read by the index from where it begins, wherever that is in a
// mapping, and mappings with given ids by these: reading through all the map
// takes a hundred times as long in a large one.
func TestLargeMapsAreNotReadThrough(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "global.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g, err := NewGlobal(pool, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Deploy(ctx, false); err != nil {
		t.Fatal(err)
	}
	at := shardway.Int64Key
	m := shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}
	s := shardway.Shard{ID: 2, MapID: 1, Name: "s", Version: 3, Location: shardway.Location{Engine: "sqlite", Servers: []shardway.Server{{Address: "a"}}}}
	o := &store.Operation{ID: 4, Map: m, Epoch: 1, Steps: []store.Step{{Shard: s, After: &s, Add: []shardway.Mapping{
		{ID: 5, MapID: 1, ShardID: 2, Range: shardway.Range{Low: at(10), High: at(20)}},
		{ID: 6, MapID: 1, ShardID: 2, Range: shardway.Range{Low: at(20), High: at(30)}},
	}}}}
	err = g.Update(ctx, 0, func(store.Reader, time.Time) (store.Delta, error) {
		return store.Delta{AddMap: &m, Prepare: o, Publish: o}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(what, text string, args []any, want string) {
		t.Helper()
		err := g.b.read(ctx, func(tx *transaction) error {
			return tx.query(ctx, `EXPLAIN QUERY PLAN `+text, args, func(rows *sql.Rows) error {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if strings.Contains(detail, "INDEX") && !strings.Contains(detail, want) || strings.Contains(detail, "SCAN") {
					t.Errorf("%s: %s, want %s", what, detail, want)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	text := func(q store.MappingQuery) (text string, args []any) {
		t.Helper()
		err := g.b.read(ctx, func(tx *transaction) error {
			sel, err := (&reader{t: tx}).selection(ctx, q)
			if err != nil {
				return err
			}
			text, args = `SELECT `+mappingRowColumns+` FROM {mappings} m WHERE `+strings.Join(sel.conditions, ` AND `), sel.args
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text, args
	}
	for what, within := range map[string]shardway.Range{
		"from the beginning of a mapping": {Low: at(20), High: at(25)},
		"from within a mapping":           {Low: at(15), High: at(25)},
		"from behind all":                 {Low: at(30), High: at(40)},
		"from before all":                 {Low: at(0), High: at(15)},
		"open":                            shardway.RangeFrom(at(20)),
	} {
		query, args := text(store.MappingQuery{Map: m, Within: within})
		plan(what, query+` ORDER BY m.low_key`, args, "low_key>?")
	}
	ids := make([]int64, 1000)
	condition, more := g.b.d.Among(`m.mapping_id`, ids)
	query, args := text(store.MappingQuery{Map: m, IDs: []shardway.MappingID{5}})
	plan("read by ids", query+` AND `+condition, append(args, more...), "(mapping_id=?)")
	query, args = text(store.MappingQuery{Map: m, ShardID: 2})
	plan("of a shard", query+` ORDER BY m.low_key LIMIT 10`, args, "(shard_id=?)")
	condition, more = g.b.d.Among(`mapping_id`, ids)
	plan("marked by ids", `UPDATE {mappings} SET op_id = 1 WHERE `+notByMap+`map_id = 1 AND op_id = 0 AND `+condition, more, "(mapping_id=?)")
}

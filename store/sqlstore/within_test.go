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
// mapping: reading through all the map before it takes a hundred times as long
// in a large one.
func TestWithinBeginsAtItsRange(t *testing.T) {
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
	for what, within := range map[string]shardway.Range{
		"from the beginning of a mapping": {Low: at(20), High: at(25)},
		"from within a mapping":           {Low: at(15), High: at(25)},
		"from behind all":                 {Low: at(30), High: at(40)},
		"from before all":                 {Low: at(0), High: at(15)},
		"open":                            shardway.RangeFrom(at(20)),
	} {
		err := g.b.read(ctx, func(tx *transaction) error {
			sel, err := (&reader{t: tx}).selection(ctx, store.MappingQuery{Map: m, Within: within})
			if err != nil {
				return err
			}
			text := `EXPLAIN QUERY PLAN SELECT ` + mappingRowColumns + ` FROM {mappings} m WHERE ` + strings.Join(sel.conditions, ` AND `) + ` ORDER BY m.low_key`
			return tx.query(ctx, text, sel.args, func(rows *sql.Rows) error {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				if !strings.Contains(detail, "low_key>?") {
					t.Errorf("%s: %s", what, detail)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

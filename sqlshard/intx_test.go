package sqlshard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/sqlshard"
)

// levels are the isolation levels that every engine has.
var levels = []sql.IsolationLevel{
	sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable,
}

// placeholder is the first one of an engine.
func (r *rig) placeholder() string {
	switch r.kind {
	case dbtest.EnginePostgres:
		return "$1"
	case dbtest.EngineSQLServer:
		return "@p1"
	default:
		return "?"
	}
}

// adds returns a body that adds a row to table item.
func (r *rig) adds(id int64) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO item (id, name) VALUES ("+r.placeholder()+", 'new')", id)
		return err
	}
}

// isolation returns the level of a transaction that has written, empty where the
// engine does not tell.
func (r *rig) isolation(tx *sql.Tx) (level string) {
	r.t.Helper()
	text := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SELECT upper(current_setting('transaction_isolation'))",
		dbtest.EngineMySQL:    "SELECT trx_isolation_level FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = CONNECTION_ID()",
	}[r.kind]
	if text == "" {
		return ""
	}
	if r.kind == dbtest.EngineMySQL { // its answers are up to 100 ms old
		if _, err := tx.ExecContext(r.t.Context(), "SELECT SLEEP(0.12)"); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := tx.QueryRowContext(r.t.Context(), text).Scan(&level); err != nil {
		r.t.Fatal(err)
	}
	return level
}

// items counts the rows that were added on a shard.
func (r *rig) items(shard string) (n int) {
	r.t.Helper()
	if err := r.dbs[shard].Open(r.t).QueryRow("SELECT COUNT(*) FROM item WHERE id > 0").Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

var once = retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}

func eachEngine(t *testing.T, test func(t *testing.T, r *rig, db *sqlshard.DB[int64])) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		test(t, r, r.open(sqlshard.Config{}))
	})
}

// A unit is done on the shard that has the key, in every isolation level; after
// a move it is done on the other one, with one question to the store.
func TestInTx(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		id := int64(0)
		for _, shard := range []string{"a", "b"} {
			for _, level := range levels {
				id++
				err := db.InTx(t.Context(), 7, &sqlshard.TxOptions{Isolation: level}, func(ctx context.Context, tx *sql.Tx) error {
					if err := r.adds(id)(ctx, tx); err != nil {
						return err
					}
					if got := r.isolation(tx); level != sql.LevelDefault && got != "" && got != strings.ToUpper(level.String()) {
						t.Errorf("asked for %v, got %s", level, got)
					}
					return nil
				})
				if err != nil {
					t.Fatalf("%v on %s: %v", level, shard, err)
				}
			}
			if n := r.items(shard); n != len(levels) {
				t.Errorf("shard %s has %d rows, want %d", shard, n, len(levels))
			}
			quiet(t, db)
			r.move(7, "b")
		}
		before := r.source.lookups.Load()
		ctx, err := shardway.WithKey(t.Context(), int64(7))
		if err != nil {
			t.Fatal(err)
		}
		if err := db.ByContext().InTx(ctx, nil, r.adds(id+1)); err != nil {
			t.Fatal(err)
		}
		if n := r.source.lookups.Load() - before; n != 1 {
			t.Errorf("a stale route costs %d questions", n)
		}
		opened := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) })
		if most := 2; r.kind != dbtest.EngineSQLServer && opened > most {
			t.Errorf("%d sessions were opened, want %d: transactions leave them clean", opened, most)
		}
	})
}

// Each attempt of a unit looks its key up once, and anew: the route of the first
// one is not that of the second.
func TestInTxLookups(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EngineSQLite)
	m := r.handle()
	db, err := sqlshard.New(m, sqlshard.Config{Engines: []shardway.Engine{r.engine}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	_ = opened(t, db, 7, "a").Close()
	for attempts := range 3 {
		before, calls := m.Map().Stats(), 0
		err := db.WithRetry(quick).InTx(t.Context(), 7, nil, func(context.Context, *sql.Tx) error {
			if calls++; calls <= attempts {
				return driver.ErrBadConn
			}
			return nil
		})
		after := m.Map().Stats()
		if n := int(after.Hits - before.Hits); err != nil || calls != attempts+1 || n != calls || after.Misses != before.Misses {
			t.Errorf("%d attempts took %d lookups: %v", calls, n, err)
		}
	}
}

// While the mapping is offline nothing is begun, and fn is not called.
func TestInTxOffline(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, r *rig, db *sqlshard.DB[int64]) {
		_ = opened(t, db, 7, "a").Close()
		r.setStatus(7, shardway.Offline)
		for range 2 {
			err := db.InTx(t.Context(), 7, nil, func(context.Context, *sql.Tx) error {
				t.Error("fn was called")
				return nil
			})
			var lookup *shardway.LookupError
			if !errors.Is(err, shardway.ErrMappingOffline) || !errors.As(err, &lookup) || lookup.Key != "7" || lookup.Shard != "a" {
				t.Errorf("an offline mapping: %v", err)
			}
		}
		quiet(t, db)
	})
}

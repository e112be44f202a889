package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/pgxshard"
)

// kinds are statements of every kind, each of which leaves a trace if it runs.
var kinds = map[string]func(ctx context.Context, db *pgxshard.DB[int64], key int64) error{
	"update": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		tag, err := db.Exec(ctx, key, "UPDATE item SET n = n + $1 WHERE id = $2", 1, 0)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("tag %v", tag)
		}
		return err
	},
	"update without arguments": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, "UPDATE item SET n = n + 1 WHERE id = 0")
		return err
	},
	"insert returning": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		var id int64
		return db.QueryRow(ctx, key, "INSERT INTO item (id) VALUES ($1) RETURNING id", copied.Add(1)).Scan(&id)
	},
	"nextval": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		var n int64
		return db.QueryRow(ctx, key, "SELECT nextval($1::text::regclass)", "counter").Scan(&n)
	},
	"select": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		rows, err := db.Query(ctx, key, "SELECT name, nextval('counter') FROM item WHERE id = $1", 0)
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var name string
			err := row.Scan(&name, nil)
			return name, err
		})
		return err
	},
	"with update": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, "WITH u AS (UPDATE item SET n = n + 1 WHERE id = $1 RETURNING n) SELECT n FROM u", 0)
		return err
	},
	"several statements": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, "UPDATE item SET n = n + 1 WHERE id = 0; SELECT nextval('counter'); INSERT INTO item (id) VALUES (-1) ON CONFLICT DO NOTHING")
		return err
	},
	"batch": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		b := &pgx.Batch{}
		b.Queue("UPDATE item SET n = n + $1", 1)
		var n int64
		b.Queue("SELECT nextval('counter')").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		if err := db.SendBatch(ctx, key, b).Close(); err != nil {
			return err
		}
		if n == 0 {
			return errors.New("the function of a query was not called")
		}
		return nil
	},
	"copy": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		id := copied.Add(1)
		n, err := db.CopyFrom(ctx, key, pgx.Identifier{"item"}, []string{"id", "name"}, pgx.CopyFromRows([][]any{{id, "copied"}}))
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows copied", n)
		}
		return err
	},
	"transaction": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		return db.InTx(ctx, key, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE item SET n = n + $1 WHERE id = $2", 1, 0)
			return err
		})
	},
	"vacuum": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, "/* alone */ VACUUM item")
		return err
	},
	"create index concurrently": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, fmt.Sprintf("CREATE INDEX CONCURRENTLY i%d ON item (name)", copied.Add(1)))
		return err
	},
	"found out to be alone": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		_, err := db.Exec(ctx, key, "DISCARD ALL")
		if err == nil {
			_, err = db.Exec(ctx, key, "UPDATE item SET n = n + 1")
		}
		return err
	},
	"acquired": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		conn, err := db.Acquire(ctx, key)
		if err != nil {
			return err
		}
		defer conn.Release()
		_, err = conn.Exec(ctx, "UPDATE item SET n = n + $1", 1)
		return err
	},
	"held": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		conn, err := db.Hold(ctx, key)
		if err != nil {
			return err
		}
		defer conn.Release()
		_, err = conn.Conn().Exec(ctx, "UPDATE item SET n = n + $1", 1)
		return err
	},
}

// trace is everything that the kinds leave behind on a shard.
func (r *rig) trace(shard string) string {
	r.t.Helper()
	return fmt.Sprint(
		r.one(shard, "SELECT sum(n)::bigint FROM item"), r.one(shard, "SELECT count(*) FROM item"),
		r.one(shard, "SELECT last_value + is_called::int FROM counter"), r.one(shard, "SELECT count(*) FROM pg_indexes WHERE tablename = 'item'"),
		r.one(shard, "SELECT coalesce(vacuum_count, 0) FROM pg_stat_user_tables WHERE relname = 'item'"))
}

// Every exec mode with every kind of statement, on a key that the shard owns, on
// one in a hole that the cache does not know of, and on one that is on another
// shard by now: where the validation fails nothing runs, and elsewhere it runs
// once.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			r := newEmptyRig(t)
			r.addShard("a")
			r.addShard("b")
			db := r.open(pgxshard.Config{Configure: withMode(mode)})
			key := int64(0)
			for name, run := range kinds {
				key += 10
				r.addRange("a", key, key+10)
				t.Run(name, func(t *testing.T) {
					testKind(t, r, db, key, func() error { return run(t.Context(), db, key) })
				})
			}
		})
	}
}

func testKind(t *testing.T, r *rig, db *pgxshard.DB[int64], key int64, run func() error) {
	for range 2 { // the second time everything is cached
		before, other := r.trace("a"), r.trace("b")
		if err := run(); err != nil {
			t.Fatalf("owned: %v", err)
		}
		eventually(t, "traces on shard a", func() bool { return r.trace("a") != before }) // statistics come late
		same(t, r, "b", other)
	}

	r.offline(key)
	before := r.trace("a")
	refused(t, run(), shardway.ErrMappingOffline)
	same(t, r, "a", before)

	r.move(key, "b")
	before, other := r.trace("a"), r.trace("b")
	if err := run(); err != nil {
		t.Fatalf("moved: %v", err)
	}
	eventually(t, "traces on shard b", func() bool { return r.trace("b") != other })
	same(t, r, "a", before)

	r.offline(key)
	r.do(catalogDelete(r.mapping(key)))
	other = r.trace("b")
	refused(t, run(), shardway.ErrKeyNotMapped)
	same(t, r, "a", before)
	same(t, r, "b", other)
	quiet(t, db)
}

func same(t *testing.T, r *rig, shard, before string) {
	t.Helper()
	if after := r.trace(shard); after != before {
		t.Fatalf("something ran on shard %s: %s → %s", shard, before, after)
	}
}

// An error of the caller's that reads like that of a failed validation is the
// caller's all the same, in every exec mode and kind of statement.
func TestErrorsThatLookAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const alike = "SELECT (name || 'shardway: mapping is not here')::int FROM item"
	for _, mode := range modes {
		db := r.open(pgxshard.Config{Configure: withMode(mode)})
		b := &pgx.Batch{}
		b.Queue(alike)
		for name, err := range map[string]error{
			"Exec":      second(db.Exec(t.Context(), 5, alike)),
			"several":   second(db.Exec(t.Context(), 5, "SELECT 1; "+alike)),
			"QueryRow":  query(db.QueryRow(t.Context(), 5, alike)),
			"SendBatch": db.SendBatch(t.Context(), 5, b).Close(),
			"InTx":      db.InTx(t.Context(), 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error { return query(tx.QueryRow(ctx, alike)) }),
		} {
			var said *pgconn.PgError
			if !errors.As(err, &said) || said.Code != "22P02" || errors.Is(err, shardway.ErrStale) || errors.As(err, new(*shardway.LookupError)) {
				t.Errorf("%v, %s: %v", mode, name, err)
			}
		}
	}
	if n := r.source.lookups.Load(); n > int64(len(modes)) {
		t.Errorf("the store was asked %d times", n)
	}
}

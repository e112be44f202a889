package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/retry"
)

// writers increment the row of a key, each in another way.
var writers = map[string]func(ctx context.Context, db *pgxshard.DB[int64], key int64) error{
	"Exec": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		return second(db.Exec(ctx, key, "UPDATE item SET n = n + 1 WHERE id = $1", key))
	},
	"QueryRow": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		return query(db.QueryRow(ctx, key, "UPDATE item SET n = n + 1 WHERE id = $1 RETURNING n", key))
	},
	"SendBatch": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue("UPDATE item SET n = n + 1 WHERE id = $1", key)
		return db.SendBatch(ctx, key, b).Close()
	},
	"several": func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		return second(db.Exec(ctx, key, fmt.Sprintf("SELECT 1; UPDATE item SET n = n + 1 WHERE id = %d", key)))
	},
	"read committed":  inTx(pgx.ReadCommitted),
	"repeatable read": inTx(pgx.RepeatableRead),
	"serializable":    inTx(pgx.Serializable),
}

// inTx increments in a transaction that takes its time between reading and
// writing.
func inTx(level pgx.TxIsoLevel) func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
	return func(ctx context.Context, db *pgxshard.DB[int64], key int64) error {
		return db.InTx(ctx, key, pgx.TxOptions{IsoLevel: level}, func(ctx context.Context, tx pgx.Tx) error {
			if err := query(tx.QueryRow(ctx, "SELECT n FROM item WHERE id = $1", key)); err != nil {
				return err
			}
			return second(tx.Exec(ctx, "UPDATE item SET n = n + 1 WHERE id = $1", key))
		})
	}
}

// Writers on a hot key and on others of its mapping, while the mapping moves
// between two shards and its rows are copied: no write that was acknowledged is
// lost, whatever it was made with. SHARDWAY_TEST_MOVES sets the number of moves.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	moves := 40
	if n, err := strconv.Atoi(os.Getenv("SHARDWAY_TEST_MOVES")); err == nil {
		moves = n
	}
	r := newRig(t)
	for key := range int64(raceKeys) {
		r.exec("a", "INSERT INTO item (id) VALUES ($1)", key+1)
	}
	db := r.open(pgxshard.Config{Retry: retry.Policy{Backoff: retry.Backoff{Initial: time.Millisecond, Step: time.Millisecond}}})
	w := race{counts: map[string]*atomic.Int64{}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for name, write := range writers {
		n := &atomic.Int64{}
		w.counts[name] = n
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := w.once(t.Context(), db, write, i, n); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	shards := [2]string{"a", "b"}
	for i := range moves {
		busy := w.counts["Exec"].Load()
		eventually(t, "writes between moves", func() bool { return t.Failed() || w.counts["Exec"].Load() > busy })
		if t.Failed() {
			break
		}
		r.moveRows(shards[i%2], shards[(i+1)%2])
	}
	stop()
	all.Wait()
	for key := range int64(raceKeys) {
		want := w.acknowledged[key].Load()
		if n := r.one(shards[moves%2], "SELECT n FROM item WHERE id = $1", key+1); n != want {
			t.Errorf("key %d: %d writes were acknowledged, %d are there", key+1, want, n)
		}
	}
	for name, n := range w.counts {
		t.Logf("%s: %d writes", name, n.Load())
		if n.Load() == 0 {
			t.Errorf("%s: no write", name)
		}
	}
	t.Logf("%d moves, %d refusals", moves, w.refusals.Load())
}

const raceKeys = 3

// race is what writers count.
type race struct {
	acknowledged [raceKeys]atomic.Int64
	refusals     atomic.Int64
	counts       map[string]*atomic.Int64
}

// once makes one write, most often on the hot key.
func (w *race) once(ctx context.Context, db *pgxshard.DB[int64], write func(ctx context.Context, db *pgxshard.DB[int64], key int64) error, i int, n *atomic.Int64) error {
	key := 0
	if i%3 == 0 {
		key = i / 3 % raceKeys
	}
	err := write(ctx, db, int64(key)+1)
	switch {
	case err == nil:
		w.acknowledged[key].Add(1)
		n.Add(1)
	case expected(err):
		w.refusals.Add(1)
	default:
		return err
	}
	return nil
}

// moveRows moves the mapping of the keys to another shard, and their rows while
// it is offline.
func (r *rig) moveRows(from, to string) {
	r.t.Helper()
	r.offline(5)
	for key := range int64(raceKeys) {
		n := r.one(from, "SELECT n FROM item WHERE id = $1", key+1)
		r.exec(to, "INSERT INTO item (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", key+1, n)
	}
	id, online := r.shards[to].ID, shardway.Online
	r.do(catalog.UpdateMapping{Mapping: r.mapping(5), ShardID: &id, Status: &online})
}

// expected reports whether a writer may be refused so while a mapping moves.
func expected(err error) bool {
	var e *pgconn.PgError
	return errors.Is(err, shardway.ErrMappingOffline) || errors.Is(err, shardway.ErrStale) || errors.Is(err, shardway.ErrUnavailable) ||
		errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

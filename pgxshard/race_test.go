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
	const keys = 3
	for key := range int64(keys) {
		r.exec("a", "INSERT INTO item (id) VALUES ($1)", key+1)
	}
	db := r.open(pgxshard.Config{Retry: retry.Policy{Backoff: retry.Backoff{Initial: time.Millisecond, Step: time.Millisecond}}})
	ctx, stop := context.WithCancel(t.Context())
	var acknowledged [keys + 1]atomic.Int64
	var refusals atomic.Int64
	counts := map[string]*atomic.Int64{}
	var all sync.WaitGroup
	for name, write := range writers {
		n := &atomic.Int64{}
		counts[name] = n
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := int64(1) // hot
				if i%3 == 0 {
					key = 1 + int64(i/3)%keys
				}
				err := write(t.Context(), db, key)
				switch {
				case err == nil:
					acknowledged[key].Add(1)
					n.Add(1)
				case expected(err):
					refusals.Add(1)
				default:
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	shards := []string{"a", "b"}
	for i := range moves {
		from, to := shards[i%2], shards[(i+1)%2]
		busy := counts["Exec"].Load()
		eventually(t, "writes between moves", func() bool { return t.Failed() || counts["Exec"].Load() > busy })
		r.setStatus(5, shardway.Offline)
		for key := range int64(keys) {
			n := r.one(from, "SELECT n FROM item WHERE id = $1", key+1)
			r.exec(to, "INSERT INTO item (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", key+1, n)
		}
		id, online := r.shards[to].ID, shardway.Online
		r.do(updateShard(r.mapping(5), id, online))
		if t.Failed() {
			break
		}
	}
	stop()
	all.Wait()
	for key := range int64(keys) {
		want := acknowledged[key+1].Load()
		if n := r.one(shards[moves%2], "SELECT n FROM item WHERE id = $1", key+1); n != want {
			t.Errorf("key %d: %d writes were acknowledged, %d are there", key+1, want, n)
		}
	}
	for name, n := range counts {
		t.Logf("%s: %d writes", name, n.Load())
		if n.Load() == 0 {
			t.Errorf("%s: no write", name)
		}
	}
	t.Logf("%d moves, %d refusals", moves, refusals.Load())
}

// expected reports whether a writer may be refused so while a mapping moves.
func expected(err error) bool {
	var e *pgconn.PgError
	return errors.Is(err, shardway.ErrMappingOffline) || errors.Is(err, shardway.ErrStale) || errors.Is(err, shardway.ErrUnavailable) ||
		errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

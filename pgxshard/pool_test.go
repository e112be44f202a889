package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/pgxshard"
)

// POOL-01: many shards on one server share a bound; idle sessions of one make
// room for another, and callers wait instead of being refused by the server.
func TestServerLimit(t *testing.T) {
	t.Parallel()
	const shards, limit = 12, 5
	r := newEmptyRig(t)
	for i := range int64(shards) {
		name := fmt.Sprint("s", i)
		r.addShard(name)
		r.addRange(name, i*10, i*10+10)
	}
	user, password := dbtest.Postgres(t).NewUser(t, "app")
	for i := range shards {
		r.exec(fmt.Sprint("s", i), fmt.Sprintf(`GRANT ALL ON item TO %q`, user))
		r.grant(fmt.Sprint("s", i), user)
	}
	db := r.open(pgxshard.Config{MaxOpenPerServer: limit, Credentials: shardway.Credentials{User: user, Password: password}})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 30 {
				if _, err := db.Exec(t.Context(), rand.Int64N(shards*10), "UPDATE item SET n = n + 1"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { all.Wait(); stop() }()
	most := int64(0)
	for ctx.Err() == nil {
		most = max(most, r.one("s0", "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", user))
	}
	// One that was evicted may still be on its way out at the server.
	if most > limit+2 {
		t.Errorf("%d sessions at once, limit %d", most, limit)
	}
	if n := sum(db, func(p pgxshard.PoolStats) int { return p.Open }); n > limit {
		t.Errorf("%d sessions are open at last, limit %d", n, limit)
	}
}

// POOL-05: a pool that is full is not a server that is away, and nobody else
// suffers from it.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1, MaxWait: 20 * time.Millisecond})
	conn, err := db.Acquire(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		_, err := db.Exec(t.Context(), 5, "SELECT 1")
		refused(t, err, shardway.ErrPoolExhausted)
		if errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("a full pool counts as a server that is away: %v", err)
		}
	}
	if _, err := db.Exec(t.Context(), 150, "SELECT 1"); err != nil {
		t.Errorf("another shard: %v", err)
	}
	conn.Release()
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Error(err)
	}
	if n := r.source.lookups.Load(); n > 2 {
		t.Errorf("the store was asked %d times", n)
	}
}

// POOL-03: connecting that is given up leaves no session behind.
func TestGivenUpWhileConnecting(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 4})
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(5*time.Millisecond))))
			defer cancel()
			_, _ = db.Exec(ctx, 5, "SELECT pg_sleep(0.01)")
		})
	}
	all.Wait()
	quiet(t, db)
	eventually(t, "sessions given up are closed", func() bool {
		return proxy.Live() == sum(db, func(p pgxshard.PoolStats) int { return p.Idle })
	})
}

// POOL-09: rows keep their session until they are closed, once is enough, and
// whatever breaks them off gives it back: an error of Scan, a destination that
// panics, the end of the context.
func TestRowsGiveBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1, MaxWait: 5 * time.Second})
	ctx := t.Context()
	const many = "SELECT generate_series(1, 100000)"
	open := func(ctx context.Context) pgx.Rows {
		t.Helper()
		rows, err := db.Query(ctx, 5, many)
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		return rows
	}
	rows := open(ctx)
	rows.Close()
	rows.Close()
	rows = open(ctx)
	var text struct{}
	if err := rows.Scan(&text); err == nil {
		t.Error("Scan into nothing")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = db.QueryRow(ctx, 5, "SELECT 1").Scan(panics{})
	}()
	short, cancel := context.WithCancel(ctx)
	rows = open(short)
	cancel()
	for rows.Next() {
	}
	if rows.Err() == nil {
		t.Error("rows survived the end of their context")
	}
	if err := query(db.QueryRow(ctx, 5, "SELECT 1 WHERE false")); !errors.Is(err, pgx.ErrNoRows) {
		t.Error(err)
	}
	b := &pgx.Batch{}
	b.Queue(many)
	br := db.SendBatch(ctx, 5, b)
	if err := errors.Join(br.Close(), br.Close()); err != nil {
		t.Error(err)
	}
	if err := query(db.QueryRow(ctx, 5, "SELECT 1")); err != nil {
		t.Error(err)
	}
	quiet(t, db)
}

type panics struct{}

func (panics) Scan(any) error { panic("boom") }

// What a statement leaves on its session costs the session.
func TestSessionHygiene(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1})
	ctx := t.Context()
	for _, sql := range []string{"SET search_path = elsewhere", "CREATE TEMP TABLE item (id int)", "PREPARE x AS SELECT 1", "SELECT 1; SET search_path = elsewhere"} {
		if _, err := db.Exec(ctx, 5, sql); err != nil {
			t.Fatal(err)
		}
		if err := query(db.QueryRow(ctx, 5, "SELECT n FROM item")); err != nil {
			t.Errorf("after %s: %v", sql, err)
		}
	}
}

// SEC: the password is in no error, and a rotated one is asked for.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	asked := 0
	db := r.open(pgxshard.Config{Credentials: shardway.Credentials{User: r.login.User, PasswordFunc: func(context.Context) (string, error) {
		if asked++; asked == 1 {
			return "s3cr3t", nil
		}
		return r.login.Password, nil
	}}})
	_, err := db.Exec(t.Context(), 5, "SELECT 1")
	refused(t, err, shardway.ErrUnavailable)
	if text := err.Error(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "28P01") || strings.Contains(text, "\n") {
		t.Errorf("%s", text)
	}
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); err != nil {
		t.Errorf("with the new password: %v", err)
	}
}

// A shard that has moved to another database: the pool of the old one is closed,
// and a DB that is closed says so.
func TestClose(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{Configure: func(*pgxpool.Config) error { return nil }})
	conn, err := db.Acquire(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	_ = db.Close()
	_, err = db.Exec(t.Context(), 5, "SELECT 1")
	refused(t, err, shardway.ErrUnavailable)
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("a session in use: %v", err)
	}
	conn.Release()
	bad := errors.New("no")
	db = r.open(pgxshard.Config{Configure: func(*pgxpool.Config) error { return bad }})
	if _, err := db.Exec(t.Context(), 5, "SELECT 1"); !errors.Is(err, bad) {
		t.Errorf("a configuration that is refused: %v", err)
	}
}

// POOL-06: giving up one statement never hits the next one on the session.
func TestCancelHitsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{MaxOpenPerShard: 1})
	for range 150 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(time.Millisecond))))
		_ = query(db.QueryRow(ctx, 5, "SELECT 1 FROM pg_sleep(0.0005)"))
		cancel()
		if err := query(db.QueryRow(t.Context(), 5, "SELECT 1 FROM pg_sleep(0.0005)")); err != nil {
			t.Fatal(err)
		}
	}
}

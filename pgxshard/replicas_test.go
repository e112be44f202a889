package pgxshard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/pgxshard"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology/pgprobe"
)

// replicas is a shard "a" with the keys [0, 100) on a real primary, server 0, and
// two standbys, each behind a proxy. The application's login has the rights that
// the fence asks for and no more.
func replicas(t *testing.T) (*rig, *dbtest.PostgresSet) {
	t.Helper()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	r := newEmptyRig(t)
	d := set.NewDatabase(t)
	d.Host, d.Port = set.Server(0).Host(), set.Server(0).Port()
	user, password := set.Server(0).NewUser(t, "app")
	_, at, _, err := postgres.Parse(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	r.dbs["a"] = d
	r.shards["a"] = r.do(catalog.AddShard{Map: r.m, Name: "a", Location: at}).Shards[0]
	r.addRange("a", 0, 100)
	conn, err := pgx.Connect(t.Context(), d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	r.admin["a"] = conn
	r.exec("a", "CREATE TABLE item (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0)")
	r.exec("a", "INSERT INTO item (id) VALUES (0)")
	r.exec("a", fmt.Sprintf(`GRANT ALL ON item TO %q`, user))
	r.grant("a", user)
	for _, sql := range pgprobe.Grants(user, pgprobe.Options{}) {
		r.exec("a", sql)
	}
	for i := 1; i < len(set.Servers()); i++ {
		set.AwaitReplay(t, i)
	}
	r.login = shardway.Credentials{User: user, Password: password}
	r.source.at = func(l shardway.Location) shardway.Location {
		l.Servers = nil
		for i := range set.Servers() {
			l.Servers = append(l.Servers, shardway.Server{Address: set.Addr(i), Tags: map[string]string{"zone": fmt.Sprint("z", i)}})
		}
		return l
	}
	return r, set
}

// grant gives a login the rights that the fence asks for.
func (r *rig) grant(shard, user string) {
	r.t.Helper()
	r.exec(shard, fmt.Sprintf(`GRANT USAGE ON SCHEMA shardway TO %q`, user))
	r.exec(shard, fmt.Sprintf(`GRANT SELECT, UPDATE (fence) ON shardway.local_mappings TO %q`, user))
	r.exec(shard, fmt.Sprintf(`GRANT SELECT ON shardway.local_shards TO %q`, user))
}

var watched = pgxshard.ServerConfig{LocalThreshold: time.Minute, Heartbeat: 500 * time.Millisecond}

// port is the server's own port, whichever way one came there.
func port(ctx context.Context, row interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (n int, err error) {
	err = row.QueryRow(ctx, "SELECT inet_server_port()").Scan(&n)
	return n, err
}

// Reads go to servers that suit the criteria, validated without a lock; writes
// and their locks to the primary. A transaction on a DB for reads is read-only.
func TestCriteria(t *testing.T) {
	t.Parallel()
	r, set := replicas(t)
	db := r.open(pgxshard.Config{Servers: watched, Retry: quick})
	ctx := t.Context()
	if _, err := db.Exec(ctx, 5, "UPDATE item SET n = n + 1"); err != nil {
		t.Fatal(err)
	}
	primary, secondary := set.Server(0).Port(), set.Server(2).Port()
	if p, err := port(ctx, keyed{db, 5}); err != nil || p != primary {
		t.Errorf("a read without criteria: port %d, %v", p, err)
	}
	reads := db.With(selection.Secondary(selection.Tags{"zone": "z2"}))
	for range 3 {
		if p, err := port(ctx, keyed{reads, 5}); err != nil || p != secondary {
			t.Errorf("a read with criteria: port %d, %v", p, err)
		}
	}
	err := reads.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		p, err := port(ctx, tx)
		if p != secondary {
			t.Errorf("a transaction with criteria: port %d", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := reads.Exec(ctx, 5, "UPDATE item SET n = n + 1"); err == nil {
		t.Error("a secondary took a write")
	}
	r.offline(5)
	set.AwaitReplay(t, 2)
	refused(t, query(reads.QueryRow(ctx, 5, "SELECT 1")), shardway.ErrMappingOffline)
	e, err := reads.Servers(ctx, "a")
	if err != nil || len(e.Servers) != 3 {
		t.Errorf("%v, %v", e, err)
	}
}

// The primary dies: a secondary is read at once, a transaction waits for the new
// primary and is done there, and the former primary gets no write when it is
// back.
func TestFailover(t *testing.T) {
	t.Parallel()
	r, set := replicas(t)
	db := r.open(pgxshard.Config{Servers: watched, Retry: retry.Policy{Backoff: retry.Backoff{Initial: 50 * time.Millisecond, Step: 50 * time.Millisecond, Max: time.Second}, MaxElapsed: time.Minute}})
	ctx := t.Context()
	write := func() error {
		return db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			return second(tx.Exec(ctx, "UPDATE item SET n = n + 1"))
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	former, err := db.Acquire(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer former.Release()
	set.AwaitReplay(t, 1)
	set.AwaitReplay(t, 2)
	set.Kill(t, 0)
	if err := query(db.With(selection.SecondaryPreferred()).QueryRow(ctx, 5, "SELECT n FROM item")); err != nil {
		t.Errorf("reading without a primary: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- write() }()
	set.Promote(t, 1)
	if err := <-done; err != nil && !errors.Is(err, retry.ErrCommitUnknown) {
		t.Fatalf("writing over a failover: %v", err)
	}
	if p, err := port(ctx, keyed{db, 5}); err != nil || p != set.Server(1).Port() {
		t.Errorf("after the failover: port %d, %v", p, err)
	}
	var demoted *shardway.DemotedError
	if _, err := former.Exec(ctx, "UPDATE item SET n = n + 1"); !errors.As(err, &demoted) || demoted.Server != set.Addr(0) {
		t.Errorf("a session of the former primary: %v", err)
	}
}

// The application's login may lock a mapping and not change it.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user, password := dbtest.Postgres(t).NewUser(t, "app")
	for _, shard := range []string{"a", "b"} {
		r.exec(shard, fmt.Sprintf(`GRANT ALL ON item TO %q`, user))
		r.grant(shard, user)
	}
	db := r.open(pgxshard.Config{Credentials: shardway.Credentials{User: user, Password: password}})
	ctx := t.Context()
	if _, err := db.Exec(ctx, 5, "UPDATE item SET n = n + 1"); err != nil {
		t.Fatal(err)
	}
	if err := db.InTx(ctx, 5, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		return second(tx.Exec(ctx, "UPDATE item SET n = n + 1"))
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Hold(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	conn.Release()
	for _, sql := range []string{
		"UPDATE shardway.local_mappings SET status = 0", "DELETE FROM shardway.local_mappings",
		"UPDATE shardway.local_mappings SET fence = 1",
	} {
		if _, err := db.Exec(ctx, 5, sql); err == nil {
			t.Errorf("%s was let through", sql)
		}
	}
	r.exec("a", fmt.Sprintf(`REVOKE UPDATE (fence) ON shardway.local_mappings FROM %q`, user))
	_, err = db.Exec(ctx, 5, "UPDATE item SET n = n + 1")
	refused(t, err, shardway.ErrUnavailable)
	if err := query(db.QueryRow(ctx, 5, "SELECT n FROM item")); err != nil {
		t.Errorf("a read without the right to lock: %v", err)
	}
}

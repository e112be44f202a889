package sqlshard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// P2 and P3: add on several shards, look up, open a connection. VAL-01: shards
// that differ only in their database get each their own writes.
func TestOpenConnectionForKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		for i := range 3 {
			a, b := opened(t, db, 7, "a"), opened(t, db, 150, "b")
			if a.Route().MappingID != r.mapping(7).ID || a.Server() != r.shards["a"].Location.Servers[0].Address {
				t.Errorf("route %+v on %q", a.Route(), a.Server())
			}
			exec(t, a, "INSERT INTO item (id, name) VALUES ("+string(rune('1'+i))+", 'written by key 7')")
			for _, conn := range []*sqlshard.Conn{a, b} {
				if err := errors.Join(conn.Close(), conn.Close()); err != nil {
					t.Error("closing twice:", err)
				}
			}
		}
		quiet(t, db)
		if n := r.source.lookups.Load(); n != 2 {
			t.Errorf("the store was asked %d times for two mappings", n)
		}
		if opened := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) }); opened != 2 {
			t.Errorf("%d sessions were opened, want one on each shard", opened)
		}
		for name, want := range map[string]int{"a": 4, "b": 1} {
			var n int
			if err := r.dbs[name].Open(t).QueryRow("SELECT count(*) FROM item").Scan(&n); err != nil || n != want {
				t.Errorf("shard %q has %d rows, %v, want %d", name, n, err, want)
			}
		}
		refused(t, db, 200, shardway.ErrKeyNotMapped)
	})
}

// P20 and P21: a mapping that is offline gets no new connection, pooled
// sessions included; one that is open already is ended where the engine shows
// whose it is, and survives elsewhere. P14: a change makes
// what is cached stale, which costs one look-up and is not noticed else.
func TestOffline(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db, trusting := r.open(sqlshard.Config{}), r.open(sqlshard.Config{Validation: sqlshard.None})
		open := opened(t, db, 7, "a")
		defer open.Close()
		_ = opened(t, db, 7, "a").Close()
		_ = opened(t, trusting, 7, "a").Close()

		r.setStatus(7, shardway.Offline)
		asked := r.source.lookups.Load()
		if refused(t, db, 7, shardway.ErrMappingOffline); r.source.lookups.Load() != asked+1 {
			t.Errorf("the store was asked %d times", r.source.lookups.Load()-asked)
		}
		asked = r.source.lookups.Load()
		if refused(t, db, 8, shardway.ErrMappingOffline); r.source.lookups.Load() != asked {
			t.Error("the store was asked although the shard says that the mapping is offline")
		}
		_ = opened(t, trusting, 7, "a").Close()
		if e == dbtest.EnginePostgres {
			movedAway(t, open)
		} else {
			on(t, open, "a")
		}
		_ = opened(t, db, 150, "b").Close()

		r.setStatus(7, shardway.Online)
		asked = r.source.lookups.Load()
		_ = opened(t, db, 7, "a").Close()
		_ = opened(t, db, 7, "a").Close()
		if n := r.source.lookups.Load() - asked; n != 1 {
			t.Errorf("back online, the store was asked %d times", n)
		}
	})
}

// A mapping moved by somebody else: one look-up, and the connection is on the
// new shard, although pooled sessions to the old one are open and well.
func TestStaleAfterMove(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		_ = opened(t, db, 7, "a").Close()
		r.move(7, "b")
		asked := r.source.lookups.Load()
		_ = opened(t, db, 7, "b").Close()
		_ = opened(t, db, 8, "b").Close()
		if n := r.source.lookups.Load() - asked; n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
		r.do(catalog.SplitMapping{Mapping: r.mapping(7), At: shardway.Int64Key(50)}) // P14
		asked = r.source.lookups.Load()
		_ = opened(t, db, 7, "b").Close()
		_ = opened(t, db, 60, "b").Close()
		if n := r.source.lookups.Load() - asked; n != 2 {
			t.Errorf("after a split the store was asked %d times for two mappings", n)
		}
		for _, p := range db.Stats().Pools {
			if p.Shard == "a" && p.ValidationFailures != 1 || p.Shard == "b" && p.ValidationFailures == 0 {
				t.Errorf("validation failures: %+v", p)
			}
		}
		quiet(t, db)
	})
}

// A shard that has not what the map says it has: one look-up, one more
// attempt, then an error that says so.
func TestShardWithoutTheMapping(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		_ = opened(t, db, 7, "a").Close()
		tables := map[dbtest.Engine]string{dbtest.EngineSQLite: "shardway_", dbtest.EngineMySQL: "shardway_"}[e]
		if tables == "" {
			tables = "shardway."
		}
		pool := r.dbs["a"].Open(t)
		if _, err := pool.Exec("DELETE FROM " + tables + "local_mappings"); err != nil {
			t.Fatal(err)
		}
		asked := r.source.lookups.Load()
		e1 := refused(t, db, 7, shardway.ErrStale)
		if n := r.source.lookups.Load() - asked; n != 1 || e1.Shard != "a" || e1.Server == "" {
			t.Errorf("the store was asked %d times; %v", n, e1.Error())
		}
		if _, err := pool.Exec("DROP TABLE " + tables + "local_mappings"); err != nil {
			t.Fatal(err)
		}
		e2 := refused(t, db, 7, shardway.ErrNoStore)
		if e2.Shard != "a" || !strings.Contains(e2.Error(), `shard "a"`) {
			t.Errorf("the error does not name the shard: %v", e2.Error())
		}
		_ = opened(t, db, 150, "b").Close()
		quiet(t, db)
	})
}

// S9, and MAP-06: a shard is opened by name, validated as the shard it was
// when it was read, and followed to its new location, where the old pool is
// closed.
func TestOpenConnectionForShard(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		open := func(shard string, want error) *sqlshard.Conn {
			t.Helper()
			conn, err := db.OpenConnectionForShard(t.Context(), shard)
			if !errors.Is(err, want) {
				t.Fatalf("shard %q: got %v, want %v", shard, err, want)
			}
			if err != nil {
				var e *shardway.LookupError
				if !errors.As(err, &e) || e.Map != "customers" || e.Shard != shard || e.Key != "" {
					t.Errorf("the error does not say where: %v", err)
				}
			}
			return conn
		}
		conn := open("a", nil)
		on(t, conn, "a")
		if conn.Route().MappingID != 0 || conn.Route().Shard.ID != r.shards["a"].ID {
			t.Errorf("route %+v", conn.Route())
		}
		_ = conn.Close()
		open("nobody", shardway.ErrShardNotFound)

		renamed := "alpha" // another client changes the shard: what was read is stale
		res := r.do(catalog.UpdateShard{Shard: r.shards["a"], Name: &renamed})
		conn = open("alpha", nil)
		_ = conn.Close()
		if open("a", shardway.ErrShardNotFound) != nil {
			t.Error("the old name still opens")
		}
		offline := shardway.ShardOffline
		r.do(catalog.UpdateShard{Shard: res.Shards[0], Status: &offline})
		conn = open("alpha", nil) // stale, read again
		if conn.Shard() != "alpha" || conn.Route().FromCache {
			t.Errorf("shard %q, %+v", conn.Shard(), conn.Route())
		}
		_ = conn.Close()
		quiet(t, db)
	})
}

// A caller's keys of another map's kind, and nil bytes, are refused before any
// connection.
func TestKeyRequired(t *testing.T) {
	t.Parallel()
	r := newEmptyRig(t, dbtest.EngineSQLite)
	r.do(catalog.CreateShardMap{Name: "blobs", Kind: shardway.ListMap, KeyKind: shardway.KindBytes})
	router, err := shardway.Open(t.Context(), r.source, shardway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	m, err := shardway.OpenListShardMap[[]byte](t.Context(), router, "blobs")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlshard.New(m, sqlshard.Config{Engines: []shardway.Engine{r.engine}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	var lookup *shardway.LookupError
	if _, err := db.OpenConnectionForKey(t.Context(), nil); !errors.Is(err, shardway.ErrKeyRequired) || !errors.As(err, &lookup) {
		t.Errorf("nil bytes: %v", err)
	}
	if _, err := db.OpenConnectionForKey(t.Context(), []byte{}); !errors.Is(err, shardway.ErrKeyNotMapped) {
		t.Errorf("empty bytes: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EngineSQLite)
	router, err := shardway.Open(t.Context(), r.source, shardway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	m, err := shardway.OpenRangeShardMap[int64](t.Context(), router, "customers")
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]sqlshard.Config{
		"no engine":       {},
		"a nil engine":    {Engines: []shardway.Engine{nil}},
		"an engine twice": {Engines: []shardway.Engine{r.engine, r.engine}},
		"an unknown one":  {Engines: []shardway.Engine{oracle{r.engine}}},
		"validation":      {Engines: []shardway.Engine{r.engine}, Validation: 7},
	} {
		if _, err := sqlshard.New(m, cfg); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	// A shard of an engine that the DB was not given.
	db, err := sqlshard.New(m, sqlshard.Config{Engines: []shardway.Engine{otherEngine(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if e := refused(t, db, 7, shardway.ErrInvalid); e.Shard != "a" {
		t.Errorf("the error does not name the shard: %v", e.Error())
	}
}

type oracle struct{ shardway.Engine }

func (oracle) Name() string { return "oracle" }

// MAP-08 and VAL-03: two callers with logins of their own are independent, and
// what is printed of them holds no secret.
func TestTwoLogins(t *testing.T) {
	t.Parallel()
	for _, e := range []dbtest.Engine{dbtest.EnginePostgres, dbtest.EngineMySQL} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, e)
			user, password := r.newLogin("reader", "a")
			admin := r.open(sqlshard.Config{})
			reader := r.open(sqlshard.Config{Credentials: shardway.Credentials{User: user, Password: password}})
			first, second := opened(t, admin, 7, "a"), opened(t, reader, 7, "a")
			defer second.Close()
			_ = first.Close()
			on(t, second, "a")
			if got := r.currentUser(second); got != user {
				t.Errorf("logged in as %q, want %q", got, user)
			}
			other := opened(t, admin, 7, "a")
			defer other.Close()
			if got := r.currentUser(other); got != r.login.User {
				t.Errorf("logged in as %q, want %q", got, r.login.User)
			}
		})
	}
}

func (r *rig) currentUser(conn *sqlshard.Conn) string {
	r.t.Helper()
	query := map[dbtest.Engine]string{
		dbtest.EnginePostgres: "SELECT current_user",
		dbtest.EngineMySQL:    "SELECT substring_index(current_user(), '@%', 1)",
	}[r.kind]
	var user string
	if err := conn.QueryRowContext(context.Background(), query).Scan(&user); err != nil {
		r.t.Fatal(err)
	}
	return user
}

package catalog_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// TestDrainAdapter drains a mapping under an application that uses the adapter:
// its transaction, its holder and its open connection end; those of another
// tenant in the same database go on, on the same sessions (ADM-10).
func TestDrainAdapter(t *testing.T) {
	t.Parallel()
	a := newApplication(t)
	mine, other := make(chan error, 8), make(chan error, 1)
	begun, finish := make(chan struct{}, 8), make(chan struct{})
	pids := make(chan int64, 2)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() {
		mine <- a.db.InTx(ctx, 5, nil, func(ctx context.Context, tx *sql.Tx) error {
			begun <- struct{}{}
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(60)")
			mine <- err
			return err
		})
	}()
	go func() {
		other <- a.db.InTx(ctx, 150, nil, func(ctx context.Context, tx *sql.Tx) error {
			before, err := pid(ctx, tx)
			pids <- before
			begun <- struct{}{}
			<-finish
			after, err2 := pid(ctx, tx)
			pids <- after
			return errors.Join(err, err2)
		})
	}()
	<-begun
	<-begun
	holder, open, otherHolder, otherOpen := a.hold(6), a.open(7), a.hold(151), a.open(152)
	var before []int64
	for _, c := range []*sqlshard.Conn{otherHolder, otherOpen} {
		id, err := pid(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, id)
	}

	r := do(t, a.catalog, catalog.UpdateMapping{Mapping: a.mine, Status: ptr(shardway.Offline), Drain: store.Drain{Limit: 100 * time.Millisecond}})
	// The transaction is tried again at once, and may meet its end once more.
	if r.Drained.Waited < 2 || r.Drained.Ended < 3 || r.Drained.Left != 0 {
		t.Errorf("drained %+v", r.Drained)
	}
	if err := <-mine; err == nil {
		t.Error("the transaction goes on")
	}
	for name, c := range map[string]*sqlshard.Conn{"holder": holder, "open connection": open} {
		if _, err := pid(t.Context(), c); err == nil {
			t.Errorf("the %s goes on", name)
		}
	}
	close(finish)
	if err := <-other; err != nil || <-pids != <-pids {
		t.Errorf("another tenant's transaction: %v, or on another session", err)
	}
	giveUp()
	if err := <-mine; err == nil {
		t.Error("the transaction committed")
	}
	for i, c := range []*sqlshard.Conn{otherHolder, otherOpen} {
		if id, err := pid(t.Context(), c); err != nil || id != before[i] {
			t.Errorf("another tenant's connection %d: session %d, was %d: %v", i, id, before[i], err)
		}
	}
}

func pid(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (id int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&id)
	return id, err
}

// application is a map with two tenants' mappings on one shard, and an adapter.
type application struct {
	t       *testing.T
	catalog *catalog.Catalog
	mine    shardway.Mapping // [0, 100)
	db      *sqlshard.DB[int64]
}

func newApplication(t *testing.T) *application {
	t.Helper()
	global, shard := dbtest.EnginePostgres.NewDatabase(t), dbtest.EnginePostgres.NewDatabase(t)
	engine := postgres.Engine{Options: global.Query}
	login := shardway.Credentials{User: global.User, Password: global.Password}
	at := func(db dbtest.Database) shardway.Location {
		return shardway.Location{Engine: "postgres", Database: db.Name, Servers: []shardway.Server{{Address: db.Addr()}}}
	}
	keep := func(v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := v.(interface{ Close() error }); ok {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	g, err := sqlstore.OpenGlobal(engine, at(global), login)
	keep(g, err)
	_, err = g.Deploy(t.Context(), false)
	keep(nil, err)
	locals, err := sqlstore.NewLocals([]shardway.Engine{engine}, login)
	keep(locals, err)
	a := &application{t: t}
	a.catalog, err = catalog.New(g, locals, catalog.Config{})
	keep(nil, err)
	m := do(t, a.catalog, catalog.CreateShardMap{Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}).Map
	s := do(t, a.catalog, catalog.AddShard{Map: m, Name: "s1", Location: at(shard)}).Shards[0]
	a.mine = do(t, a.catalog, catalog.AddMappings{Map: m, New: []catalog.NewMapping{
		{Range: rangeOf(0, 100), ShardID: s.ID}, {Range: rangeOf(100, 200), ShardID: s.ID},
	}}).Mappings[0]
	router, err := shardway.Open(t.Context(), g, shardway.Config{})
	keep(router, err)
	customers, err := shardway.OpenRangeShardMap[int64](t.Context(), router, "customers")
	keep(nil, err)
	a.db, err = sqlshard.New(customers, sqlshard.Config{Engines: []shardway.Engine{engine}, Credentials: login})
	keep(a.db, err)
	return a
}

func (a *application) open(key int64) *sqlshard.Conn {
	a.t.Helper()
	return a.opened(a.db.OpenConnectionForKey(a.t.Context(), key))
}

func (a *application) hold(key int64) *sqlshard.Conn {
	a.t.Helper()
	return a.opened(a.db.HoldConnectionForKey(a.t.Context(), key))
}

func (a *application) opened(c *sqlshard.Conn, err error) *sqlshard.Conn {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = c.Close() })
	return c
}

package customers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/sqlshard"
)

// program is an application: a router with its cache, and pools of connections.
type program struct {
	router *shardway.Router
	keys   *shardway.RangeShardMap[int64]
	db     *sqlshard.DB[int64]
}

func (s *story) open(ctx context.Context) (*program, error) {
	router, err := shardway.Open(ctx, s.global, shardway.Config{})
	if err != nil {
		return nil, err
	}
	p := &program{router: router}
	if p.keys, err = shardway.OpenRangeShardMap[int64](ctx, router, mapName); err == nil {
		p.db, err = sqlshard.New(p.keys, sqlshard.Config{
			Engines:     []shardway.Engine{s.shards[0].Engine},
			Credentials: s.shards[0].Credentials,
		})
	}
	if err != nil {
		return nil, errors.Join(err, router.Close())
	}
	return p, nil
}

func (p *program) close() {
	_ = p.db.Close()
	_ = p.router.Close()
}

// onShard runs fn with a connection to a shard.
func (p *program) onShard(ctx context.Context, name string, fn func(conn *sqlshard.Conn) error) error {
	conn, err := p.db.OpenConnectionForShard(ctx, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := fn(conn); err != nil {
		return fmt.Errorf("on shard %s: %w", name, err)
	}
	return nil
}

var shardNames = [3]string{"s1", "s2", "s3"}

// deploy creates the global store, if there is none.
func (s *story) deploy(ctx context.Context) error {
	_, err := s.global.Deploy(ctx, false)
	if errors.Is(err, shardway.ErrExists) {
		return nil
	}
	return err
}

// create makes the shard map, its shards and their tables, and then the
// mappings: where there is a mapping there are tables.
func (s *story) create(ctx context.Context) error {
	s.out.title("The map")
	r, err := s.catalog.Do(ctx, catalog.CreateShardMap{Name: mapName, Kind: shardway.RangeMap, KeyKind: shardway.KindInt64})
	if err != nil {
		return err
	}
	s.m = r.Map
	s.out.line("   shard map %q: ranges of int64 keys", mapName)
	low := [...]int64{1, secondFrom, thirdFrom}
	var mappings []catalog.NewMapping
	for i, at := range s.shards {
		r, err := s.catalog.Do(ctx, catalog.AddShard{Map: s.m, Name: shardNames[i], Location: at.Location})
		if err != nil {
			return err
		}
		whole := shardway.RangeFrom(shardway.Int64Key(low[i]))
		if i+1 < len(low) {
			whole.High = shardway.Int64Key(low[i+1])
		}
		mappings = append(mappings, catalog.NewMapping{Range: whole, ShardID: r.Shards[0].ID})
	}
	app, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer app.close()
	for _, name := range shardNames {
		if err := app.onShard(ctx, name, s.createTables(ctx)); err != nil {
			return err
		}
	}
	if _, err := s.catalog.Do(ctx, catalog.AddMappings{Map: s.m, New: mappings}); err != nil {
		return err
	}
	for i, n := range mappings {
		s.out.line("   %s → shard %s", n.Range, shardNames[i])
	}
	return nil
}

func (s *story) createTables(ctx context.Context) func(conn *sqlshard.Conn) error {
	return func(conn *sqlshard.Conn) error {
		for _, text := range []string{createCustomers, createOrders} {
			if _, err := conn.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("creating tables: %w", err)
			}
		}
		return nil
	}
}

// load writes each customer where the map says, and all customers of a shard in
// one transaction.
func (s *story) load(ctx context.Context, app *program) error {
	s.out.title("The data")
	s.book.fill()
	to := map[string][]customer{} // shard → its customers
	for _, c := range s.book.all() {
		route, err := app.keys.Lookup(ctx, c.id)
		if err != nil {
			return err
		}
		to[route.Shard.Name] = append(to[route.Shard.Name], c)
	}
	stats := app.keys.Map().Stats()
	if stats.StoreLookups != 3 || stats.Hits != population-3 {
		return fmt.Errorf("routing %d keys asked the store %d times and the cache answered %d times, want 3 and %d", population, stats.StoreLookups, stats.Hits, population-3)
	}
	s.out.line("   %d customer ids routed: %d asked the global map, %d were answered by the cache", population, stats.StoreLookups, stats.Hits)
	for i, want := range []int{secondFrom - 1, thirdFrom - secondFrom, population - thirdFrom + 1} {
		name := shardNames[i]
		if n := len(to[name]); n != want {
			return fmt.Errorf("shard %s would get %d customers, want %d", name, n, want)
		}
		err := app.onShard(ctx, name, func(conn *sqlshard.Conn) error {
			return inTx(ctx, conn, func(tx *sql.Tx) error { return s.write(ctx, tx, to[name]) })
		})
		if err != nil {
			return err
		}
		s.out.line("   %s: loaded %s with %s", name, count(want, "customer"), count(countOrders(to[name]), "order"))
	}
	return nil
}

package replicas

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store/sqlstore"
)

// Table is what the story reads and writes.
const Table = "shardway_replicas_example"

// pause is the time between two looks at what is waited for.
const pause = 50 * time.Millisecond

// open makes the database a shard with all keys and connects to it as an
// application does. The shard map is a SQLite file, which goes with the story.
func (s *Story) open(ctx context.Context) (_ func() error, err error) {
	dir, err := os.MkdirTemp("", "shardway-replicas-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the shard map: %w", err)
	}
	opened := []func() error{func() error { return os.RemoveAll(dir) }}
	closing := func() (err error) {
		for i := len(opened) - 1; i >= 0; i-- {
			err = errors.Join(err, opened[i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closing())
		}
	}()
	global, err := sqlite.GlobalStore("sqlite:" + filepath.Join(dir, "maps.db"))
	if err != nil {
		return nil, err
	}
	opened = append(opened, global.Close)
	if err := s.vacant(ctx); err != nil {
		return nil, err
	}
	opened = append(opened, s.remove)
	if err := s.deploy(ctx, global); err != nil {
		return nil, fmt.Errorf("making the database a shard: %w", err)
	}
	router, err := shardway.Open(ctx, global, shardway.Config{})
	if err != nil {
		return nil, err
	}
	opened = append(opened, router.Close)
	notes, err := shardway.OpenRangeShardMap[int64](ctx, router, "notes")
	if err != nil {
		return nil, err
	}
	s.db, err = sqlshard.New(notes, sqlshard.Config{
		Engines: []shardway.Engine{s.Engine}, Credentials: s.Login,
		// A failover is noticed at once where it breaks something, else by the
		// next check.
		Servers: sqlshard.ServerConfig{Heartbeat: 500 * time.Millisecond},
	})
	if err != nil {
		return nil, err
	}
	opened = append(opened, s.db.Close)
	return closing, nil
}

// deploy creates map, shard and table.
func (s *Story) deploy(ctx context.Context, global *sqlstore.Global) (err error) {
	if _, err := global.Deploy(ctx, false); err != nil {
		return err
	}
	locals, err := sqlstore.NewLocals([]shardway.Engine{s.Engine}, s.Login)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locals.Close()) }()
	c, err := catalog.New(global, locals, catalog.Config{Who: "replicas"})
	if err != nil {
		return err
	}
	r, err := c.Do(ctx, catalog.CreateShardMap{Name: "notes", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64})
	if err != nil {
		return err
	}
	m := r.Map
	if r, err = c.Do(ctx, catalog.AddShard{Map: m, Name: "s1", Location: s.Location}); err != nil {
		return err
	}
	all := catalog.NewMapping{Range: shardway.Range{Low: shardway.Int64Key(0)}, ShardID: r.Shards[0].ID}
	if _, err = c.Do(ctx, catalog.AddMappings{Map: m, New: []catalog.NewMapping{all}}); err != nil {
		return err
	}
	return s.on(s.Location.Servers[0].Address, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE "+Table+" (id bigint PRIMARY KEY, note text NOT NULL)")
		return err
	})
}

// on runs work on one server, past Shardway.
func (s *Story) on(address string, work func(*sql.DB) error) error {
	connector, err := s.Engine.Connector(address, s.Location.Database, s.Login)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	if err := errors.Join(work(db), db.Close()); err != nil {
		return fmt.Errorf("on %s: %w", address, err)
	}
	return nil
}

// vacant refuses a database that holds a shard already, or is no primary.
func (s *Story) vacant(ctx context.Context) error {
	return s.on(s.Location.Servers[0].Address, func(db *sql.DB) error {
		var secondary, taken bool
		err := db.QueryRowContext(ctx, `SELECT pg_is_in_recovery(), to_regnamespace('shardway') IS NOT NULL OR to_regclass($1) IS NOT NULL`, Table).Scan(&secondary, &taken)
		switch {
		case err != nil:
			return fmt.Errorf("looking at the database: %w", err)
		case secondary:
			return &shardway.ArgumentError{Argument: "primary", Reason: "is a secondary"}
		case taken:
			return &shardway.ArgumentError{Argument: "database", Value: s.Location.Database, Reason: "has a schema shardway or a table " + Table + " already: give one of its own"}
		}
		return nil
	})
}

// remove takes away what deploy has made, on whoever is primary now.
func (s *Story) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	primary := s.primary
	if primary == "" {
		primary = s.Location.Servers[0].Address
	}
	return s.on(primary, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+Table)
		if err == nil {
			_, err = db.ExecContext(ctx, "DROP SCHEMA IF EXISTS shardway CASCADE")
		}
		return err
	})
}

// replicated waits until every secondary shows a row, and so all before it.
func (s *Story) replicated(ctx context.Context, id int64) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for _, server := range s.Location.Servers[1:] {
		err := s.on(server.Address, func(db *sql.DB) error {
			for {
				var found int64
				err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+Table+" WHERE id = $1", id).Scan(&found)
				if err == nil && found == 1 {
					return nil
				}
				select {
				case <-ctx.Done():
					return errors.Join(fmt.Errorf("row %d is not replicated: %w", id, context.Cause(ctx)), err)
				case <-tick.C:
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// row reports whether a server has a row.
func (s *Story) row(ctx context.Context, server string, id int64) (found bool, err error) {
	err = s.on(server, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+Table+" WHERE id = $1)", id).Scan(&found)
	})
	return found, err
}

// servers are what is known of the servers, as seen with some criteria.
func (s *Story) servers(ctx context.Context, c selection.Criteria) (selection.Explanation, error) {
	e, err := s.db.With(c).Servers(ctx, "s1")
	if err != nil {
		return e, fmt.Errorf("checking servers: %w", err)
	}
	return e, nil
}

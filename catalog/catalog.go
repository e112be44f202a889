// Package catalog changes shard maps: maps, shards, mappings and locks. It is
// the writing half of what Elastic Database Tools call the ShardMapManager; the
// reading half is [shardway.Router].
//
// A change is a value, such as [SplitMapping]. [Catalog.Do] makes it,
// [Catalog.Preview] only says what it would do. A change that touches shards
// runs as an operation: it is written to the global store with its full
// inverse, applied to one local store after the other, and then published.
// No transaction spans databases. Whoever meets the operation of a dead client
// finishes it or takes it back; see [Catalog.Recover].
//
// The package decides over values and talks to stores through the interfaces
// of package store; it knows no database.
package catalog

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Locals gives access to the local stores of shards. It owns what it opens.
type Locals interface {
	// Open returns the local store at a location. It may connect later.
	Open(ctx context.Context, l shardway.Location) (store.Local, error)
	// Normalize checks a location and returns its one canonical spelling.
	Normalize(l shardway.Location) (shardway.Location, error)
}

// Config sets up a Catalog. The zero value works.
type Config struct {
	// Who is written to the history, in UTF-8. Empty: user@host.
	Who string
	// Lease bounds how long a change may stand still before others may take it
	// over. Zero: 15 s. Less than 100 ms is refused.
	Lease time.Duration
	// Wait bounds how long a change waits for another one on the same rows.
	// Zero: 20 s. It should exceed Lease, so that a dead client's change can be
	// taken over within one call.
	Wait time.Duration
	// Drain says what becomes of those who use a mapping that a change takes
	// offline or from its shard, unless the change says so itself. Zero: they
	// are waited for, 5 s, and then their sessions are ended. With
	// [store.DrainNobody] and no limit, they are waited for as Wait says. A change that
	// finds a mapping in use and may not end sessions, or cannot, is taken back
	// with [store.ErrMappingBusy].
	Drain store.Drain
	// Logger gets a line for every operation finished or taken back for
	// somebody else. Nil: none.
	Logger *slog.Logger
}

// Catalog reads and changes the shard maps of one global store. It is safe for
// concurrent use and holds nothing that needs closing.
type Catalog struct {
	global store.Global
	locals Locals
	cfg    Config
	owner  string // of the leases of this Catalog
}

// New returns a Catalog over a global store and the local stores of its shards.
func New(global store.Global, locals Locals, cfg Config) (*Catalog, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	if cfg.Wait == 0 {
		cfg.Wait = 20 * time.Second
	}
	switch {
	case global == nil || locals == nil:
		return nil, &shardway.ArgumentError{Argument: "store", Reason: "is missing"}
	case cfg.Lease < 100*time.Millisecond:
		return nil, &shardway.ArgumentError{Argument: "Lease", Value: cfg.Lease.String(), Reason: "is below 100ms"}
	case cfg.Wait < 0:
		return nil, &shardway.ArgumentError{Argument: "Wait", Value: cfg.Wait.String(), Reason: "is negative"}
	}
	if err := checkText("Who", cfg.Who); err != nil {
		return nil, err
	}
	if err := cfg.Drain.Check(); err != nil {
		return nil, err
	}
	if cfg.Who == "" {
		cfg.Who = defaultWho()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	owner := fmt.Sprintf("%s/%d/%04x", cfg.Who, os.Getpid(), store.NewID()&0xffff)
	return &Catalog{global: global, locals: locals, cfg: cfg, owner: owner}, nil
}

func defaultWho() string {
	host, _ := os.Hostname()
	name := os.Getenv("USER")
	if name == "" { // containers, cron
		name = fmt.Sprint("uid ", os.Getuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	return strings.ToValidUTF8(name+"@"+host, "?")
}

// ShardMaps returns all shard maps, ordered by name.
func (c *Catalog) ShardMaps(ctx context.Context) (maps []shardway.ShardMap, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		maps, err = tx.ShardMaps(ctx)
		return err
	})
	return maps, err
}

// ShardMap returns the map with the given name, or [shardway.ErrMapNotFound].
func (c *Catalog) ShardMap(ctx context.Context, name string) (shardway.ShardMap, error) {
	return c.global.ShardMap(ctx, name)
}

// Shards returns the shards of a map ordered by name, those being added left
// out. The zero map stands for all maps; one that is gone is
// [shardway.ErrMapNotFound].
func (c *Catalog) Shards(ctx context.Context, m shardway.ShardMap) (shards []shardway.Shard, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		shards = nil
		if m.ID != 0 {
			if _, err := c.state(tx, time.Time{}).shardMap(ctx, m); err != nil {
				return err
			}
		}
		rows, err := tx.Shards(ctx, m.ID)
		for _, r := range rows {
			if !r.Pending {
				shards = append(shards, r.Shard)
			}
		}
		return err
	})
	return shards, err
}

// Shard returns the shard of a map with the given name, or
// [shardway.ErrShardNotFound].
func (c *Catalog) Shard(ctx context.Context, m shardway.ShardMap, name string) (shardway.Shard, error) {
	shards, err := c.Shards(ctx, m)
	if err != nil {
		return shardway.Shard{}, err
	}
	for _, s := range shards {
		if s.Name == name {
			return s, nil
		}
	}
	return shardway.Shard{}, &shardway.LookupError{Map: m.Name, Shard: name, Err: shardway.ErrShardNotFound}
}

// Locations returns the distinct locations of all shards of all maps.
func (c *Catalog) Locations(ctx context.Context) ([]shardway.Location, error) {
	shards, err := c.Shards(ctx, shardway.ShardMap{})
	if err != nil {
		return nil, err
	}
	var distinct []shardway.Location
	seen := map[string]bool{}
	for _, s := range shards {
		if text := s.Location.String(); !seen[text] {
			seen[text] = true
			distinct = append(distinct, s.Location)
		}
	}
	return distinct, nil
}

// Mappings returns the published mappings that q selects, ordered by low key.
// It reads in pages, so that a long listing holds no transaction; a mapping
// that changes meanwhile is listed as it was or as it is. A map that is gone is
// [shardway.ErrMapNotFound].
func (c *Catalog) Mappings(ctx context.Context, q store.MappingQuery) iter.Seq2[shardway.Mapping, error] {
	const pageSize = 1000
	return func(yield func(shardway.Mapping, error) bool) {
		limit := q.Limit
		for {
			page := q
			page.Limit = pageSize
			var rows []store.MappingRow
			err := c.view(ctx, func(tx store.Reader) (err error) {
				if page.Map, err = c.state(tx, time.Time{}).shardMap(ctx, q.Map); err != nil {
					return err
				}
				if err = checkQuery(&page); err == nil {
					rows, err = collect(tx.Mappings(ctx, page))
				}
				return err
			})
			if err != nil {
				yield(shardway.Mapping{}, err)
				return
			}
			for _, r := range rows {
				if r.Pending {
					continue
				}
				if !yield(r.Mapping, nil) {
					return
				}
				if limit--; limit == 0 {
					return
				}
			}
			if len(rows) < pageSize {
				return
			}
			q.After = rows[len(rows)-1].Range.Low
		}
	}
}

// checkQuery reports keys that are no keys of the query's map.
func checkQuery(q *store.MappingQuery) error {
	if q.Within.Low.IsZero() && !q.Within.High.IsZero() {
		return fmt.Errorf("low end of the range to list: %w", shardway.ErrKeyRequired)
	}
	for _, key := range []shardway.Key{q.Within.Low, q.Within.High, q.After} {
		if key.IsZero() {
			continue
		}
		if err := checkKey(q.Map, "key", key); err != nil {
			return err
		}
	}
	return nil
}

// MappingForKey returns the mapping that holds a key with its lock, read from
// the store, or [shardway.ErrKeyNotMapped].
func (c *Catalog) MappingForKey(ctx context.Context, m shardway.ShardMap, key shardway.Key) (shardway.Mapping, error) {
	wrap := func(err error) error {
		return &shardway.LookupError{Map: m.Name, Key: key.String(), Err: err}
	}
	if err := checkKey(m, "key", key); err != nil {
		return shardway.Mapping{}, wrap(err)
	}
	for ctx.Err() == nil {
		a, err := c.global.Lookup(ctx, m, key)
		if err == nil && !a.Found {
			err = shardway.ErrKeyNotMapped
		}
		if err != nil {
			return shardway.Mapping{}, wrap(err)
		}
		// Routers do not see locks: they come with the row.
		for row, err := range c.Mappings(ctx, store.MappingQuery{Map: m, IDs: []shardway.MappingID{a.Mapping.ID}}) {
			if err != nil {
				return shardway.Mapping{}, wrap(err)
			}
			return row, nil
		}
	}
	return shardway.Mapping{}, wrap(ctx.Err())
}

// Operations returns the pending operations, oldest first.
func (c *Catalog) Operations(ctx context.Context) (ops []store.Operation, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		ops, err = tx.Operations(ctx, store.OperationQuery{})
		return err
	})
	return ops, err
}

// History returns what was changed or taken back, newest first. A limit of 0
// is no limit.
func (c *Catalog) History(ctx context.Context, m shardway.MapID, limit int) (entries []store.Entry, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		entries, err = collect(tx.History(ctx, store.HistoryQuery{Map: m, Limit: limit}))
		return err
	})
	return entries, err
}

// Outcome tells how an operation ended: pending, done, undone, or unknown when
// the store has never seen it.
func (c *Catalog) Outcome(ctx context.Context, id store.OperationID) (o store.Outcome, err error) {
	err = c.view(ctx, func(tx store.Reader) error {
		o, err = outcome(ctx, tx, id)
		return err
	})
	return o, err
}

func (c *Catalog) view(ctx context.Context, fn func(store.Reader) error) error {
	if err := c.global.View(ctx, fn); err != nil {
		return fmt.Errorf("reading global store: %w", err)
	}
	return nil
}

func outcome(ctx context.Context, tx store.Reader, id store.OperationID) (store.Outcome, error) {
	if id == 0 { // which would ask for any
		return store.Unknown, nil
	}
	ops, err := tx.Operations(ctx, store.OperationQuery{ID: id})
	if err != nil || len(ops) > 0 {
		return store.Pending, err
	}
	for e, err := range tx.History(ctx, store.HistoryQuery{Operation: id, Limit: 1}) {
		return e.Outcome, err
	}
	return store.Unknown, nil
}

func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

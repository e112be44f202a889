// Package recovery finds out where the global shard map and the local maps of
// shards disagree, after a restore, a failover, a renamed database or a lost
// disk, and brings them back to one truth that the operator chooses.
//
// [Recovery.Detect] compares. A [Report] is a value: it can be printed, saved
// as JSON and compared. [Recovery.Preview] says what a [Resolution] would do,
// [Recovery.Resolve] does it, as an operation of package catalog: logged,
// finished or taken back by whoever comes next when the client dies, and
// without a moment at which two local maps own one key. Rows of users are
// never touched: only maps change.
//
// [Recovery.RebuildLocal] and [Recovery.RebuildGlobal] take one side for true
// for many shards, [Recovery.Attach] and [Recovery.Detach] bring shards back
// into a map and take them out of it.
package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// Config sets up a Recovery. The zero value works.
type Config struct {
	// Parallel bounds how many shards are worked on at once. Zero: 8.
	Parallel int
	// Timeout bounds how long one local store may take to be read. Zero: 30 s.
	Timeout time.Duration
	// Progress is called when a shard is done, one call at a time. Nil: nobody
	// is told.
	Progress func(Progress)
}

// Progress is how far a piece of work on many shards has come.
type Progress struct {
	Doing       string // such as "comparing"
	Done, Total int    // shards
}

// Recovery compares and repairs the maps of one global store and its shards.
// It is safe for concurrent use and holds nothing that needs closing.
type Recovery struct {
	global  store.Global
	locals  catalog.Locals
	catalog *catalog.Catalog
	cfg     Config
	told    sync.Mutex    // held while Progress is called
	turn    chan struct{} // full while a change is under way
}

// New returns a Recovery over the stores of a Catalog.
func New(global store.Global, locals catalog.Locals, c *catalog.Catalog, cfg Config) (*Recovery, error) {
	switch {
	case global == nil || locals == nil || c == nil:
		return nil, &shardway.ArgumentError{Argument: "store", Reason: "is missing"}
	case cfg.Parallel < 0:
		return nil, &shardway.ArgumentError{Argument: "Parallel", Value: fmt.Sprint(cfg.Parallel), Reason: "is negative"}
	case cfg.Timeout < 0:
		return nil, &shardway.ArgumentError{Argument: "Timeout", Value: cfg.Timeout.String(), Reason: "is negative"}
	}
	cfg.Parallel, cfg.Timeout = cmp.Or(cfg.Parallel, 8), cmp.Or(cfg.Timeout, 30*time.Second)
	return &Recovery{global: global, locals: locals, catalog: c, cfg: cfg, turn: make(chan struct{}, 1)}, nil
}

// each works on n things, several at once, and tells how far it has come.
func (r *Recovery) each(ctx context.Context, doing string, n int, work func(i int)) error {
	slots := make(chan struct{}, r.cfg.Parallel)
	var running sync.WaitGroup
	done := 0
	for i := range n {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			work(i)
			r.told.Lock()
			defer r.told.Unlock()
			if done++; r.cfg.Progress != nil {
				r.cfg.Progress(Progress{Doing: doing, Done: done, Total: n})
			}
			<-slots
		})
	}
	running.Wait()
	return ctx.Err()
}

// view reads one state of the global store.
func (r *Recovery) view(ctx context.Context, fn func(store.Reader) error) error {
	if err := r.global.View(ctx, fn); err != nil {
		return fmt.Errorf("reading global store: %w", err)
	}
	return nil
}

// found is what the local store of a shard says.
type found struct {
	state   State
	storeID string          // of the global store it belongs to; empty without a local store
	local   *store.LocalMap // of the map asked for; nil for none
	err     error           // why it could not be read
}

// read asks the local store at a location for a map.
func (r *Recovery) read(ctx context.Context, l shardway.Location, m shardway.MapID, globalID string) found {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	local, err := r.locals.Open(ctx, l)
	if err != nil {
		return found{state: Unreachable, err: err}
	}
	d, err := local.Describe(ctx)
	switch {
	case errors.Is(err, shardway.ErrNoStore):
		return found{state: NoStore}
	case errors.Is(err, shardway.ErrStoreVersion):
		return found{state: Unsupported, err: err}
	case err != nil:
		return found{state: Unreachable, err: err}
	}
	f := found{state: Equal, storeID: d.ID}
	maps, err := local.Read(ctx, m)
	if err != nil {
		return found{state: Unreachable, storeID: d.ID, err: err}
	}
	if len(maps) > 0 {
		f.local = &maps[0]
	}
	switch {
	case d.ID != globalID:
		f.state = Foreign
	case f.local == nil:
		f.state = NoMap
	}
	return f
}

// globalID returns the id of the global store.
func (r *Recovery) globalID(ctx context.Context) (string, error) {
	d, err := r.global.Describe(ctx)
	if err != nil {
		return "", fmt.Errorf("reading global store: %w", err)
	}
	return d.ID, nil
}

// shards returns the shards of a map, those being added left out, in the order
// of their names. With ids, only these, each of which must be there.
func (r *Recovery) shards(ctx context.Context, m shardway.ShardMap, ids []shardway.ShardID) ([]shardway.Shard, error) {
	all, err := r.catalog.Shards(ctx, m)
	if err != nil || len(ids) == 0 {
		return all, err
	}
	wanted := map[shardway.ShardID]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	var some []shardway.Shard
	for _, s := range all {
		if wanted[s.ID] {
			some = append(some, s)
			delete(wanted, s.ID)
		}
	}
	for id := range wanted {
		return nil, &shardway.LookupError{Map: m.Name, Shard: fmt.Sprint(int64(id)), Err: shardway.ErrShardNotFound}
	}
	return some, nil
}

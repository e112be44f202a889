package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/mapfile"
)

// tokenView is the JSON form of locks that import has made anew.
type tokenView struct {
	Map      string `json:"map"`
	Owner    string `json:"owner"`
	Reason   string `json:"reason,omitempty"`
	Token    string `json:"token"`
	Mappings int    `json:"mappings"`
}

func importCommand(a *app) *cobra.Command {
	var f changeFlags
	c := &cobra.Command{
		Use: "import FILE", Short: "Create the shard maps of a file in a store that does not have them", Args: arguments("FILE"),
		Long:    "Creates the maps that export has written, with their shards, mappings, statuses and locks. A map\nthat is there already is refused, and nothing is created then; \"shardway apply\" changes maps that\nare there. All databases are looked at first: each must be reachable and belong to this store or\nto none. Locks get new tokens, which are printed.",
		Example: example("shardway import maps.json --dry-run", "shardway import maps.json"),
	}
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		wanted, err := s.readMaps(ctx, args[0], s.locals.Normalize)
		if err != nil {
			return err
		}
		if err := s.free(ctx, wanted); err != nil {
			return err
		}
		plan, err := mapfile.Plan(mapfile.File{}, wanted)
		if err != nil {
			return err
		}
		v := viewPlan(plan)
		v.DryRun = f.dryRun
		if f.dryRun {
			return s.emit(v, func(p *page) { p.plan(v) })
		}
		v.Done, err = s.carryOut(ctx, plan, f.reason)
		if err != nil {
			return &hinted{err: err, hint: "shardway apply goes on with the same file when the cause is gone"}
		}
		if v.Locks, err = s.lockAgain(ctx, wanted, f.reason); err != nil {
			return err
		}
		made := viewExport(args[0], wanted)
		return s.emit(v, func(p *page) {
			p.line("imported %s", made)
			for _, l := range v.Locks {
				p.line("lock token of %q for %s of %s: %s", l.Owner, count(l.Mappings, "mapping"), l.Map, l.Token)
			}
		})
	})
}

// free reports maps that are there already, and databases that cannot become
// shards of this store.
func (s *session) free(ctx context.Context, f mapfile.File) error {
	maps, err := s.ShardMaps(ctx)
	if err != nil {
		return err
	}
	var taken []string
	for _, m := range maps {
		if _, wanted := f.Map(m.Name); wanted {
			taken = append(taken, fmt.Sprintf("%q", m.Name))
		}
	}
	if len(taken) > 0 {
		return &hinted{
			err:  fmt.Errorf("importing shard maps: the store has %s: %w", strings.Join(taken, ", "), shardway.ErrExists),
			hint: "shardway apply changes maps that are there",
		}
	}
	d, err := s.global.Describe(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var mu sync.Mutex // guards errs
	seats := make(chan struct{}, 8)
	var running sync.WaitGroup
	for _, m := range f.Maps {
		for _, sh := range m.Shards {
			seats <- struct{}{}
			running.Go(func() {
				defer func() { <-seats }()
				if err := s.usable(ctx, sh.Location, d.ID); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("shard %q of shard map %q at %s: %w", sh.Name, m.Name, sh.Location, err))
				}
			})
		}
	}
	running.Wait()
	return errors.Join(errs...)
}

// usable reports why a database cannot become a shard.
func (s *session) usable(ctx context.Context, l shardway.Location, globalID string) error {
	local, err := s.locals.Open(ctx, l)
	if err != nil {
		return err
	}
	d, err := local.Describe(ctx)
	switch {
	case errors.Is(err, shardway.ErrNoStore):
		return nil
	case err == nil && d.ID != globalID:
		return shardway.ErrForeignStore
	}
	return err
}

// lockAgain makes the locks of a file anew: one token for each owner, reason and
// expiry.
func (s *session) lockAgain(ctx context.Context, f mapfile.File, reason string) ([]tokenView, error) {
	now, err := s.global.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []tokenView
	for _, m := range f.Maps {
		var is shardway.ShardMap
		at := map[mapfile.Lock]int{} // lock → index in all
		for _, mp := range m.Mappings {
			if mp.Lock == nil || !mp.Lock.Expires.IsZero() && !now.Before(mp.Lock.Expires) {
				continue
			}
			if is.ID == 0 {
				var err error
				if is, err = s.ShardMap(ctx, m.Name); err != nil {
					return all, err
				}
			}
			i, seen := at[*mp.Lock]
			if !seen {
				i = len(all)
				at[*mp.Lock] = i
				all = append(all, tokenView{Map: m.Name, Owner: mp.Lock.Owner, Reason: mp.Lock.Reason, Token: string(catalog.NewLockToken())})
			}
			there, err := s.MappingForKey(ctx, is, mp.Range.Low)
			if err != nil {
				return all, err
			}
			lock := shardway.Lock{Token: shardway.LockToken(all[i].Token), Owner: mp.Lock.Owner, Reason: mp.Lock.Reason, Expires: mp.Lock.Expires}
			_, err = s.do(ctx, catalog.LockMapping{Mapping: there, Lock: lock, Reason: reason})
			if err != nil {
				return all, fmt.Errorf("the maps are imported, a lock is not: %w", err)
			}
			all[i].Mappings++
		}
	}
	return all, nil
}

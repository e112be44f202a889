package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

const upgradeHelp = `Brings the tables of stores to the version that this program creates: the global store, and the
local store of one shard (--shard, with --map) or of all. Without any of the three, all stores.
Rows stay as they are. It can be run again after an interruption, by several people at once, and
while others use the stores.

Upgrade with the newest program before the others are replaced: programs of one major version
read all of each other's stores, and change newer ones. It takes the rights of the user who ran
"shardway init" and "shardway shard add".`

// upgradeView is the JSON form of what upgrade did with one store.
type upgradeView struct {
	Store string `json:"store"` // global, or the shard's local store
	Map   string `json:"map,omitempty"`
	Shard string `json:"shard,omitempty"`
	At    string `json:"at"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	State string `json:"state"` // upgraded, to upgrade (in a dry run), current, newer, failed
	Error string `json:"error,omitempty"`
	err   error
}

// upgradable is a store as upgrade needs it.
type upgradable interface {
	store.Upgrader
	Describe(ctx context.Context) (store.Description, error)
}

func upgradeCommand(a *app) *cobra.Command {
	var global, all, dryRun bool
	var shard string
	c := &cobra.Command{
		Use: "upgrade", Short: "Bring the tables of stores to the version of this program", Args: arguments(), Long: upgradeHelp,
		Example: example("shardway upgrade --dry-run", "shardway upgrade", "shardway upgrade --global", "shardway upgrade --shard s1 --map customers"),
	}
	mapFlag(c)
	c.Flags().BoolVar(&global, "global", false, "the global store alone")
	c.Flags().StringVar(&shard, "shard", "", "the local store of this shard alone")
	c.Flags().BoolVar(&all, "all", false, "all stores, which is also what happens without a choice")
	c.MarkFlagsMutuallyExclusive("global", "shard", "all")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be upgraded and change nothing")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		d, err := s.global.Describe(ctx)
		if err != nil {
			return err
		}
		var views []upgradeView
		if shard == "" {
			v := upgradeView{Store: "global", At: s.address.location.String()}
			v.run(ctx, s.global, d.ID, dryRun)
			views = append(views, v)
		}
		if !global && (len(views) == 0 || views[0].err == nil) {
			locals, err := s.upgradeLocals(ctx, shard, d.ID, dryRun)
			if err != nil {
				return err
			}
			views = append(views, locals...)
		}
		return s.upgraded(views)
	})
}

// upgradeLocals upgrades the local store of one shard, or of all, each database once.
func (s *session) upgradeLocals(ctx context.Context, name, globalID string, dryRun bool) ([]upgradeView, error) {
	shards, names, err := s.shardsToUpgrade(ctx, name)
	if err != nil {
		return nil, err
	}
	const atOnce = 8
	views := make([]upgradeView, len(shards))
	seats := make(chan struct{}, atOnce)
	bar := newProgress(s.errs, "upgrading stores", len(shards))
	defer bar.end()
	var running sync.WaitGroup
	for i, sh := range shards {
		seats <- struct{}{}
		running.Go(func() {
			defer func() { <-seats }()
			v := upgradeView{Store: "local", Map: names[sh.MapID], Shard: sh.Name, At: sh.Location.String()}
			local, err := s.locals.Open(ctx, sh.Location)
			u, can := local.(upgradable)
			switch {
			case err != nil:
				v.fail(err)
			case !can:
				v.fail(fmt.Errorf("a store of this engine has no upgrade: %w", shardway.ErrStoreVersion))
			default:
				v.run(ctx, u, globalID, dryRun)
			}
			views[i] = v
			bar.step()
		})
	}
	running.Wait()
	return views, nil
}

func (s *session) shardsToUpgrade(ctx context.Context, name string) (shards []shardway.Shard, names map[shardway.MapID]string, err error) {
	if name != "" {
		m, sh, err := s.shard(ctx, name)
		return []shardway.Shard{sh}, map[shardway.MapID]string{m.ID: m.Name}, err
	}
	maps, err := s.ShardMaps(ctx)
	if err != nil {
		return nil, nil, err
	}
	names = map[shardway.MapID]string{}
	for _, m := range maps {
		names[m.ID] = m.Name
	}
	everyone, err := s.Shards(ctx, shardway.ShardMap{})
	seen := map[string]bool{}
	for _, sh := range everyone {
		if at := sh.Location.String(); !seen[at] {
			seen[at] = true
			shards = append(shards, sh)
		}
	}
	return shards, names, err
}

// run upgrades one store, or says what would be done.
func (v *upgradeView) run(ctx context.Context, u upgradable, globalID string, dryRun bool) {
	d, err := u.Describe(ctx)
	if err == nil && d.ID != globalID {
		err = shardway.ErrForeignStore
	}
	from, to := d.Version, d.Version
	due := to.Minor < store.Current.Minor
	if err == nil && due && !dryRun {
		from, to, err = u.Upgrade(ctx)
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.From, v.To, v.State = from.String(), to.String(), "current"
	switch {
	case due && dryRun:
		v.To, v.State = store.Current.String(), "to upgrade"
	case from != to:
		v.State = "upgraded"
	case to.Minor > store.Current.Minor:
		v.State = "newer"
	}
}

func (v *upgradeView) fail(err error) { v.State, v.Error, v.err = "failed", oneLine(message(err)), err }

// upgraded shows what was done. One store that fails does not keep the others
// from being upgraded.
func (s *session) upgraded(views []upgradeView) error {
	var rows [][]string
	var errs []error
	for _, v := range views {
		rows = append(rows, []string{v.Store, v.Map, v.Shard, v.At, v.From, v.To, v.State})
		if v.err == nil {
			continue
		}
		of := ""
		if v.Shard != "" {
			of = fmt.Sprintf(" of shard %q", v.Shard)
		}
		errs = append(errs, fmt.Errorf("%s store%s at %s: %w", v.Store, of, v.At, v.err))
	}
	if err := s.emit(views, func(p *page) {
		p.table([]string{"store", "map", "shard", "at", "from", "to", "state"}, rows)
	}); err != nil {
		return err
	}
	return errors.Join(errs...)
}

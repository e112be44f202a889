package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/recovery"
)

func shardAttach(a *app) *cobra.Command {
	var f changeFlags
	var servers []string
	at := recovery.Attach{}
	c := &cobra.Command{
		Use: "attach LOCATION... --map MAP", Short: "Bring a shard back into a map from the local map in its database",
		Long: "The shard keeps its id and gets the location, in the local map too. Its mappings stay in the local\nmap: shardway recovery resolve SHARD --keep local makes them the global ones.\n\n" + locationHelp,
		Args: arguments("LOCATION..."),
		Example: example("shardway shard attach postgres://db9:5432/tenants --map customers", "shardway shard attach sqlite:west/s1.db --map customers --name west",
			"shardway shard attach postgres://db9/tenants --map customers --adopt ABCDEFGHIJKLMNOPQRSTUVWXYZ --restore-map"),
	}
	mapFlag(c)
	c.Flags().StringArrayVar(&servers, "server", nil, "a server, or tags of one: host:port,tag=value,...; may be repeated")
	c.Flags().StringVar(&at.Name, "name", "", "new name of the shard (default the one it had)")
	c.Flags().StringVar(&at.Adopt, "adopt", "", "id of another global store that the database belongs to, and from now on does not")
	c.Flags().BoolVar(&at.RestoreMap, "restore-map", false, "create the map, empty and under its old id, when the global store has lost it")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		l, err := parseLocation(args, servers)
		if err != nil {
			return err
		}
		at.Location, at.DryRun, at.Reason = l, f.dryRun, f.reason
		if at.Map = s.set.text("map"); at.Map == "" {
			_, err := s.shardMap(ctx) // which says how to name one
			return err
		}
		r, end, err := s.recovery()
		if err != nil {
			return err
		}
		defer end()
		result, err := r.Attach(ctx, at)
		if err != nil {
			return fate(result, adopting(err, at.RestoreMap))
		}
		return s.changed(ctx, f, result)
	})
}

// changed prints what a change has done.
func (s *session) changed(ctx context.Context, f changeFlags, results ...catalog.Result) error {
	views := make([]changeView, len(results))
	for i, r := range results {
		views[i] = changeView{DryRun: f.dryRun, Changed: r.Operation != 0, Kind: r.Kind, Summary: r.Summary, Map: r.Map.Name}
		if r.Operation != 0 {
			views[i].Operation = r.Operation.String()
		}
		if len(r.Shards) > 0 {
			views[i].Shards = viewShards(r.Shards)
		}
		views[i].Mappings = s.viewMappings(ctx, r.Map, r.Mappings)
		for j := range views[i].Mappings { // a shard that has left is known by its name all the same
			if len(r.Shards) == 1 && r.Mappings[j].ShardID == r.Shards[0].ID {
				views[i].Mappings[j].Shard = r.Shards[0].Name
			}
		}
	}
	text := func(p *page) {
		for i, r := range results {
			p.change(r, views[i])
		}
	}
	if len(views) == 1 {
		return s.emit(views[0], text)
	}
	return s.emit(views, text)
}

func shardDetach(a *app) *cobra.Command {
	var f changeFlags
	var gone, force, allMaps, yes bool
	c := &cobra.Command{
		Use: "detach NAME --map MAP", Short: "Take a shard with its mappings out of one map; its database keeps them for attach",
		Long: "The mappings that leave are printed. The local map in the database keeps them under new ids, so that\nno route from before is valid there any more. Refused while mappings are online or locked, unless\n--force is given. A database that cannot be reached must be declared gone: --gone promises that\nnobody can go on in it. --all-maps takes the database out of every map that has it. Asks first.",
		Args: arguments("NAME"),
		Example: example("shardway shard detach s1 --map customers --dry-run", "shardway shard detach s1 --map customers --gone --force --yes",
			"shardway shard detach s1 --map customers --all-maps"),
	}
	mapFlag(c)
	c.Flags().BoolVar(&gone, "gone", false, "the database is gone for good, or nobody can reach it: it is not asked")
	c.Flags().BoolVar(&force, "force", false, "also when mappings are online or locked")
	c.Flags().BoolVar(&allMaps, "all-maps", false, "out of every map that has this database, not only the named one")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		asks, err := s.asks(yes, f.dryRun)
		if err != nil {
			return err
		}
		_, sh, err := s.shard(ctx, args[0])
		if err != nil {
			return err
		}
		shards := []shardway.Shard{sh}
		if allMaps {
			if shards, err = s.sameDatabase(ctx, sh); err != nil {
				return err
			}
		}
		var all []recovery.Detach
		for _, sh := range shards {
			all = append(all, recovery.Detach{Shard: sh, Gone: gone, Force: force, DryRun: f.dryRun, Reason: f.reason})
		}
		return s.detach(ctx, f, all, asks)
	})
}

// sameDatabase returns a shard and those of other maps in its database.
func (s *session) sameDatabase(ctx context.Context, sh shardway.Shard) ([]shardway.Shard, error) {
	all, err := s.Shards(ctx, shardway.ShardMap{})
	shards := []shardway.Shard{sh}
	for _, other := range all {
		if other.ID != sh.ID && other.MapID != sh.MapID && other.Location.Overlaps(sh.Location) {
			shards = append(shards, other)
		}
	}
	return shards, err
}

func (s *session) detach(ctx context.Context, f changeFlags, all []recovery.Detach, asks bool) error {
	r, end, err := s.recovery()
	if err != nil {
		return err
	}
	defer end()
	// All of them are looked at before the first one goes.
	var results []catalog.Result
	for _, d := range all {
		d.DryRun = true
		result, err := r.Detach(ctx, d)
		if err != nil && !(d.Gone && errors.Is(err, shardway.ErrPending)) { // which is ended only when it is meant
			return forced(err, s.mapName(ctx, d.Shard.MapID), d.Shard.Name, d.Gone)
		}
		results = append(results, result)
	}
	if f.dryRun {
		return s.changed(ctx, f, results...)
	}
	if asks {
		for _, result := range results {
			fmt.Fprintf(s.errs, "%s: %s\n", result.Kind, printable(result.Summary))
		}
		if err := s.confirm(ctx, len(all)); err != nil {
			return err
		}
	}
	results = results[:0]
	for _, d := range all {
		result, err := r.Detach(ctx, d)
		if err != nil {
			return errors.Join(s.partly(ctx, f, results), fate(result, err))
		}
		results = append(results, result)
	}
	return s.changed(ctx, f, results...)
}

// mapName is the name of a map for a hint.
func (s *session) mapName(ctx context.Context, id shardway.MapID) string {
	maps, _ := s.ShardMaps(ctx)
	for _, m := range maps {
		if m.ID == id {
			return m.Name
		}
	}
	return s.set.text("map")
}

// partly prints the changes that were made before one failed.
func (s *session) partly(ctx context.Context, f changeFlags, results []catalog.Result) error {
	if len(results) == 0 {
		return nil
	}
	return s.changed(ctx, f, results...)
}

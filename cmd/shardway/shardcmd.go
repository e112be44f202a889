package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

func shardCommand(a *app) *cobra.Command {
	return group("shard", "Add, list, update, delete, attach and detach the shards of a map",
		"A shard is one database of a shard map, served by one or more servers.\n\n"+locationHelp,
		shardAdd(a), shardList(a), shardShow(a), shardUpdate(a), shardDelete(a), shardLocations(a), shardAttach(a), shardDetach(a))
}

func shardAdd(a *app) *cobra.Command {
	var f changeFlags
	var servers []string
	var status string
	c := &cobra.Command{
		Use: "add NAME LOCATION... --map MAP", Short: "Make a database a shard of a map and create its local map there",
		Long: "The local map's tables are created in the shard's database. The same database may be a\nshard of several maps.\n\n" + locationHelp,
		Args: arguments("NAME", "LOCATION..."),
		Example: example("shardway shard add s1 postgres://db1:5432/tenants --map customers",
			"shardway shard add s2 postgres://db2/tenants --server db2,zone=a --server db3,zone=b --map customers",
			"shardway shard add s3 sqlite:s3.db --map customers --dry-run"),
	}
	mapFlag(c)
	c.Flags().StringArrayVar(&servers, "server", nil, "a server, or tags of one: host:port,tag=value,...; may be repeated")
	c.Flags().StringVar(&status, "status", "online", "online, or offline: takes no new mappings")
	complete(c, "status", "online", "offline")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		l, err := parseLocation(args[1:], servers)
		if err != nil {
			return err
		}
		st, err := parseShardStatus(status)
		if err != nil {
			return err
		}
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		if err := s.vacant(ctx, m, shardway.Shard{Name: args[0], Location: l}, f.dryRun); err != nil {
			return fmt.Errorf("adding shard %q to shard map %q: %w", args[0], m.Name, err)
		}
		return s.change(ctx, f, catalog.AddShard{Map: m, Name: args[0], Location: l, Status: st, Reason: f.reason})
	})
}

func parseShardStatus(text string) (shardway.ShardStatus, error) {
	for _, st := range []shardway.ShardStatus{shardway.ShardOnline, shardway.ShardOffline} {
		if st.String() == text {
			return st, nil
		}
	}
	return 0, &shardway.ArgumentError{Argument: "status", Value: text, Reason: "is neither online nor offline"}
}

func shardList(a *app) *cobra.Command {
	c := &cobra.Command{Use: "list --map MAP", Short: "List the shards of a map", Args: arguments(), Example: example("shardway shard list --map customers")}
	mapFlag(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		shards, err := s.Shards(ctx, m)
		if err != nil {
			return err
		}
		views := viewShards(shards)
		return s.emit(views, func(p *page) { p.shards(views) })
	})
}

func shardShow(a *app) *cobra.Command {
	c := &cobra.Command{Use: "show NAME --map MAP", Short: "Show a shard and how many mappings it has", Args: arguments("NAME"), Example: example("shardway shard show s1 --map customers")}
	mapFlag(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, sh, err := s.shard(ctx, args[0])
		if err != nil {
			return err
		}
		v := struct {
			shardView
			Map      string `json:"map"`
			Mappings int    `json:"mappings"`
			Offline  int    `json:"offline_mappings"`
		}{shardView: viewShard(sh), Map: m.Name}
		for mp, err := range s.Mappings(ctx, store.MappingQuery{Map: m, ShardID: sh.ID}) {
			if err != nil {
				return err
			}
			v.Mappings++
			if mp.Status == shardway.Offline {
				v.Offline++
			}
		}
		return s.emit(v, func(p *page) {
			p.fields("shard", v.Name, "map", v.Map, "status", v.Status, "engine", v.Engine, "database", v.Database)
			for _, srv := range v.Servers {
				p.line("server    %s", srv)
			}
			p.line("mappings  %s", strconv.Itoa(v.Mappings)+", "+strconv.Itoa(v.Offline)+" of them offline")
		})
	})
}

// shard returns the shard of the map that the settings name.
func (s *session) shard(ctx context.Context, name string) (shardway.ShardMap, shardway.Shard, error) {
	m, err := s.shardMap(ctx)
	if err != nil {
		return m, shardway.Shard{}, err
	}
	sh, err := s.Shard(ctx, m, name)
	return m, sh, err
}

func shardUpdate(a *app) *cobra.Command {
	var f changeFlags
	var name, status string
	var locations, servers []string
	var oldGone bool
	var drain drainFlag
	c := &cobra.Command{
		Use: "update NAME --map MAP", Short: "Change a shard's name, location, servers, tags or status in place",
		Long: "The new location must hold the same shard: its local map is checked. When it is a copy, the old\ndatabase loses the shard's mappings in the same change; --old-gone says that it is not there any more.\n--server without --location replaces the list of servers, so name all of them; engine and database stay.\n\n" + locationHelp,
		Args: arguments("NAME"),
		Example: example("shardway shard update s1 --name north --map customers",
			"shardway shard update s1 --location postgres://newhost:5432/tenants --map customers",
			"shardway shard update s1 --server db1:5432,zone=a --server db2:5432,zone=b --map customers",
			"shardway shard update s1 --status offline --map customers"),
	}
	mapFlag(c)
	c.Flags().StringVar(&name, "name", "", "new name")
	c.Flags().StringArrayVar(&locations, "location", nil, "new location; may be repeated")
	c.Flags().StringArrayVar(&servers, "server", nil, "a server, or tags of one: host:port,tag=value,...; may be repeated")
	c.Flags().StringVar(&status, "status", "", "online, or offline: takes no new mappings")
	c.Flags().BoolVar(&oldGone, "old-gone", false, "with a new location: the old database is gone for good and is not asked")
	drain.add(c)
	c.MarkFlagsOneRequired("name", "location", "server", "status")
	complete(c, "status", "online", "offline")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		ch := catalog.UpdateShard{Reason: f.reason, OldGone: oldGone}
		var err error
		if ch.Drain, err = drain.parse(); err != nil {
			return err
		}
		if c.Flags().Changed("name") {
			ch.Name = &name
		}
		if c.Flags().Changed("status") {
			st, err := parseShardStatus(status)
			if err != nil {
				return err
			}
			ch.Status = &st
		}
		m, sh, err := s.shard(ctx, args[0])
		if err != nil {
			return err
		}
		ch.Shard = sh
		if len(locations)+len(servers) > 0 {
			l, err := parseLocation(locations, nil)
			if err != nil {
				return err
			}
			l.Engine = cmp.Or(l.Engine, sh.Location.Engine)
			if len(locations) == 0 {
				l.Database = sh.Location.Database
			}
			if l, err = addServers(l, servers); err != nil {
				return err
			}
			ch.Location = &l
			if err := s.vacant(ctx, m, shardway.Shard{ID: sh.ID, Name: cmp.Or(name, sh.Name), Location: l}, f.dryRun); err != nil {
				return fmt.Errorf("updating shard %q of shard map %q: %w", sh.Name, m.Name, err)
			}
		}
		err = s.change(ctx, f, ch)
		if len(servers) > 0 && len(locations) == 0 {
			err = replacing(err)
		}
		return err
	})
}

// vacant refuses a location whose database is another shard of the map under
// another address, such as localhost and 127.0.0.1: only the database itself
// can tell. What the map's own rows tell is left to the catalog. A database
// that does not answer is an error in a dry run; the change itself finds out.
func (s *session) vacant(ctx context.Context, m shardway.ShardMap, wanted shardway.Shard, dryRun bool) error {
	l, err := s.locals.Normalize(wanted.Location)
	if err != nil {
		return nil //nolint:nilerr // the catalog refuses it with all it has to say
	}
	shards, err := s.Shards(ctx, m)
	if err != nil {
		return err
	}
	for _, sh := range shards {
		if sh.ID != wanted.ID && (sh.Name == wanted.Name || sh.Location.Overlaps(l)) {
			return nil
		}
	}
	there, err := s.localMap(ctx, m, l)
	if err != nil && dryRun {
		return fmt.Errorf("looking at the database: %w", err)
	}
	if err != nil {
		return nil //nolint:nilerr // the change will meet it, and says what has become of it
	}
	for _, sh := range shards {
		if there != nil && sh.ID == there.Shard.ID && sh.ID != wanted.ID {
			return fmt.Errorf("the database at %s is shard %q already, at %s: %w", l, sh.Name, sh.Location, shardway.ErrExists)
		}
	}
	return nil
}

// localMap reads what a database keeps of a map, nil for nothing.
func (s *session) localMap(ctx context.Context, m shardway.ShardMap, l shardway.Location) (*store.LocalMap, error) {
	global, err := s.global.Describe(ctx)
	if err != nil {
		return nil, err
	}
	local, err := s.locals.Open(ctx, l)
	if err != nil {
		return nil, err
	}
	d, err := local.Describe(ctx)
	if errors.Is(err, shardway.ErrNoStore) {
		return nil, nil //nolint:nilnil // nothing, as documented
	}
	if err == nil && d.ID != global.ID {
		err = shardway.ErrForeignStore
	}
	if err != nil {
		return nil, err
	}
	maps, err := local.Read(ctx, m.ID)
	if err != nil || len(maps) == 0 {
		return nil, err
	}
	return &maps[0], nil
}

func shardDelete(a *app) *cobra.Command {
	var f changeFlags
	c := &cobra.Command{
		Use: "delete NAME --map MAP", Short: "Take a shard without mappings out of its map; its database is left alone", Args: arguments("NAME"),
		Example: example("shardway shard delete s1 --map customers --reason 'emptied by the move of May'"),
	}
	mapFlag(c)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		_, sh, err := s.shard(ctx, args[0])
		if err != nil {
			return err
		}
		return s.change(ctx, f, catalog.DeleteShard{Shard: sh, Reason: f.reason})
	})
}

func shardLocations(a *app) *cobra.Command {
	c := &cobra.Command{Use: "locations", Short: "List the distinct locations of all shards of all maps", Args: arguments(), Example: example("shardway shard locations --output json")}
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		locations, err := s.Locations(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(locations, func(a, b shardway.Location) int { return cmp.Compare(a.String(), b.String()) })
		views := []locationView{}
		var rows [][]string
		for _, l := range locations {
			v := viewLocation(l)
			views = append(views, v)
			rows = append(rows, []string{v.Engine, v.Database, v.servers()})
		}
		return s.emit(views, func(p *page) { p.table([]string{"engine", "database", "servers"}, rows) })
	})
}

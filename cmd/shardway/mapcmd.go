package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

func mapCommand(a *app) *cobra.Command {
	return group("map", "Create, list and delete shard maps",
		"A shard map says which shard holds which keys. In a list map every mapping is one key, in a\nrange map a range of keys [low, high). A map has one kind of keys: int32, int64, uint64, uuid,\nstring, bytes, time or duration.",
		mapCreate(a), mapList(a), mapShow(a), mapDelete(a))
}

func mapCreate(a *app) *cobra.Command {
	var f changeFlags
	var kind, key string
	c := &cobra.Command{
		Use: "create NAME --kind list|range --key KIND", Short: "Create an empty shard map", Args: arguments("NAME"),
		Example: example("shardway map create customers --kind range --key int64", "shardway map create tenants --kind list --key uuid --dry-run"),
	}
	c.Flags().StringVar(&kind, "kind", "", "list (single keys) or range (ranges of keys)")
	c.Flags().StringVar(&key, "key", "", "kind of the keys: int32, int64, uint64, uuid, string, bytes, time or duration")
	required(c, "kind", "key")
	complete(c, "kind", "list", "range")
	complete(c, "key", "int32", "int64", "uint64", "uuid", "string", "bytes", "time", "duration")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		mapKind, err := parseMapKind(kind)
		if err != nil {
			return err
		}
		keyKind, err := shardway.ParseKeyKind(key)
		if err != nil {
			return err
		}
		return s.change(ctx, f, catalog.CreateShardMap{Name: args[0], Kind: mapKind, KeyKind: keyKind, Reason: f.reason})
	})
}

func parseMapKind(name string) (shardway.MapKind, error) {
	for _, k := range []shardway.MapKind{shardway.ListMap, shardway.RangeMap} {
		if k.String() == name {
			return k, nil
		}
	}
	return 0, &shardway.ArgumentError{Argument: "map kind", Value: name, Reason: "is neither list nor range"}
}

func mapList(a *app) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the shard maps", Args: arguments(), Example: example("shardway map list", "shardway map list --output json")}
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		maps, err := s.ShardMaps(ctx)
		if err != nil {
			return err
		}
		all, err := s.Shards(ctx, shardway.ShardMap{})
		if err != nil {
			return err
		}
		shards := map[shardway.MapID]int{}
		for _, sh := range all {
			shards[sh.MapID]++
		}
		views := []mapView{}
		var rows [][]string
		for _, m := range maps {
			v := viewMap(m, shards[m.ID])
			views = append(views, v)
			rows = append(rows, []string{v.Name, v.Kind, v.KeyKind, strconv.FormatInt(v.Generation, 10), strconv.Itoa(v.Shards)})
		}
		return s.emit(views, func(p *page) { p.table([]string{"map", "kind", "key", "generation", "shards"}, rows) })
	})
}

func mapShow(a *app) *cobra.Command {
	c := &cobra.Command{Use: "show NAME", Short: "Show a shard map and its shards", Args: arguments("NAME"), Example: example("shardway map show customers")}
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.ShardMap(ctx, args[0])
		if err != nil {
			return err
		}
		shards, err := s.Shards(ctx, m)
		if err != nil {
			return err
		}
		v := struct {
			mapView
			ShardList []shardView `json:"shards"`
		}{viewMap(m, len(shards)), viewShards(shards)}
		return s.emit(v, func(p *page) {
			p.fields("map", m.Name, "kind", v.Kind, "key", v.KeyKind, "generation", strconv.FormatInt(m.Generation, 10))
			p.line("")
			p.shards(v.ShardList)
		})
	})
}

func mapDelete(a *app) *cobra.Command {
	var f changeFlags
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a shard map without shards", Args: arguments("NAME"),
		Example: example("shardway map delete customers --reason 'moved to tenants'"),
	}
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		m, err := s.ShardMap(ctx, args[0])
		if err != nil {
			return err
		}
		return s.change(ctx, f, catalog.DeleteShardMap{Map: m, Reason: f.reason})
	})
}

// mapFlag adds the flag that names the shard map; its value may come from the
// other settings too.
func mapFlag(c *cobra.Command) { c.Flags().String("map", "", findSetting("map").usage) }

// shardMap returns the map that the settings name.
func (s *session) shardMap(ctx context.Context) (shardway.ShardMap, error) {
	name := s.set.text("map")
	if name == "" {
		return shardway.ShardMap{}, &hinted{
			err:  &shardway.ArgumentError{Argument: "map", Reason: "is not set"},
			hint: "give --map NAME or set SHARDWAY_MAP; shardway map list shows the shard maps",
		}
	}
	return s.ShardMap(ctx, name)
}

// required marks flags that must be given.
func required(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		if err := c.MarkFlagRequired(f); err != nil {
			panic(err) // there is no such flag: a mistake in the program
		}
	}
}

// complete gives the shell the values of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag: a mistake in the program
	}
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

func mappingEven(a *app) *cobra.Command {
	var f changeFlags
	var n int
	var names []string
	c := &cobra.Command{
		Use: "even --n N --map MAP", Short: "Cut all keys into N even ranges and spread them over the shards", Args: arguments(),
		Long:    "For maps with int32, int64, uint64 or uuid keys. Neighbouring ranges go to the same shard.",
		Example: example("shardway mapping even --n 8 --map tenants --dry-run", "shardway mapping even --n 4 --shard s1 --shard s2 --map tenants"),
	}
	mapFlag(c)
	c.Flags().IntVar(&n, "n", 0, "how many ranges")
	c.Flags().StringArrayVar(&names, "shard", nil, "a shard that gets ranges; may be repeated (default all that are online)")
	required(c, "n")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		shards, err := s.takers(ctx, m, names)
		if err != nil {
			return err
		}
		ranges, err := shardway.EvenRanges(m.KeyKind, n)
		if err != nil {
			return err
		}
		ch := catalog.AddMappings{Map: m, Reason: f.reason}
		for i, r := range ranges {
			ch.New = append(ch.New, catalog.NewMapping{Range: r, ShardID: shards[i*len(shards)/n].ID})
		}
		return s.change(ctx, f, ch)
	})
}

// takers returns the named shards, or all shards that take new mappings.
func (s *session) takers(ctx context.Context, m shardway.ShardMap, names []string) (shards []shardway.Shard, err error) {
	for _, name := range names {
		sh, err := s.Shard(ctx, m, name)
		if err != nil {
			return nil, err
		}
		shards = append(shards, sh)
	}
	if len(names) > 0 {
		return shards, nil
	}
	all, err := s.Shards(ctx, m)
	for _, sh := range all {
		if sh.Status == shardway.ShardOnline {
			shards = append(shards, sh)
		}
	}
	if err == nil && len(shards) == 0 {
		err = fmt.Errorf("shard map %q has no shard that takes new mappings: %w", m.Name, shardway.ErrShardNotFound)
	}
	return shards, err
}

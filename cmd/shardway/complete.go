package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway/store"
)

// lookup finds what the shell offers.
type lookup func(context.Context, *session) []string

// flagNames are the flags whose values stand in the store.
var flagNames = map[string]lookup{
	"map": mapNames, "shard": shardNames, "to": shardNames,
	"id": mappingIDs, "left-id": mappingIDs, "right-id": mappingIDs,
}

// argumentNames are the commands whose argument is the name of something that
// is there, by what they belong to.
var argumentNames = map[string]lookup{
	"map show": mapNames, "map delete": mapNames,
	"shard show": shardNames, "shard update": shardNames, "shard delete": shardNames, "shard detach": shardNames,
	"recovery detect": shardNames, "recovery show": shardNames, "recovery resolve": shardNames,
	"servers":    shardNames,
	"operations": operationIDs,
}

// completeNames gives the shell the names of maps and shards for the arguments
// and flags of a command that have them, and no files where none are wanted.
// When the store does not answer there is nothing to offer, and no message.
func (a *app) completeNames(c *cobra.Command) {
	for flag, names := range flagNames {
		if c.Flags().Lookup(flag) == nil {
			continue
		}
		err := c.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.names(cmd, names), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // completed twice: a mistake in the program
		}
	}
	if c.ValidArgsFunction != nil || c.ValidArgs != nil {
		return
	}
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		names := argumentNames[path]
		if names == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.names(cmd, names), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) names(cmd *cobra.Command, names lookup) []string {
	if err := a.set.load(cmd.Flags()); err != nil {
		return nil
	}
	s, err := a.open()
	if err != nil {
		return nil
	}
	defer func() { _ = s.close() }()
	return names(cmd.Context(), s)
}

func mapNames(ctx context.Context, s *session) (names []string) {
	maps, _ := s.ShardMaps(ctx)
	for _, m := range maps {
		names = append(names, m.Name)
	}
	return names
}

func shardNames(ctx context.Context, s *session) (names []string) {
	m, err := s.shardMap(ctx)
	if err != nil {
		return nil
	}
	shards, _ := s.Shards(ctx, m)
	for _, sh := range shards {
		names = append(names, sh.Name)
	}
	return names
}

// mappingIDs are those of the first mappings, with what they cover.
func mappingIDs(ctx context.Context, s *session) (ids []string) {
	m, err := s.shardMap(ctx)
	if err != nil {
		return nil
	}
	const most = 200
	for mp, err := range s.Mappings(ctx, store.MappingQuery{Map: m, Limit: most}) {
		if err != nil {
			return nil
		}
		ids = append(ids, cobra.CompletionWithDesc(mp.ID.String(), printable(mp.Format(m.Kind))))
	}
	return ids
}

func operationIDs(ctx context.Context, s *session) (ids []string) {
	pending, _ := s.Operations(ctx)
	for _, op := range pending {
		ids = append(ids, cobra.CompletionWithDesc(op.ID.String(), printable(op.Summary)))
	}
	return ids
}

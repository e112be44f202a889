package main

import (
	"context"

	"github.com/spf13/cobra"
)

// completeNames gives the shell the names of maps and shards for the flags of
// a command that have them, and no files where none are wanted. When the store
// does not answer there is nothing to offer, and no message.
func (a *app) completeNames(c *cobra.Command) {
	if c.ValidArgsFunction == nil && c.ValidArgs == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, names := range map[string]func(context.Context, *session) []string{"map": mapNames, "shard": shardNames, "to": shardNames} {
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
}

func (a *app) names(cmd *cobra.Command, names func(context.Context, *session) []string) []string {
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

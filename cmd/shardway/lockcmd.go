package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

func mappingLock(a *app) *cobra.Command {
	var f changeFlags
	var k pick
	var token, owner string
	var expires time.Duration
	c := &cobra.Command{
		Use: "lock --key KEY --map MAP", Short: "Keep others from changing a mapping", Args: arguments(),
		Long:    "Prints the token with which its owner changes the mapping and unlocks it. Lookups and\nconnections go on as before. --reason is shown to those who meet the lock.",
		Example: example("shardway mapping lock --key 42 --map customers --owner 'night shift' --reason 'move of May' --expires 2h"),
	}
	mapFlag(c)
	k.addRequired(c)
	c.Flags().StringVar(&owner, "owner", "", "whose lock it is (default the setting who)")
	c.Flags().StringVar(&token, "token", "", "token of the lock (default a new one)")
	c.Flags().DurationVar(&expires, "expires", 0, "how long the lock stands, such as 2h (default until unlocked)")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		if c.Flags().Changed("expires") && expires <= 0 {
			return usagef("--expires %s is not a length of time that lies ahead", expires)
		}
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		mp, err := k.find(ctx, s, m)
		if err != nil {
			return err
		}
		lock := shardway.Lock{Token: shardway.LockToken(token), Owner: cmp.Or(owner, s.who()), Reason: f.reason}
		if !c.Flags().Changed("token") {
			lock.Token = catalog.NewLockToken()
		}
		if expires > 0 {
			now, err := s.global.Now(ctx) // by which it runs out
			if err != nil {
				return err
			}
			lock.Expires = now.UTC().Add(expires)
		}
		shown := lock.Token
		if f.dryRun || c.Flags().Changed("token") {
			shown = ""
		}
		return s.changeWith(ctx, f, catalog.LockMapping{Mapping: mp, Lock: lock, Reason: f.reason}, shown)
	})
}

func mappingUnlock(a *app) *cobra.Command {
	var f changeFlags
	var k pick
	var token, allOf string
	var force bool
	c := &cobra.Command{
		Use: "unlock --key KEY --map MAP --token TOKEN | --force", Short: "Free a mapping, or all mappings locked with one token", Args: arguments(),
		Example: example("shardway mapping unlock --key 42 --map customers --token TOKEN",
			"shardway mapping unlock --key 42 --map customers --force --reason 'owner has left'",
			"shardway mapping unlock --all-of TOKEN --map customers"),
	}
	mapFlag(c)
	k.add(c, "key", "id", "mapping")
	c.Flags().StringVar(&token, "token", "", "token of the lock")
	c.Flags().BoolVar(&force, "force", false, "free it whoever locked it")
	c.Flags().StringVar(&allOf, "all-of", "", "free every mapping of the map locked with this token")
	c.MarkFlagsOneRequired("key", "id", "all-of")
	c.MarkFlagsOneRequired("token", "force", "all-of")
	c.MarkFlagsMutuallyExclusive("token", "force", "all-of")
	c.MarkFlagsMutuallyExclusive("key", "all-of")
	c.MarkFlagsMutuallyExclusive("id", "all-of")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		if c.Flags().Changed("all-of") {
			return s.change(ctx, f, catalog.UnlockOwner{Map: m, Token: shardway.LockToken(allOf), Reason: f.reason})
		}
		mp, err := k.find(ctx, s, m)
		if err != nil {
			return err
		}
		return s.change(ctx, f, catalog.UnlockMapping{Mapping: mp, Token: shardway.LockToken(token), Force: force, Reason: f.reason})
	})
}

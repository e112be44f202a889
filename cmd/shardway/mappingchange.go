package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

// tokenFlag adds the flag for the lock of the mapping that a command changes.
func tokenFlag(c *cobra.Command, token *string) {
	c.Flags().StringVar(token, "token", "", "token of the lock, when the mapping is locked")
}

func mappingSplit(a *app) *cobra.Command {
	var f changeFlags
	var k pick
	var at, token string
	c := &cobra.Command{
		Use: "split --at KEY --map MAP", Short: "Split a range in two, on the same shard", Args: arguments(),
		Long: "The mapping that holds the split point is split, unless --key or --id name another one, which\nthen must hold it.",
		Example: example("shardway mapping split --at 500 --map customers",
			"shardway mapping split --at 2026-07-01 --map days --dry-run"),
	}
	mapFlag(c)
	c.Flags().StringVar(&at, "at", "", "first key of the upper part")
	required(c, "at")
	k.add(c, "key", "id", "mapping")
	tokenFlag(c, &token)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		point, err := parseKey(m, "split point", at)
		if err != nil {
			return err
		}
		if k.key == "" && k.id == "" {
			k.key = at
		}
		mp, err := k.find(ctx, s, m)
		if err != nil {
			return err
		}
		return s.change(ctx, f, catalog.SplitMapping{Mapping: mp, At: point, Token: shardway.LockToken(token), Reason: f.reason})
	})
}

func mappingMerge(a *app) *cobra.Command {
	var f changeFlags
	var left, right pick
	var token, rightToken string
	c := &cobra.Command{
		Use: "merge --left KEY --right KEY --map MAP", Short: "Merge two neighbouring ranges of one shard and status", Args: arguments(),
		Example: example("shardway mapping merge --left 0 --right 500 --map customers"),
	}
	mapFlag(c)
	left.add(c, "left", "left-id", "lower mapping")
	right.add(c, "right", "right-id", "upper mapping")
	c.MarkFlagsOneRequired("left", "left-id")
	c.MarkFlagsOneRequired("right", "right-id")
	tokenFlag(c, &token)
	c.Flags().StringVar(&rightToken, "right-token", "", "token of the upper mapping's lock, when it has another one than the lower's")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		ch := catalog.MergeMappings{Token: shardway.LockToken(token), RightToken: shardway.LockToken(token), Reason: f.reason}
		if rightToken != "" {
			ch.RightToken = shardway.LockToken(rightToken)
		}
		if ch.Left, err = left.find(ctx, s, m); err != nil {
			return err
		}
		if ch.Right, err = right.find(ctx, s, m); err != nil {
			return err
		}
		return s.change(ctx, f, ch)
	})
}

func mappingMove(a *app) *cobra.Command {
	var f changeFlags
	var k pick
	var to, token, status string
	var drain drainFlag
	c := &cobra.Command{
		Use: "move-metadata --key KEY --to SHARD --map MAP", Short: "Give an offline mapping to another shard: the map only, no rows", Args: arguments(),
		Long: "Only the map changes. Copy the rows first; from then on keys of the mapping are routed to the\nother shard. An online mapping is refused, unless --status offline takes it offline with the\nmove. --status online brings it online with the move.",
		Example: example("shardway mapping offline --key 42 --map customers",
			"shardway mapping move-metadata --key 42 --to s2 --status online --map customers"),
	}
	mapFlag(c)
	k.addRequired(c)
	c.Flags().StringVar(&to, "to", "", "name of the shard that gets the mapping")
	required(c, "to")
	c.Flags().StringVar(&status, "status", "", "online or offline: status after the move (default as before)")
	complete(c, "status", "online", "offline")
	tokenFlag(c, &token)
	drain.add(c)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		ch := catalog.UpdateMapping{Token: shardway.LockToken(token), Reason: f.reason}
		if ch.Drain, err = drain.parse(); err != nil {
			return err
		}
		if status != "" {
			st, err := parseMappingStatus(status)
			if err != nil {
				return err
			}
			ch.Status = &st
		}
		target, err := s.Shard(ctx, m, to)
		if err != nil {
			return err
		}
		ch.ShardID = &target.ID
		if ch.Mapping, err = k.find(ctx, s, m); err != nil {
			return err
		}
		err = s.change(ctx, f, ch)
		return k.offlineFirst(m, err, ", and so does --status offline with this command")
	})
}

const offlineText = "Transactions that keep the mapping where it is, and connections that hold it, are waited for as long as\n" +
	"--drain says. Then the sessions that are at work for this mapping are ended, and no others."

// mappingStatus is the command offline or online.
func mappingStatus(a *app, want shardway.MappingStatus) *cobra.Command {
	var f changeFlags
	var k pick
	var token string
	var drain drainFlag
	name := want.String()
	short, long := "Take a mapping offline: no new connections for its keys", offlineText
	if want == shardway.Online {
		short, long = "Bring a mapping back online", ""
	}
	c := &cobra.Command{
		Use: name + " --key KEY --map MAP", Short: short, Long: long, Args: arguments(),
		Example: example("shardway mapping " + name + " --key 42 --map customers"),
	}
	mapFlag(c)
	k.addRequired(c)
	tokenFlag(c, &token)
	if want == shardway.Offline {
		drain.add(c)
	}
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		mp, err := k.find(ctx, s, m)
		if err != nil {
			return err
		}
		ch := catalog.UpdateMapping{Mapping: mp, Token: shardway.LockToken(token), Reason: f.reason}
		if ch.Drain, err = drain.parse(); err != nil {
			return err
		}
		if mp.Status != want { // else there is nothing to do
			ch.Status = &want
		}
		return s.change(ctx, f, ch)
	})
}

func mappingDelete(a *app) *cobra.Command {
	var f changeFlags
	var k pick
	var token string
	c := &cobra.Command{
		Use: "delete --key KEY --map MAP", Short: "Delete an offline mapping; rows are left alone", Args: arguments(),
		Example: example("shardway mapping delete --key 42 --map customers"),
	}
	mapFlag(c)
	k.addRequired(c)
	tokenFlag(c, &token)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		mp, err := k.find(ctx, s, m)
		if err != nil {
			return err
		}
		err = s.change(ctx, f, catalog.DeleteMapping{Mapping: mp, Token: shardway.LockToken(token), Reason: f.reason})
		return k.offlineFirst(m, err, "")
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
)

func recoveryRebuild(a *app) *cobra.Command {
	var f repairFlags
	c := &cobra.Command{
		Use: "rebuild local|global [SHARD]... --map MAP", Short: "Rebuild local maps from the global one, or the global map from the local ones",
		Long: "rebuild local makes the local maps of all shards, or of those named, what the global map says,\nalso in databases that are empty or were restored. rebuild global makes the global map what the\nlocal maps say; a key that two of them claim stays as it is and is named (exit code 8). Shards are\nworked on side by side, and one that cannot be rebuilt does not stop the others. Asks first.",
		Args: arguments("local or global", "[SHARD]..."), ValidArgs: []string{"local", "global"},
		Example: example("shardway recovery rebuild local s1 --map customers --dry-run", "shardway recovery rebuild local --map customers --yes",
			"shardway recovery rebuild global --map customers --yes --reason 'store restored from the backup of Sunday'"),
	}
	mapFlag(c)
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		if args[0] != "local" && args[0] != "global" {
			return &shardway.ArgumentError{Argument: "what to rebuild", Value: args[0], Reason: "is neither local nor global"}
		}
		asks, err := s.asks(f.yes, f.dryRun)
		if err != nil {
			return err
		}
		m, err := s.shardMap(ctx)
		if err != nil {
			return err
		}
		b := recovery.Rebuild{Takeover: f.takeover, Force: f.force, IgnoreUnreachable: f.ignoreUnreachable, DryRun: f.dryRun, Reason: f.reason}
		if b.Shards, err = s.shardIDs(ctx, m, args[1:]); err != nil {
			return err
		}
		if asks {
			reports, err := s.compare(ctx, args[1:])
			if err != nil {
				return err
			}
			var p page
			p.reports(reports)
			if _, err := s.out.Write(p.Bytes()); err != nil {
				return err
			}
			if err := s.confirm(ctx, len(reports)); err != nil {
				return err
			}
		}
		return s.rebuild(ctx, m, args[0], b)
	})
}

func (s *session) rebuild(ctx context.Context, m shardway.ShardMap, what string, b recovery.Rebuild) error {
	r, end, err := s.recovery()
	if err != nil {
		return err
	}
	defer end()
	work := r.RebuildLocal
	if what == "global" {
		work = r.RebuildGlobal
	}
	all, err := work(ctx, m, b)
	end()
	views := []effectView{}
	errs := []error{err}
	for _, one := range all {
		v := s.viewEffect(ctx, m, one.Shard.Name, b.DryRun, one.Effect)
		for _, c := range one.Conflicts {
			v.Conflicts = append(v.Conflicts, conflictView{Covers: shardway.Mapping{Range: c.Range}.Format(m.Kind), Other: c.Other})
		}
		if one.Err != nil {
			v.Error = message(one.Err)
			errs = append(errs, fmt.Errorf("shard %q: %w", one.Shard.Name, one.Err))
		}
		views = append(views, v)
	}
	return errors.Join(s.emit(views, func(p *page) { p.rebuilt(views) }), errors.Join(errs...))
}

func (p *page) rebuilt(views []effectView) {
	var rows [][]string
	for _, v := range views {
		state := "done"
		switch {
		case v.Error != "":
			state = "failed"
		case v.DryRun:
			state = "would be done"
		}
		rows = append(rows, []string{v.Shard, state, v.text(), strconv.Itoa(len(v.Conflicts))})
	}
	p.table([]string{"shard", "state", "changes", "conflicts"}, rows)
}

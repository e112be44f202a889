package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
)

// repairFlags are the flags of commands that repair maps.
type repairFlags struct {
	changeFlags
	yes, takeover, force, ignoreUnreachable bool
}

func (f *repairFlags) add(c *cobra.Command) {
	f.changeFlags.add(c)
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.takeover, "takeover", false, "take over a database whose local store belongs to another global store, or whose local map is that of a shard that is gone")
	c.Flags().BoolVar(&f.force, "force", false, "also change mappings that are locked by others")
	c.Flags().BoolVar(&f.ignoreUnreachable, "ignore-unreachable", false, "give keys to a shard although others cannot be asked whether they have them")
}

// asks reports whether somebody has to agree first, and an error when nobody
// can be asked.
func (a *app) asks(yes, dryRun bool) (bool, error) {
	if a.json() && !yes && !dryRun {
		return false, usagef("--yes is missing: with JSON output nobody is asked")
	}
	return !yes && !dryRun, nil
}

// effectView is the JSON form of what a resolution does to one shard.
type effectView struct {
	Map           string         `json:"map"`
	Shard         string         `json:"shard"`
	DryRun        bool           `json:"dry_run"`
	Changed       bool           `json:"changed"`
	Operation     string         `json:"operation,omitempty"`
	Row           bool           `json:"shard_row"`         // the shard's row in the local map is written
	Deployed      bool           `json:"local_store"`       // the local store is created
	Adopted       string         `json:"adopted,omitempty"` // global store that the local store belonged to
	GlobalRemoved []mappingView  `json:"global_removed"`
	GlobalAdded   []mappingView  `json:"global_added"`
	LocalRemoved  []mappingView  `json:"local_removed"`
	LocalAdded    []mappingView  `json:"local_added"`
	Conflicts     []conflictView `json:"conflicts,omitempty"`
	Error         string         `json:"error,omitempty"`
}

type conflictView struct {
	Covers string `json:"covers"`
	Other  string `json:"other_shard"`
}

func (s *session) viewEffect(ctx context.Context, m shardway.ShardMap, shard string, dry bool, e recovery.Effect) effectView {
	v := effectView{Map: m.Name, Shard: shard, DryRun: dry, Changed: !dry && !e.Nothing(), Row: e.Row, Deployed: e.Deployed, Adopted: e.Adopted}
	if e.Result.Operation != 0 {
		v.Operation = e.Result.Operation.String()
	}
	view := func(mappings []shardway.Mapping) []mappingView {
		if len(mappings) == 0 {
			return []mappingView{}
		}
		return s.viewMappings(ctx, m, mappings)
	}
	v.GlobalRemoved, v.GlobalAdded = view(e.GlobalRemoved), view(e.GlobalAdded)
	v.LocalRemoved, v.LocalAdded = view(e.LocalRemoved), view(e.LocalAdded)
	return v
}

// text is one line for people.
func (v effectView) text() string {
	var parts []string
	note := func(side string, removed, added int) {
		if removed+added > 0 {
			parts = append(parts, fmt.Sprintf("%s map -%d +%d mappings", side, removed, added))
		}
	}
	note("global", len(v.GlobalRemoved), len(v.GlobalAdded))
	note("local", len(v.LocalRemoved), len(v.LocalAdded))
	if v.Row {
		parts = append(parts, "the shard's row in its local map")
	}
	if v.Deployed {
		parts = append(parts, "a new local store")
	}
	if v.Adopted != "" {
		parts = append(parts, "taken over from global store "+v.Adopted)
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	return strings.Join(parts, ", ")
}

func recoveryResolve(a *app) *cobra.Command {
	var f repairFlags
	var from, keep string
	var choices []string
	c := &cobra.Command{
		Use: "resolve [SHARD]... --map MAP --keep global|local|ignore", Short: "Take one side of the differences for the truth, in whole or by ranges",
		Long: "With --keep global the local map becomes what the global map says, with --keep local the other\nway round. --choose speaks of a part, and --keep of the rest: local:0..100 is a range, local:7.. is\nopen, local:7 is one key of a list map. With --from the differences must still be those of the file\n(exit code 4 otherwise). Shows what it will do and asks.",
		Args: arguments("[SHARD]..."),
		Example: example("shardway recovery resolve s1 --map customers --keep global --dry-run", "shardway recovery resolve s1 --map customers --keep local --yes",
			"shardway recovery resolve s1 --map customers --choose local:0..100 --choose global:100..200",
			"shardway recovery resolve --map customers --from report.json --keep global"),
	}
	mapFlag(c)
	c.Flags().StringVar(&keep, "keep", "ignore", "global, local or ignore")
	c.Flags().StringArrayVar(&choices, "choose", nil, "the side to keep for a part: SIDE:LOW..HIGH, or SIDE:KEY in a list map; may be repeated")
	c.Flags().StringVar(&from, "from", "", "resolve what a file of detect --out says")
	c.MarkFlagsOneRequired("keep", "choose")
	complete(c, "keep", "global", "local", "ignore")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		side, err := parseKeep(keep)
		if err != nil {
			return err
		}
		asks, err := s.asks(f.yes, f.dryRun)
		if err != nil {
			return err
		}
		reports, err := s.toResolve(ctx, from, args)
		if err != nil {
			return err
		}
		if len(choices) > 0 {
			if err := s.checkChoices(ctx, choices, reports, len(args) == 1); err != nil {
				return err
			}
		}
		var all []recovery.Resolution
		for _, rep := range reports {
			res := recovery.Resolution{Report: rep, Keep: side, Takeover: f.takeover, Force: f.force, IgnoreUnreachable: f.ignoreUnreachable, Reason: f.reason}
			if res.Choices, err = parseChoices(rep.Map, choices); err != nil {
				return err
			}
			all = append(all, res)
		}
		return s.resolve(ctx, all, f.dryRun, asks)
	})
}

// checkChoices refuses choices that speak of several shards or cannot be read,
// also where there is nothing to resolve.
func (s *session) checkChoices(ctx context.Context, choices []string, reports []recovery.Report, named bool) error {
	if len(reports) > 1 || len(reports) == 0 && !named {
		return usagef("--choose speaks of one shard: name it")
	}
	if len(reports) == 1 {
		return nil // they are read with its map
	}
	m, err := s.shardMap(ctx)
	if err != nil {
		return err
	}
	_, err = parseChoices(m, choices)
	return err
}

// toResolve returns the reports of a file, else those of the shards as they are,
// without those that have nothing to resolve.
func (s *session) toResolve(ctx context.Context, from string, names []string) (reports []recovery.Report, err error) {
	if from == "" {
		reports, err = s.compare(ctx, names)
	} else {
		reports, err = savedReports(from, names)
	}
	var some []recovery.Report
	for _, rep := range reports {
		if !rep.Clean() {
			some = append(some, rep)
		}
	}
	return some, err
}

func (s *session) resolve(ctx context.Context, all []recovery.Resolution, dryRun, asks bool) error {
	r, end, err := s.recovery()
	if err != nil {
		return err
	}
	defer end()
	if asks && len(all) > 0 {
		var p page
		for _, res := range all {
			e, err := r.Preview(ctx, res)
			if err != nil {
				return err
			}
			p.effect(s.viewEffect(ctx, res.Report.Map, res.Report.Shard.Name, true, e))
		}
		end()
		if _, err := s.out.Write(p.Bytes()); err != nil {
			return err
		}
		if err := s.confirm(ctx, len(all)); err != nil {
			return err
		}
	}
	work := r.Resolve
	if dryRun {
		work = r.Preview
	}
	views := []effectView{}
	var errs []error
	for _, res := range all {
		e, err := work(ctx, res)
		v := s.viewEffect(ctx, res.Report.Map, res.Report.Shard.Name, dryRun, e)
		if err = fate(e.Result, err); err != nil && len(all) == 1 {
			return err
		}
		if err != nil {
			v.Error, v.Changed = message(err), false
			errs = append(errs, err)
		}
		views = append(views, v)
	}
	end()
	return errors.Join(s.emit(views, func(p *page) { p.effects(views) }), errors.Join(errs...))
}

func (p *page) effects(views []effectView) {
	if len(views) == 0 {
		p.line("nothing to do: the maps say the same")
	}
	for _, v := range views {
		p.effect(v)
	}
}

func (p *page) effect(v effectView) {
	lead := "shard " + v.Shard
	switch {
	case v.Error != "":
		p.line("%s: failed", lead)
		return
	case v.DryRun:
		lead += " would get"
	}
	p.line("%s: %s", lead, v.text())
	const few = 10
	list := func(mark string, views []mappingView) {
		for _, m := range views[:min(len(views), few)] {
			p.line("  %s %s on %s, %s", mark, m.covers, m.Shard, m.Status)
		}
		if more := len(views) - few; more > 0 {
			p.line("  %s and %d more", mark, more)
		}
	}
	list("global -", v.GlobalRemoved)
	list("global +", v.GlobalAdded)
	list("local  -", v.LocalRemoved)
	list("local  +", v.LocalAdded)
}

func parseKeep(text string) (recovery.Keep, error) {
	for _, k := range []recovery.Keep{recovery.Ignore, recovery.KeepGlobal, recovery.KeepLocal} {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, &shardway.ArgumentError{Argument: "side to keep", Value: text, Reason: "is neither global, local nor ignore"}
}

// parseChoices reads texts like local:0..100.
func parseChoices(m shardway.ShardMap, texts []string) (choices []recovery.Choice, err error) {
	for _, text := range texts {
		side, keys, ok := strings.Cut(text, ":")
		if !ok {
			return nil, &shardway.ArgumentError{Argument: "choice", Value: text, Reason: "is not SIDE:LOW..HIGH or SIDE:KEY"}
		}
		var ch recovery.Choice
		if ch.Keep, err = parseKeep(side); err != nil {
			return nil, err
		}
		low, high, isRange := strings.Cut(keys, "..")
		if m.Kind == shardway.ListMap {
			low, isRange = keys, true
			high = ""
		}
		if !isRange {
			return nil, &shardway.ArgumentError{Argument: "choice", Value: text, Reason: "is not SIDE:LOW..HIGH, as a range map needs it"}
		}
		ch.Range.Low = shardway.MinKey(m.KeyKind)
		if low != "" || m.Kind == shardway.ListMap {
			if ch.Range.Low, err = shardway.ParseKey(m.KeyKind, low); err != nil {
				return nil, err
			}
		}
		if high != "" {
			if ch.Range.High, err = shardway.ParseKey(m.KeyKind, high); err != nil {
				return nil, err
			}
		}
		choices = append(choices, ch)
	}
	return choices, nil
}

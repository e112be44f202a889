package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/store"
)

const recoveryHelp = `After a restore, a failover, a renamed database or a lost disk the global map and the local map
on a shard may disagree. detect finds out where, show lists it, resolve takes one side for the
truth, in whole or by ranges, and rebuild does so for many shards. Only maps change, never rows
of users. A key never gets two owners: that is refused, naming both. Everything runs through the
same log as other changes and may be interrupted at any time.`

func recoveryCommand(a *app) *cobra.Command {
	return group("recovery", "Find and resolve differences between the global map and the local maps on shards", recoveryHelp,
		recoveryDetect(a), recoveryShow(a), recoveryResolve(a), recoveryRebuild(a), recoveryGiveUp(a))
}

// recovery returns the means to compare and repair. Progress is shown as what
// is going on, on a terminal; the returned function takes it away.
func (s *session) recovery() (r *recovery.Recovery, end func(), err error) {
	var bar *progress
	doing := ""
	told := func(p recovery.Progress) {
		if p.Doing != doing {
			bar.end()
			doing, bar = p.Doing, newProgress(s.errs, p.Doing, p.Total)
		}
		bar.step()
	}
	r, err = recovery.New(s.global, s.locals, s.Catalog, recovery.Config{Progress: told})
	return r, func() { bar.end() }, err
}

// shardIDs returns the ids of the shards with the given names.
func (s *session) shardIDs(ctx context.Context, m shardway.ShardMap, names []string) ([]shardway.ShardID, error) {
	var ids []shardway.ShardID
	for _, name := range names {
		sh, err := s.Shard(ctx, m, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, sh.ID) {
			ids = append(ids, sh.ID)
		}
	}
	return ids, nil
}

// compare returns the reports of the named shards, or of all, of one map.
func (s *session) compare(ctx context.Context, names []string) ([]recovery.Report, error) {
	m, err := s.shardMap(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := s.shardIDs(ctx, m, names)
	if err != nil {
		return nil, err
	}
	r, end, err := s.recovery()
	if err != nil {
		return nil, err
	}
	defer end()
	return r.Detect(ctx, m, ids...)
}

func recoveryDetect(a *app) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "detect [SHARD]... --map MAP", Short: "Compare the global map with the local maps of all shards, or of some",
		Long: "Changes nothing. The exit code is 8 when something is to be resolved, 5 when only a shard cannot\nbe read, and 0 when all maps say the same; what is pending is no difference. --out writes the\nreport to a file for show and resolve.",
		Args: arguments("[SHARD]..."), Example: example("shardway recovery detect --map customers", "shardway recovery detect s1 s2 --map customers --out report.json"),
	}
	mapFlag(c)
	c.Flags().StringVar(&out, "out", "", "write the report to this file, as JSON")
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		reports, err := s.compare(ctx, args)
		if err != nil {
			return err
		}
		if reports == nil {
			reports = []recovery.Report{}
		}
		if out != "" {
			if err := saveReports(out, reports); err != nil {
				return err
			}
		}
		if err := s.emit(reports, func(p *page) { p.reports(reports) }); err != nil {
			return err
		}
		return judgeReports(reports)
	})
}

func (p *page) reports(reports []recovery.Report) {
	var rows [][]string
	for _, r := range reports {
		var notes []string
		for _, f := range r.Fields {
			notes = append(notes, fmt.Sprintf("%s: global %s, local %s", f.Name, f.Global, f.Local))
		}
		if r.State == recovery.Foreign {
			notes = append(notes, "of global store "+r.StoreID)
		}
		if r.Changing {
			notes = append(notes, "the map was changing all the time")
		}
		if r.Problem != "" {
			notes = append(notes, r.Problem)
		}
		rows = append(rows, []string{r.Shard.Name, string(r.State), strconv.Itoa(len(r.Differences)), strconv.Itoa(len(r.Pending)), oneLine(strings.Join(notes, "; "))})
	}
	p.table([]string{"shard", "state", "differences", "pending", "notes"}, rows)
}

// judgeReports is the exit code of a comparison.
func judgeReports(reports []recovery.Report) error {
	var differ, silent []string
	for _, r := range reports {
		switch {
		case r.Clean():
		case r.State == recovery.Unreachable || r.State == recovery.Unsupported:
			silent = append(silent, r.Shard.Name)
		default:
			differ = append(differ, r.Shard.Name)
		}
	}
	var errs []error
	if len(differ) > 0 {
		errs = append(errs, &hinted{
			err:  fmt.Errorf("%s of %d: %s: %w", count(len(differ), "shard"), len(reports), strings.Join(differ, ", "), store.ErrMapsDiffer),
			hint: "shardway recovery show SHARD lists the pieces, shardway recovery resolve SHARD --keep global|local resolves them",
		})
	}
	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("%s of %d cannot be read: %s: %w", count(len(silent), "shard"), len(reports), strings.Join(silent, ", "), shardway.ErrUnavailable))
	}
	return errors.Join(errs...)
}

func saveReports(file string, reports []recovery.Report) error {
	text, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	return writeText("report", file, append(text, '\n'), 0o600)
}

// savedReports reads a file of detect, all of it or the named shards.
func savedReports(file string, names []string) ([]recovery.Report, error) {
	text, err := readText("report", file, maxText)
	if err != nil {
		return nil, err
	}
	all, err := parseReports(file, text)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(r recovery.Report) bool { return r.Shard.Name == name }) {
			return nil, usagef("report %s has no shard %q", file, name)
		}
	}
	return slices.DeleteFunc(all, func(r recovery.Report) bool { return len(names) > 0 && !slices.Contains(names, r.Shard.Name) }), nil
}

func recoveryShow(a *app) *cobra.Command {
	var from string
	c := &cobra.Command{
		Use: "show [SHARD]... --map MAP", Short: "List the differences piece by piece, as they are or as they were saved", Args: arguments("[SHARD]..."),
		Example: example("shardway recovery show s1 --map customers", "shardway recovery show --from report.json"),
	}
	mapFlag(c)
	c.Flags().StringVar(&from, "from", "", "show a file that detect --out has written")
	show := func(reports []recovery.Report, err error) error {
		if err != nil {
			return err
		}
		if reports == nil {
			reports = []recovery.Report{}
		}
		return a.emit(reports, func(p *page) {
			for i, r := range reports {
				if i > 0 {
					p.line("")
				}
				p.differences(r)
			}
		})
	}
	return a.does(c, func(ctx context.Context, args []string) error {
		if from != "" {
			return show(savedReports(from, args))
		}
		s, err := a.open()
		if err != nil {
			return err
		}
		reports, err := s.compare(ctx, args)
		return errors.Join(show(reports, err), s.close())
	})
}

// differences lists the pieces of a report.
func (p *page) differences(r recovery.Report) {
	p.line("shard %s of map %s: %s", r.Shard.Name, r.Map.Name, r.State)
	for _, f := range r.Fields {
		p.line("%s: global %s, local %s", f.Name, f.Global, f.Local)
	}
	if r.Problem != "" {
		p.line("%s", oneLine(r.Problem))
	}
	head := "range"
	if r.Map.Kind == shardway.ListMap {
		head = "key"
	}
	var rows [][]string
	add := func(pieces []recovery.Difference, pending bool) {
		for _, d := range pieces {
			covers := shardway.Mapping{Range: d.Range}.Format(r.Map.Kind)
			place := d.Place()
			if pending {
				place = "pending: operation " + d.Operation.String()
			}
			rows = append(rows, []string{covers, place, claimText(d.Global), claimText(d.Local)})
		}
	}
	add(r.Differences, false)
	add(r.Pending, true)
	if len(rows) > 0 {
		p.table([]string{head, "place", "global", "local"}, rows)
	}
}

func claimText(c recovery.Claim) string {
	if c == (recovery.Claim{}) {
		return "-"
	}
	return fmt.Sprintf("%s, %s, %s", c.Shard, c.Status, c.Mapping)
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
)

// actionView is the JSON form of one change of a plan.
type actionView struct {
	Map     string `json:"map"`
	Kind    string `json:"kind"`
	Summary string `json:"summary"`
	Moves   bool   `json:"moves"`   // keys get another shard, their rows stay where they are
	Deletes bool   `json:"deletes"` // keys, or a shard, leave the map
}

// planView is the JSON form of what apply and import do.
type planView struct {
	DryRun  bool         `json:"dry_run"`
	Done    int          `json:"done"` // changes made
	Actions []actionView `json:"actions"`
	Locks   []tokenView  `json:"locks,omitempty"` // made anew by import
}

// applyFlags are the flags by which apply may do what cannot be taken back
// without thought.
type applyFlags struct {
	changeFlags
	yes, moves, deletes bool
}

// Why a plan is not carried out.
var (
	errNotAllowed   = errors.New("not allowed")
	errNotConfirmed = errors.New("not confirmed")
)

const applyHelp = `Reads a file as export writes it, shows the changes that make the shard maps what they are in the
file, asks, and makes them one by one through the catalog. Maps that the file does not have are left
alone, and so are locks. Interrupted, it goes on where it was when it is run again.

A mapping that goes to another shard is refused unless --allow-moves is given: only the map changes,
copying the rows is up to you. Mappings and shards that the file does not have are deleted with
--allow-deletes alone; rows stay.`

func applyCommand(a *app) *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use: "apply FILE", Short: "Make the shard maps what they are in a file: plan, confirmation, changes", Args: arguments("FILE"), Long: applyHelp,
		Example: example("shardway apply maps.json --dry-run", "shardway apply maps.json --yes --reason 'pull request 12'",
			"shardway apply maps.json --allow-moves"),
	}
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&f.moves, "allow-moves", false, "let mappings go to other shards; their rows do not")
	c.Flags().BoolVar(&f.deletes, "allow-deletes", false, "delete mappings and shards that the file does not have")
	f.add(c)
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		if s.json() && !f.yes && !f.dryRun {
			return usagef("--yes is missing: with JSON output nobody is asked")
		}
		if args[0] == "-" && !f.yes && !f.dryRun {
			return usagef("--yes is missing: the standard input cannot be asked when it is the file")
		}
		wanted, err := s.readMaps(ctx, args[0], s.locals.Normalize)
		if err != nil {
			return err
		}
		if !f.dryRun {
			if err := s.endAbandoned(ctx); err != nil { // it would make the plan out of date
				return err
			}
		}
		plan, err := s.planFor(ctx, wanted)
		if err != nil {
			return err
		}
		return s.apply(ctx, f, wanted, plan)
	})
}

func (s *session) planFor(ctx context.Context, wanted mapfile.File) ([]mapfile.Action, error) {
	current, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	return mapfile.Plan(current, wanted)
}

func viewPlan(plan []mapfile.Action) planView {
	v := planView{Actions: []actionView{}}
	for _, a := range plan {
		v.Actions = append(v.Actions, actionView{Map: a.Map, Kind: string(a.Kind), Summary: a.String(), Moves: a.Moves(), Deletes: a.Deletes()})
	}
	return v
}

// plan adds the changes, those that take care marked.
func (p *page) plan(v planView) {
	if len(v.Actions) == 0 {
		p.line("nothing to do: all is as in the file")
		return
	}
	p.line("%s:", count(len(v.Actions), "change"))
	for i, a := range v.Actions {
		mark := ""
		if a.Moves {
			mark = "  (MOVES KEYS)"
		}
		if a.Deletes {
			mark = "  (DELETES)"
		}
		p.line("%5d  %s: %s%s", i+1, a.Map, a.Summary, mark)
	}
}

// apply shows a plan, asks, and carries it out.
func (s *session) apply(ctx context.Context, f applyFlags, wanted mapfile.File, plan []mapfile.Action) error {
	v := viewPlan(plan)
	v.DryRun = f.dryRun
	refused := f.refuse(v)
	if f.dryRun || refused != nil || len(plan) == 0 {
		return errors.Join(s.emit(v, func(p *page) { p.plan(v) }), refused)
	}
	if !s.json() {
		if err := s.emit(v, func(p *page) { p.plan(v) }); err != nil {
			return err
		}
	}
	if !f.yes {
		if err := s.confirm(ctx, len(plan)); err != nil {
			return err
		}
		again, err := s.planFor(ctx, wanted)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(plan, again) {
			return fmt.Errorf("the store has changed since the plan was shown: %w", shardway.ErrStale)
		}
	}
	done, err := s.carryOut(ctx, plan, f.reason)
	v.Done = done
	if s.json() && err == nil {
		return s.emit(v, nil)
	}
	if err != nil {
		return &hinted{err: err, hint: "run it again when the cause is gone: it goes on from here"}
	}
	return s.emit(v, func(p *page) { p.line("done: %s", count(done, "change")) })
}

// refuse reports what the flags do not allow.
func (f applyFlags) refuse(v planView) error {
	moves, deletes := 0, 0
	for _, a := range v.Actions {
		if a.Moves {
			moves++
		}
		if a.Deletes {
			deletes++
		}
	}
	var flags, what []string
	if moves > 0 && !f.moves {
		what, flags = append(what, count(moves, "mapping")+" would go to another shard, without rows"), append(flags, "--allow-moves")
	}
	if deletes > 0 && !f.deletes {
		what, flags = append(what, count(deletes, "object")+" would be deleted"), append(flags, "--allow-deletes")
	}
	if len(flags) == 0 {
		return nil
	}
	return &hinted{
		err:  fmt.Errorf("nothing has changed: %s: %w", strings.Join(what, ", "), errNotAllowed),
		hint: "if that is meant, add " + strings.Join(flags, " "),
	}
}

// confirm asks.
func (s *session) confirm(ctx context.Context, changes int) error {
	fmt.Fprintf(s.errs, "Make %s? [y/N] ", count(changes, "change"))
	answer, _ := bufio.NewReader(newInput(ctx, s.in)).ReadString('\n')
	if err := ctx.Err(); err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	fmt.Fprintln(s.errs)
	return fmt.Errorf("nothing has changed: %w (--yes does not ask)", errNotConfirmed)
}

// carryOut makes the changes of a plan and returns how many were made.
func (s *session) carryOut(ctx context.Context, plan []mapfile.Action, reason string) (done int, err error) {
	bar := newProgress(s.errs, "making changes", len(plan))
	defer bar.end()
	for i, a := range plan {
		if err := ctx.Err(); err != nil {
			return i, fmt.Errorf("after %d of %s: %w", i, count(len(plan), "change"), err)
		}
		if err := s.act(ctx, a, reason); err != nil {
			return i, fmt.Errorf("after %d of %s: %s: %s: %w", i, count(len(plan), "change"), a.Map, a, err)
		}
		bar.step()
	}
	return len(plan), nil
}

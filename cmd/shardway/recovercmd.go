package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// recoveredView is the JSON form of what recover did with one operation.
type recoveredView struct {
	operationView
	Outcome string `json:"outcome"`         // done, undone or pending; with --dry-run what is to be ended
	Error   string `json:"error,omitempty"` // why it is pending still
}

func recoverCommand(a *app) *cobra.Command {
	var some catalog.Selection
	var dryRun, watch bool
	var every time.Duration
	c := &cobra.Command{
		Use: "recover", Short: "Finish, or take back, the operations that dead clients left behind", Args: arguments(),
		Long:    "An operation goes forward when all its shards have been changed, else back. One whose lease\nstill runs is left to its owner, unless --force is given: the owner then loses it. An\noperation with a shard that cannot be reached stays and blocks only its own mappings; the\nexit code is 7 as long as one is left. --map, given as a flag, leaves other maps alone.\n\n--watch goes on until it is interrupted, and prints what it ends. Several may watch one store.",
		Example: example("shardway recover", "shardway recover --force", "shardway recover --dry-run", "shardway recover --watch --every 10s --older-than 1m"),
	}
	mapFlag(c)
	c.Flags().BoolVar(&some.Force, "force", false, "also end operations whose owner still holds a lease")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be ended")
	c.Flags().DurationVar(&some.OlderThan, "older-than", 0, "leave alone what was started less than so long ago, such as 1m")
	c.Flags().BoolVar(&watch, "watch", false, "look again and again until interrupted")
	c.Flags().DurationVar(&every, "every", 10*time.Second, "with --watch: how long to pause between two looks")
	c.MarkFlagsMutuallyExclusive("watch", "dry-run")
	c.MarkFlagsMutuallyExclusive("watch", "force")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		switch {
		case some.OlderThan < 0:
			return usagef("--older-than %s is negative", some.OlderThan)
		case !watch && c.Flags().Changed("every"):
			return usagef("--every is for --watch alone")
		case every <= 0:
			return usagef("--every %s is not a length of time that lies ahead", every)
		}
		if c.Flags().Changed("map") {
			m, err := s.shardMap(ctx)
			if err != nil {
				return err
			}
			some.Map = m.ID
		}
		switch {
		case dryRun:
			return s.previewRecovery(ctx, some)
		case watch:
			return s.watchRecovery(ctx, some, every)
		}
		all, err := s.RecoverSome(ctx, some)
		if len(all) == 0 && err != nil {
			return err
		}
		views, left := s.viewRecovered(ctx, all)
		if emitted := s.emit(views, func(p *page) { p.recovered(views) }); emitted != nil {
			return emitted
		}
		if err == nil && left > 0 {
			err = &hinted{
				err:  fmt.Errorf("%s left: %w", count(left, "operation"), shardway.ErrPending),
				hint: "run it again when the cause is gone; --force takes operations away from owners still at work; where local and global map differ after a restore, shardway recovery give-up OPERATION ends it",
			}
		}
		return err
	})
}

// viewRecovered shows what was done, and counts what is left.
func (s *session) viewRecovered(ctx context.Context, all []catalog.Recovered) (views []recoveredView, left int) {
	if views = []recoveredView{}; len(all) == 0 {
		return views, 0
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	now, err := s.global.Now(limited) // by which leases run
	if err != nil {
		now = time.Now() // the work is done, and is told in any case
	}
	for _, r := range all {
		v := recoveredView{operationView: viewOperation(r.Operation, now), Outcome: r.Outcome.String()}
		if r.Outcome == store.Pending {
			left++
			v.Error = fmt.Sprint(r.Err)
		}
		views = append(views, v)
	}
	return views, left
}

// watchRecovery recovers until ctx ends, and prints what has ended.
func (s *session) watchRecovery(ctx context.Context, some catalog.Selection, every time.Duration) error {
	fmt.Fprintf(s.errs, "note: watching for abandoned operations every %s\n", every)
	err := s.Watch(ctx, catalog.Watch{Selection: some, Every: every, Look: func(all []catalog.Recovered, err error) {
		if err != nil {
			fmt.Fprintf(s.errs, "note: %s\n", printable(message(err)))
		}
		var ended []catalog.Recovered
		for _, r := range all {
			if r.Outcome != store.Pending {
				ended = append(ended, r)
			}
		}
		if views, _ := s.viewRecovered(ctx, ended); len(views) > 0 {
			_ = s.emit(views, func(p *page) { p.recovered(views) }) // nobody reads: go on all the same
		}
	}})
	if ctx.Err() != nil { // as it was asked to
		return nil
	}
	return err
}

// previewRecovery lists the operations that recover would deal with.
func (s *session) previewRecovery(ctx context.Context, some catalog.Selection) error {
	ops, err := s.Pending(ctx, some)
	if err != nil {
		return err
	}
	now, err := s.global.Now(ctx) // by which leases run
	if err != nil {
		return err
	}
	views := []recoveredView{}
	for _, o := range ops {
		if v := viewOperation(o, now); v.Lapsed || some.Force {
			views = append(views, recoveredView{operationView: v, Outcome: store.Pending.String()})
		}
	}
	return s.emit(views, func(p *page) {
		p.line("would end %s", count(len(views), "operation"))
		if len(views) > 0 {
			p.recovered(views)
		}
	})
}

func (p *page) recovered(views []recoveredView) {
	if len(views) == 0 {
		p.line("no operation is pending")
		return
	}
	var rows [][]string
	for _, v := range views {
		rows = append(rows, []string{v.Operation, v.Map, v.Kind, oneLine(v.Summary), age(v.Age), v.Outcome, oneLine(v.Error)})
	}
	p.table([]string{"operation", "map", "change", "what", "age", "outcome", "error"}, rows)
}

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

func recoveryGiveUp(a *app) *cobra.Command {
	var g catalog.GiveUp
	var yes, dryRun bool
	c := &cobra.Command{
		Use: "give-up OPERATION", Short: "End a pending operation that shardway recover cannot end, and leave all local maps as they are",
		Long: "For an operation that stays pending because a local map is not what it left there: the global store\nor a shard was restored to another moment. Every local store of the operation must answer, and is told\nto refuse it from now on; one that is lost is created, empty. Then the global store drops the\noperation: as done when all shards had made it, else as taken back. What a shard had made of it shows\nin shardway recovery detect and is resolved as you say. When a shard will never answer again, use\nshardway shard detach --gone. Asks first.",
		Args: arguments("OPERATION"),
		Example: example("shardway operations", "shardway recovery give-up 25762386bea64aff --dry-run",
			"shardway recovery give-up 25762386bea64aff --yes --reason 'store restored from the backup of Sunday'"),
	}
	c.Flags().BoolVar(&g.Force, "force", false, "although its owner still holds a lease: it loses it")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show the operation")
	c.Flags().StringVar(&g.Reason, "reason", "", "why, for the history")
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		asks, err := s.asks(yes, dryRun)
		if err != nil {
			return err
		}
		op, err := s.pendingOperation(ctx, args[0])
		if err != nil {
			return err
		}
		now, err := s.global.Now(ctx) // by which leases run
		if err != nil {
			return err
		}
		v := recoveredView{operationView: viewOperation(op, now), Outcome: store.Pending.String()}
		if dryRun {
			return s.emit(v, func(p *page) {
				p.line("would give up:")
				p.recovered([]recoveredView{v})
			})
		}
		if asks {
			fmt.Fprintf(s.errs, "give up operation %s: %s %s of shard map %s\n", op.ID, op.Kind, printable(op.Summary), printable(op.Map.Name))
			if err := s.confirm(ctx, 1); err != nil {
				return err
			}
		}
		g.Operation = op.ID
		return s.giveUp(ctx, g, v)
	})
}

// pendingOperation returns the operation with an id in text; one that has ended
// is an error that says how.
func (s *session) pendingOperation(ctx context.Context, text string) (op store.Operation, err error) {
	id, err := store.ParseOperationID(text)
	if err != nil {
		return op, err
	}
	ops, err := s.Operations(ctx)
	if err != nil {
		return op, err
	}
	for _, op := range ops {
		if op.ID == id {
			return op, nil
		}
	}
	switch o, err := s.Outcome(ctx, id); {
	case err != nil:
		return op, err
	case o == store.Unknown:
		return op, fmt.Errorf("operation %s was never written to this store: %w", id, errOperationUnknown)
	default:
		return op, fmt.Errorf("operation %s has ended, it is %s: %w", id, o, shardway.ErrStale)
	}
}

func (s *session) giveUp(ctx context.Context, g catalog.GiveUp, v recoveredView) error {
	r, err := s.GiveUp(ctx, g)
	if errors.Is(err, shardway.ErrUnavailable) {
		return &hinted{err: err, hint: "every shard of the operation must answer; of one that never will, shardway shard detach NAME --gone frees the others"}
	}
	if err != nil {
		return err
	}
	v.Outcome = r.Outcome.String()
	return s.emit(v, func(p *page) {
		p.recovered([]recoveredView{v})
		if r.Outcome == store.Undone {
			p.line("shardway recovery detect --map %s shows what is to be resolved", word(v.Map))
		}
	})
}

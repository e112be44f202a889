package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// entryView is the JSON form of a line of the history.
type entryView struct {
	Operation  string `json:"operation"`
	At         string `json:"at"`
	Map        string `json:"map"`
	Kind       string `json:"kind"`
	Outcome    string `json:"outcome"` // done or undone
	Who        string `json:"who"`
	Summary    string `json:"summary"`
	Reason     string `json:"reason"`
	Generation int64  `json:"generation"`
}

func historyCommand(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "history", Short: "Show who changed what, when and why, newest first", Args: arguments(),
		Example: example("shardway history", "shardway history --map customers --limit 5 --output json"),
	}
	mapFlag(c)
	c.Flags().IntVar(&limit, "limit", 50, "at most so many entries; 0 is all")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		if limit < 0 {
			return usagef("--limit %d is negative", limit)
		}
		var of shardway.MapID
		if s.set.text("map") != "" {
			m, err := s.shardMap(ctx)
			if err != nil {
				return err
			}
			of = m.ID
		}
		entries, err := s.History(ctx, of, limit)
		if err != nil {
			return err
		}
		views := []entryView{}
		var rows [][]string
		for _, e := range entries {
			v := entryView{
				Operation: e.Operation.String(), At: instant(e.At), Map: e.MapName, Kind: e.Kind, Outcome: e.Outcome.String(),
				Who: e.Who, Summary: e.Summary, Reason: e.Reason, Generation: e.Generation,
			}
			views = append(views, v)
			rows = append(rows, []string{v.At, v.Operation, v.Map, v.Kind, v.Outcome, oneLine(v.Who), oneLine(v.Summary), oneLine(v.Reason)})
		}
		return s.emit(views, func(p *page) {
			p.table([]string{"at", "operation", "map", "change", "outcome", "who", "what", "reason"}, rows)
		})
	})
}

// operationView is the JSON form of a pending operation.
type operationView struct {
	Operation string   `json:"operation"`
	Map       string   `json:"map"`
	Kind      string   `json:"kind"`
	Summary   string   `json:"summary"`
	Shards    []string `json:"shards"`
	Who       string   `json:"who"`
	Reason    string   `json:"reason"`
	Started   string   `json:"started"`
	Age       int64    `json:"age_seconds"`
	Owner     string   `json:"owner"`
	Epoch     int64    `json:"epoch"`
	Lease     string   `json:"lease_until"`
	Lapsed    bool     `json:"lease_lapsed"` // anybody may end it now
}

func viewOperation(o store.Operation, now time.Time) operationView {
	v := operationView{
		Operation: o.ID.String(), Map: o.Map.Name, Kind: o.Kind, Summary: o.Summary, Shards: []string{}, Who: o.Who, Reason: o.Reason,
		Started: instant(o.Started), Age: max(0, int64(now.Sub(o.Started).Seconds())), Owner: o.Owner, Epoch: o.Epoch,
		Lease: instant(o.LeaseUntil), Lapsed: !now.Before(o.LeaseUntil),
	}
	for _, step := range o.Steps {
		v.Shards = append(v.Shards, step.Shard.Name)
	}
	return v
}

func (v operationView) lease() string {
	if v.Lapsed {
		return "lapsed"
	}
	return "until " + v.Lease
}

func operationsCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "operations [ID]", Short: "List pending operations, or tell how one ended", Args: arguments("[ID]"),
		Long:    "A change of shards or mappings runs as an operation through several databases. One that is\nlisted is under way, or was left behind by a client that died: then its lease has lapsed, and\nthe next change that needs its rows, or shardway recover, ends it. With an ID, tells whether\nthat operation is pending, done or undone.",
		Example: example("shardway operations", "shardway operations 0123456789abcdef"),
	}
	return a.withStore(c, func(ctx context.Context, s *session, args []string) error {
		if len(args) == 1 {
			return s.outcome(ctx, args[0])
		}
		ops, err := s.Operations(ctx)
		if err != nil {
			return err
		}
		views := []operationView{}
		var rows [][]string
		now := time.Now()
		for _, o := range ops {
			v := viewOperation(o, now)
			views = append(views, v)
			rows = append(rows, []string{v.Operation, v.Map, v.Kind, oneLine(v.Summary), age(v.Age), oneLine(v.Owner), v.lease()})
		}
		return s.emit(views, func(p *page) {
			p.table([]string{"operation", "map", "change", "what", "age", "owner", "lease"}, rows)
		})
	})
}

func age(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }

func (s *session) outcome(ctx context.Context, text string) error {
	id, err := store.ParseOperationID(text)
	if err != nil {
		return err
	}
	o, err := s.Outcome(ctx, id)
	if err != nil {
		return err
	}
	if o == store.Unknown {
		return fmt.Errorf("operation %s was never written to this store: %w", id, errOperationUnknown)
	}
	v := struct {
		Operation string `json:"operation"`
		Outcome   string `json:"outcome"` // pending, done or undone
	}{id.String(), o.String()}
	return s.emit(v, func(p *page) { p.line("operation %s: %s", v.Operation, v.Outcome) })
}

// recoveredView is the JSON form of what recover did with one operation.
type recoveredView struct {
	operationView
	Outcome string `json:"outcome"`         // done, undone or pending; with --dry-run what is to be ended
	Error   string `json:"error,omitempty"` // why it is pending still
}

func recoverCommand(a *app) *cobra.Command {
	var force, dryRun bool
	c := &cobra.Command{
		Use: "recover", Short: "Finish, or take back, the operations that dead clients left behind", Args: arguments(),
		Long:    "An operation goes forward when all its shards have been changed, else back. One whose lease\nstill runs is left to its owner, unless --force is given: the owner then loses it. An\noperation with a shard that cannot be reached stays and blocks only its own mappings; the\nexit code is 7 as long as one is left.",
		Example: example("shardway recover", "shardway recover --force", "shardway recover --dry-run"),
	}
	c.Flags().BoolVar(&force, "force", false, "also end operations whose owner still holds a lease")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be ended")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		if dryRun {
			return s.previewRecovery(ctx, force)
		}
		all, err := s.Recover(ctx, force)
		if len(all) == 0 && err != nil {
			return err
		}
		views := []recoveredView{}
		left := 0
		for _, r := range all {
			v := recoveredView{operationView: viewOperation(r.Operation, time.Now()), Outcome: r.Outcome.String()}
			if r.Outcome == store.Pending {
				left++
				v.Error = fmt.Sprint(r.Err)
			}
			views = append(views, v)
		}
		if emitted := s.emit(views, func(p *page) { p.recovered(views) }); emitted != nil {
			return emitted
		}
		if err == nil && left > 0 {
			err = &hinted{
				err:  fmt.Errorf("%s left: %w", count(left, "operation"), shardway.ErrPending),
				hint: "run it again when the cause is gone; --force takes operations away from owners still at work",
			}
		}
		return err
	})
}

// previewRecovery lists the operations that recover would deal with.
func (s *session) previewRecovery(ctx context.Context, force bool) error {
	ops, err := s.Operations(ctx)
	if err != nil {
		return err
	}
	views := []recoveredView{}
	for _, o := range ops {
		if v := viewOperation(o, time.Now()); v.Lapsed || force {
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

package main

import (
	"context"
	"fmt"
	"slices"
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
		if !slices.Contains(v.Shards, step.Shard.Name) { // one step may be for the global store alone
			v.Shards = append(v.Shards, step.Shard.Name)
		}
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
		now, err := s.global.Now(ctx) // by which leases run
		if err != nil {
			return err
		}
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

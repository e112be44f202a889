package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
)

// changeFlags are the flags of every command that changes something.
type changeFlags struct {
	dryRun bool
	reason string
}

func (f *changeFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, or why it would be refused, and change nothing")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the history")
}

// changeView is the JSON form of a change.
type changeView struct {
	DryRun    bool          `json:"dry_run"`
	Changed   bool          `json:"changed"`             // false: dry run, or everything was as wanted
	Operation string        `json:"operation,omitempty"` // by which shardway operations ID tells the outcome
	Kind      string        `json:"kind"`
	Summary   string        `json:"summary"`
	Map       string        `json:"map,omitempty"`
	Shards    []shardView   `json:"shards,omitempty"`
	Mappings  []mappingView `json:"mappings,omitempty"`
	Token     string        `json:"token,omitempty"`   // of a new lock
	Drained   *drainedView  `json:"drained,omitempty"` // sessions at work for what was taken away
}

// change makes a change, or previews it, and prints what came of it.
func (s *session) change(ctx context.Context, f changeFlags, ch catalog.Change) error {
	return s.changeWith(ctx, f, ch, "")
}

// changeWith is change for a lock, whose token it prints.
func (s *session) changeWith(ctx context.Context, f changeFlags, ch catalog.Change, token shardway.LockToken) error {
	var r catalog.Result
	var err error
	if f.dryRun {
		r, err = s.Preview(ctx, ch)
		err = byState(err)
	} else {
		r, err = s.do(ctx, ch)
	}
	if err != nil {
		return err
	}
	v := changeView{DryRun: f.dryRun, Changed: r.Operation != 0, Kind: r.Kind, Summary: r.Summary, Map: r.Map.Name, Token: string(token), Drained: viewDrained(r.Drained)}
	if r.Operation != 0 {
		v.Operation = r.Operation.String()
	}
	if len(r.Shards) > 0 {
		v.Shards = viewShards(r.Shards)
	}
	v.Mappings = s.viewMappings(ctx, r.Map, r.Mappings)
	if f.dryRun { // no such id will ever exist
		for i := range v.Mappings {
			v.Mappings[i].ID = ""
		}
	}
	err = s.emit(v, func(p *page) { p.change(r, v) })
	if err != nil && v.Changed {
		err = fmt.Errorf("operation %s is done, but cannot be told: %w", v.Operation, err)
	}
	return err
}

func (p *page) change(r catalog.Result, v changeView) {
	switch {
	case v.DryRun:
		p.line("would %s: %s", v.Kind, v.Summary)
	case !v.Changed:
		p.line("nothing to do: %s", v.Kind)
	default:
		p.line("done: %s: %s (operation %s)", v.Kind, v.Summary, v.Operation)
	}
	p.drained(v.Drained)
	if v.Token != "" {
		p.line("lock token: %s", v.Token)
	}
	if len(v.Shards) > 0 {
		p.shards(v.Shards)
	}
	const few = 20
	if n := len(v.Mappings); n > few {
		p.line("%d mappings; the first %d:", n, few)
	}
	if len(v.Mappings) > 0 {
		p.mappings(r.Map, v.Mappings[:min(len(v.Mappings), few)])
	}
}

// do makes a change, and first ends those that dead clients have left behind.
func (s *session) do(ctx context.Context, ch catalog.Change) (catalog.Result, error) {
	if err := s.endAbandoned(ctx); err != nil {
		return catalog.Result{}, err
	}
	noted := context.AfterFunc(ctx, func() {
		fmt.Fprintln(s.errs, "note: interrupted; bringing the change to an end (interrupt again to leave at once)")
	})
	r, err := s.Do(ctx, ch)
	noted()
	if err == nil && ctx.Err() != nil {
		fmt.Fprintln(s.errs, "note: the change was past the point of no return: it is done")
	}
	return r, fate(r, byState(err))
}

// endAbandoned ends the operations of dead clients, as far as their shards can
// be reached soon. What it does goes to the notes. One that cannot be ended
// blocks only those who need its rows: they are told by the change itself.
func (s *session) endAbandoned(ctx context.Context) error {
	ops, err := s.Operations(ctx)
	if err != nil || len(ops) == 0 {
		return err
	}
	const patience = 5 * time.Second
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = s.Recover(limited, false)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// fate adds to the error of a change what has become of its operation.
func fate(r catalog.Result, err error) error {
	if err == nil || r.Operation == 0 {
		return err
	}
	var pending *catalog.PendingError
	if errors.As(err, &pending) && pending.Operation == r.Operation {
		return &hinted{
			err:  fmt.Errorf("operation %s is pending, neither done nor taken back: %w", r.Operation, err),
			hint: "shardway recover finishes it or takes it back, and so does the next change; shardway operations " + r.Operation.String() + " tells how it ended",
		}
	}
	return &hinted{
		err:  fmt.Errorf("operation %s was taken back, nothing has changed: %w", r.Operation, err),
		hint: "run the command again when the cause is gone",
	}
}

// viewMappings names the shards of mappings. It is used after changes too, so
// it never fails: a shard whose name cannot be read is shown by its id.
func (s *session) viewMappings(ctx context.Context, m shardway.ShardMap, mappings []shardway.Mapping) []mappingView {
	if len(mappings) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	shards, _ := s.Shards(ctx, m)
	names := map[shardway.ShardID]string{}
	for _, sh := range shards {
		names[sh.ID] = sh.Name
	}
	now := s.lockTime(ctx, mappings...)
	views := make([]mappingView, len(mappings))
	for i, mp := range mappings {
		views[i] = viewMapping(m, mp, cmp.Or(names[mp.ShardID], fmt.Sprintf("%016x", int64(mp.ShardID))), now)
	}
	return views
}

// lockTime is the time by which the locks of mappings run out: the store's, as
// for those who change them. A store that does not answer any more leaves the
// time unknown: then locks are shown as they were read.
func (s *session) lockTime(ctx context.Context, mappings ...shardway.Mapping) time.Time {
	runsOut := func(mp shardway.Mapping) bool { return !mp.Lock.Expires.IsZero() }
	if !slices.ContainsFunc(mappings, runsOut) {
		return time.Time{}
	}
	now, err := s.global.Now(ctx)
	if err != nil {
		return time.Time{}
	}
	return now
}

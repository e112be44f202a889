package catalog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Preview returns what a change would do now, or why it would be refused, and
// changes nothing. The ids in the result are not the ones that Do will give.
func (c *Catalog) Preview(ctx context.Context, ch Change) (Result, error) {
	ch, err := c.look(ctx, ch, true)
	if err != nil {
		return Result{}, err
	}
	p, err := c.preview(ctx, ch)
	if err != nil {
		return Result{}, err
	}
	if _, err := c.reachable(ctx, p.steps); err != nil {
		return Result{}, err
	}
	return p.outcome(0), nil
}

// look lets a change find out what no row of the global store tells.
func (c *Catalog) look(ctx context.Context, ch Change, dry bool) (Change, error) {
	if ch == nil {
		return nil, &shardway.ArgumentError{Argument: "change", Reason: "is missing"}
	}
	if u, ok := ch.(UpdateShard); ok {
		return u.look(ctx, c, dry)
	}
	return ch, nil
}

// preview plans a change and writes nothing. Whether a lock has expired is for
// the store's clock to say, and only an Update tells the time there.
func (c *Catalog) preview(ctx context.Context, ch Change) (p *plan, err error) {
	var s *state
	err = c.global.View(ctx, func(tx store.Reader) error {
		s = c.state(tx, time.Now().UTC())
		p, err = ch.plan(ctx, s)
		return err
	})
	if s == nil || !s.timed {
		return p, err
	}
	err = c.global.Update(ctx, ch.target(), func(tx store.Reader, now time.Time) (store.Delta, error) {
		p, err = ch.plan(ctx, c.state(tx, now))
		return store.Delta{}, err
	})
	if errors.Is(err, store.ErrUnknownOutcome) { // of a transaction that has written nothing
		err = nil
	}
	return p, err
}

func (c *Catalog) state(tx store.Reader, now time.Time) *state {
	return &state{tx: tx, now: now, normalize: c.locals.Normalize}
}

func (p *plan) outcome(id store.OperationID) Result {
	r := p.result
	r.Operation, r.Kind, r.Summary = id, p.kind, p.summary
	return r
}

// Do makes a change and returns what it has left behind. Every error means
// that nothing has changed, except a [PendingError] with the id of this very
// change and an error that wraps [store.ErrUnknownOutcome]: then
// [Catalog.Outcome] tells, by the operation in the Result, and the change is
// finished or taken back by whoever meets it next.
//
// A change that meets the operation of another client waits for it
// (Config.Wait), and finishes it or takes it back when that client is dead.
// When ctx ends in the middle, the change is brought to an end all the same,
// within a bounded time of its own.
func (c *Catalog) Do(ctx context.Context, ch Change) (Result, error) {
	deadline := time.Now().Add(c.cfg.Wait)
	var ended store.OperationID
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		r, err := c.attempt(ctx, ch)
		var pending *PendingError
		if !errors.As(err, &pending) || pending.Operation == r.Operation {
			return r, err
		}
		if err := c.clear(ctx, pending); err != nil {
			return Result{}, err
		}
		if pending.Owner == "" { // it has ended, and its marks with it
			if pending.Operation == ended {
				pending.Err = errNoOperation
				return Result{}, pending
			}
			ended = pending.Operation
			continue
		}
		if time.Now().After(deadline) {
			return Result{}, pending
		}
		if err := sleep(ctx, delay/2+rand.N(delay/2)); err != nil {
			return Result{}, errors.Join(err, pending)
		}
	}
}

// errNoOperation is a mark that no change has left behind: the rows of the
// global store do not belong together.
var errNoOperation = errors.New("the global store does not know this operation: its contents are damaged")

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// attempt makes a change unless a row it needs is in another operation's hands.
func (c *Catalog) attempt(ctx context.Context, ch Change) (Result, error) {
	ch, err := c.look(ctx, ch, false)
	if err != nil {
		return Result{}, err
	}
	p, err := c.preview(ctx, ch)
	if err != nil {
		return Result{}, err
	}
	if p.nothing {
		return p.outcome(0), nil
	}
	// Everything that can be found out before anything is written is found out here.
	forgotten, err := c.reachable(ctx, p.steps)
	if err != nil {
		return Result{}, err
	}
	op, p, err := c.prepare(ctx, ch, forgotten)
	if errors.Is(err, shardway.ErrMapNotFound) { // somebody was quicker, perhaps with the same change
		if p, err := c.preview(ctx, ch); err == nil && p.nothing {
			return p.outcome(0), nil
		}
	}
	if err != nil && op != nil {
		return Result{Operation: op.ID}, err
	}
	if err != nil {
		return Result{}, err
	}
	if p.nothing {
		return p.outcome(0), nil
	}
	r := p.outcome(op.ID)
	if len(p.steps) == 0 {
		return r, nil
	}
	d := c.drain(p.drain)
	o, err := c.execute(ctx, op, d)
	r.Drained = d.met
	if o == store.Done {
		return r, nil
	}
	if o == store.Undone {
		return Result{Operation: op.ID}, fmt.Errorf("%s %s of shard map %q: %w", op.Kind, op.Summary, op.Map.Name, err)
	}
	return Result{Operation: op.ID}, &PendingError{Operation: op.ID, Object: op.Summary, Owner: op.Owner, Err: err}
}

// execute brings a prepared operation to its end: forward, and when that fails,
// to whichever end [Catalog.settle] finds. The error says why it was not Done.
func (c *Catalog) execute(ctx context.Context, op *store.Operation, d *drain) (store.Outcome, error) {
	untouched, cause := c.forward(ctx, op, d)
	if cause == nil {
		return store.Done, nil
	}
	if errors.Is(cause, store.ErrLostLease) {
		return c.await(ctx, op, cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Lease)
	defer cancel()
	o, err := c.settle(ctx, op, untouched, d)
	if o == store.Pending || o == store.Unknown {
		c.release(ctx, op)
		return o, errors.Join(cause, err)
	}
	return o, cause
}

// await waits for the end of an operation that another client has taken over.
func (c *Catalog) await(ctx context.Context, op *store.Operation, cause error) (store.Outcome, error) {
	deadline := time.Now().Add(c.cfg.Wait)
	for {
		o, err := c.Outcome(ctx, op.ID)
		if err == nil && o != store.Pending {
			return o, cause
		}
		if err == nil {
			err = sleep(ctx, 20*time.Millisecond)
		}
		if err != nil || time.Now().After(deadline) {
			return store.Pending, errors.Join(cause, err)
		}
	}
}

// forward applies the steps and publishes. On failure it returns, by index,
// the steps that certainly have not reached their store.
func (c *Catalog) forward(ctx context.Context, op *store.Operation, d *drain) (untouched map[int]bool, err error) {
	untouched = map[int]bool{}
	for i, step := range op.Steps {
		if !step.GlobalOnly {
			untouched[i] = true
		}
	}
	for i, step := range op.Steps {
		if step.GlobalOnly {
			continue
		}
		local, err := c.local(ctx, step, true)
		if err != nil {
			return untouched, err
		}
		delete(untouched, i)
		if err := c.apply(ctx, op, local, step, d); err != nil {
			return untouched, err
		}
	}
	return untouched, c.end(ctx, op, store.Done)
}

// tries is how often a transaction is tried when its acknowledgement is lost or
// its store fails in passing. What is tried again is done once at most.
const tries = 3

func retry(ctx context.Context, run func() error) error {
	for try := 1; ; try++ {
		err := run()
		if err == nil || try == tries || !passing(err) {
			return err
		}
		if sleep(ctx, time.Duration(try)*20*time.Millisecond) != nil {
			return err
		}
	}
}

// step takes a step that does not take mappings away.
func (c *Catalog) step(ctx context.Context, op *store.Operation, local store.Local, step store.Step, want store.StepState) (found store.StepState, err error) {
	return c.stepDraining(ctx, op, local, step, want, store.Drain{}, nil)
}

func (c *Catalog) stepDraining(ctx context.Context, op *store.Operation, local store.Local, step store.Step, want store.StepState,
	how store.Drain, met *store.Drained,
) (found store.StepState, err error) {
	s := store.LocalStep{
		Operation: op.ID, Seq: op.Seq, Horizon: op.Horizon, Epoch: op.Epoch,
		Map: op.Map, Step: step, Want: want, Drain: how, Drained: met,
	}
	err = retry(ctx, func() error {
		if err := c.renew(ctx, op); err != nil {
			return err
		}
		bounded, cancel := context.WithDeadline(ctx, op.LeaseUntil)
		defer cancel()
		found, err = local.Step(bounded, s)
		return err
	})
	if err != nil {
		err = fmt.Errorf("changing local store of shard %q: %w", step.Shard.Name, err)
	}
	return found, err
}

// passing reports whether an error may be gone at the next try.
func passing(err error) bool {
	return errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, shardway.ErrUnavailable)
}

// reachable checks the local stores that steps need, and writes nothing. It
// returns the highest Seq that one of them has forgotten.
func (c *Catalog) reachable(ctx context.Context, steps []store.Step) (forgotten int64, err error) {
	for _, step := range steps {
		if step.GlobalOnly {
			continue
		}
		_, found, err := c.describe(ctx, step, false)
		if err != nil {
			return 0, err
		}
		forgotten = max(forgotten, found.Forgotten)
	}
	return forgotten, nil
}

// local opens the local store of a step and checks that it is what the step
// needs. With deploy, tables that are missing where a shard is added are made.
func (c *Catalog) local(ctx context.Context, step store.Step, deploy bool) (store.Local, error) {
	local, _, err := c.describe(ctx, step, deploy)
	return local, err
}

// describe is local, and returns what the store says of itself.
func (c *Catalog) describe(ctx context.Context, step store.Step, deploy bool) (store.Local, store.Description, error) {
	fail := func(err error) (store.Local, store.Description, error) {
		return nil, store.Description{}, fmt.Errorf("opening local store of shard %q at %s: %w", step.Shard.Name, step.Shard.Location, err)
	}
	local, err := c.locals.Open(ctx, step.Shard.Location)
	if err != nil {
		return fail(err)
	}
	global, err := c.global.Describe(ctx)
	if err != nil {
		return nil, global, fmt.Errorf("reading global store: %w", err)
	}
	added := step.Before == nil && step.After != nil
	if added && deploy {
		if err := retry(ctx, func() error { return local.Deploy(ctx, global.ID) }); err != nil {
			return fail(err)
		}
	}
	found, err := local.Describe(ctx)
	if errors.Is(err, shardway.ErrNoStore) && added {
		return local, found, nil
	}
	if err == nil && found.ID != global.ID {
		err = shardway.ErrForeignStore
	}
	if err == nil {
		err = found.Version.CheckWrite("local")
	}
	if err != nil {
		return fail(err)
	}
	return local, found, nil
}

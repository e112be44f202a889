package pgxshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// want is what the work of a handle is for.
type want struct {
	criteria selection.Criteria
	writes   bool // the criteria are the primary
}

func wantOf(c selection.Criteria) want {
	return want{criteria: c, writes: c.Err() == nil && !c.Predicate() && c.Mode() == selection.ModePrimary}
}

// opening is one piece of work on its way to a server.
type opening struct {
	want
	unit   *unit    // the unit of work it belongs to, or nil
	failed []string // addresses of servers that failed in this call
	server string   // address of the last server tried
}

// operation is what a server is chosen for.
func (w *opening) operation() selection.Operation {
	if w.writes {
		return selection.Write
	}
	return selection.Read
}

// avoided are the servers that are chosen only if no other suits.
func (w *opening) avoided() []string {
	if w.unit == nil {
		return w.failed
	}
	return append(slices.Clone(w.unit.failed), w.failed...)
}

// unit remembers the servers that failed the attempts of one transaction. Its
// attempts follow each other. A nil unit remembers nothing.
type unit struct{ failed []string }

func (u *unit) add(address string) {
	if u != nil && !slices.Contains(u.failed, address) {
		u.failed = append(u.failed, address)
	}
}

// seat is the place of a session in a replica set. The zero value is a session
// of a shard whose servers are not watched.
type seat struct {
	set    *replicaSet
	server topology.Server // when it was chosen
}

// demoted returns a [shardway.DemotedError] if the session is for writes and its server is
// not primary any more.
func (v *visit) demoted() error {
	if v.seat.set == nil || v.reads || v.seat.primary() {
		return nil
	}
	v.dirty = true
	return &shardway.DemotedError{Server: v.pool.address}
}

// primary reports whether the server is primary still, as far as is known: one
// that does not answer may be.
func (a *seat) primary() bool {
	set, _ := a.set.watch.Monitor.Current()
	s, ok := set.Find(a.server.Address)
	return ok && s.Demotions == a.server.Demotions
}

// errNotPrimary is a server that has stopped being primary between the choice
// and the session.
var errNotPrimary = errors.New("server is not primary any more")

// choose does work on a server chosen for it, and on another one while servers
// fail.
func (o *opener) choose(ctx context.Context, route shardway.Route, w *opening, work work) error {
	for tries, vain := 1, 0; ; {
		rs, err := o.places.watched(&route)
		if err != nil {
			return err
		}
		err = o.onChosen(ctx, route, rs, w, work)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errRetired), errors.Is(err, errNotPrimary):
			if vain++; vain == maxRetired {
				return connecting(ctx, err)
			}
		case errors.As(err, new(*serverError)) && tries < max(2, len(rs.pools)) && !over(ctx):
			tries++
		default:
			return err
		}
	}
}

// serverError is the error of a server that could not be reached or lost the
// session before anything was done: another one may do.
type serverError struct{ err error }

// Error returns the cause's text.
func (e *serverError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *serverError) Unwrap() error { return e.err }

// onChosen does work on a server. The operation counted on the server ends with
// the visit, or here.
func (o *opener) onChosen(ctx context.Context, route shardway.Route, rs *replicaSet, w *opening, work work) error {
	v := &visit{o: o, route: route, reads: !w.writes, unit: w.unit}
	w.server = ""
	if err := rs.choose(ctx, w, &v.choice); err != nil {
		return err
	}
	server := v.choice.Server()
	w.server = server.Address
	v.seat = seat{rs, server}
	began := time.Now()
	done := false
	defer func() {
		if !done {
			v.choice.Release()
		}
	}()
	p, err := rs.pool(v.choice.Set().Position(server.Address))
	if err != nil {
		return err
	}
	p.heed(rs, server.Demotions)
	limited, cancel := rs.limit(ctx, w)
	defer cancel()
	if err := o.occupy(ctx, limited, p, v, work); err != nil {
		return rs.failed(ctx, w, server, began, err)
	}
	done = true
	return nil
}

// choose selects a server and counts an operation on it.
func (rs *replicaSet) choose(ctx context.Context, w *opening, choice *selection.Choice) (err error) {
	rs.touch()
	*choice, err = rs.watch.Selector.Select(ctx, selection.Request{Criteria: w.criteria, Operation: w.operation(), Deprioritized: w.avoided()})
	if err != nil {
		return rs.noServer(err)
	}
	return nil
}

// touch keeps the set from ending for want of use.
func (rs *replicaSet) touch() {
	if !rs.used.Load() {
		rs.used.Store(true)
	}
}

// noServer gives an error of selecting its meaning.
func (rs *replicaSet) noServer(err error) error {
	const doing = "choosing a server"
	var none *selection.Error
	switch {
	case rs.ended.Load():
		return errRetired
	case !errors.As(err, &none):
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrInvalid, err)
	case errors.Is(err, context.Canceled) || !unreached(none.Explanation):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
}

// unreached reports whether a server that does not answer may be the reason
// for having none: nobody answers, or the primary is missed.
func unreached(e selection.Explanation) bool {
	silent := func(v selection.Verdict) bool { return v.Step == selection.StepUnknown }
	if e.Operation == selection.Write {
		return slices.ContainsFunc(e.Servers, silent)
	}
	return !slices.ContainsFunc(e.Servers, func(v selection.Verdict) bool { return !silent(v) })
}

// limit bounds the time for connecting to one server. While there may be another
// one, it is not all that the caller has.
func (rs *replicaSet) limit(ctx context.Context, w *opening) (context.Context, context.CancelFunc) {
	limit := rs.places.cfg.Servers.SelectionTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if w.operation() == selection.Read && len(rs.pools) > 1 {
			left /= 2
		} else if left <= limit {
			return ctx, func() {} // spares a context
		}
		limit = min(limit, left)
	}
	return context.WithTimeoutCause(ctx, limit, errSlow)
}

// errSlow is a server that took longer than a server may.
var errSlow = errors.New("server did not answer in time")

// failed learns from a server that was chosen in vain, and says by a
// serverError that another one may be tried.
func (rs *replicaSet) failed(ctx context.Context, w *opening, server topology.Server, began time.Time, err error) error {
	var said *statementError
	switch {
	case errors.As(err, &said):
		return err
	case server.Role == topology.RoleSecondary && (errors.Is(err, errNotHere) || errors.Is(err, shardway.ErrNoStore)):
		w.failed = append(w.failed, server.Address) // it lags behind: ask another one the next time
		return err
	case !errors.Is(err, shardway.ErrUnavailable):
		return err
	case over(ctx): // the caller had little time, which is no fault of the server
		rs.watch.Monitor.RequestCheck()
		return err
	}
	w.failed = append(w.failed, server.Address)
	w.unit.add(server.Address)
	rs.tell(server, began, err)
	return &serverError{err}
}

// explain says what would be chosen on a shard, and why.
func (o *opener) explain(ctx context.Context, name string, want want) (selection.Explanation, error) {
	shard, err := o.m.Shard(ctx, name)
	if err != nil {
		return selection.Explanation{}, err
	}
	route := shardway.Route{Shard: &shard, Generation: o.m.ShardMap().Generation}
	w := opening{want: want}
	rs, err := o.places.watched(&route)
	if err != nil {
		return selection.Explanation{}, o.failure(shardway.Key{}, route, &w, err)
	}
	rs.touch()
	explanation, err := rs.watch.Explain(ctx, selection.Request{
		Criteria: w.criteria, Operation: w.operation(), LocalThreshold: o.cfg.Servers.LocalThreshold,
	})
	if err != nil {
		return selection.Explanation{}, o.failure(shardway.Key{}, route, &w, err)
	}
	return explanation, nil
}

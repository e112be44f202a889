package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// maxRetired bounds the pools and sets that may be closed between finding and
// using them.
const maxRetired = 8

// OnPool does work on the pool of the one server of a route's shard, and on the
// next one when it was retired meanwhile.
func (pl *Places[P]) OnPool(ctx context.Context, r *shardway.Route, work func(*P) error) error {
	for retired := 0; ; retired++ {
		p, err := pl.Pool(r)
		if err != nil {
			return err
		}
		err = work(p)
		switch {
		case err == nil, !errors.Is(err, ErrRetired):
			return err
		case retired == maxRetired: // else its shard is elsewhere, or the places are closed: Pool knows
			return Connecting(ctx, err)
		}
	}
}

// OnSet does work on the servers of a route's shard, one that it chooses each
// time, and on another one while servers fail.
func (pl *Places[P]) OnSet(ctx context.Context, r *shardway.Route, work func(*Set[P]) error) error {
	for tries, vain := 1, 0; ; {
		s, err := pl.Set(r)
		if err != nil {
			return err
		}
		err = work(s)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrRetired), errors.Is(err, ErrNotPrimary):
			if vain++; vain == maxRetired {
				return Connecting(ctx, err)
			}
		case errors.As(err, new(*serverError)) && tries < max(2, len(s.pools)) && !Over(ctx):
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

// Choose selects a server and counts an operation on it. Servers that failed the
// attempt, or its unit, are chosen only if no other suits. The error is
// [ErrRetired] when the set has ended; it matches [shardway.ErrInvalid] for
// criteria that were refused, and [shardway.ErrUnavailable] when a server that
// does not answer may be the reason for having none.
func (s *Set[P]) Choose(ctx context.Context, a *Attempt, r selection.Request, choice *selection.Choice) (err error) {
	s.touch()
	r.Deprioritized = a.avoided()
	if *choice, err = s.watch.Selector.Select(ctx, r); err != nil {
		return s.noServer(err)
	}
	return nil
}

// noServer gives an error of selecting its meaning.
func (s *Set[P]) noServer(err error) error {
	const doing = "choosing a server"
	var none *selection.Error
	switch {
	case s.ended.Load():
		return ErrRetired
	case !errors.As(err, &none):
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrInvalid, err)
	case errors.Is(err, context.Canceled) || !unreached(none.Explanation):
		return fmt.Errorf("%s: %w%s", doing, err, ages(none.Explanation))
	}
	return fmt.Errorf("%s: %w: %w%s", doing, shardway.ErrUnavailable, err, ages(none.Explanation))
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

// ages says how old is what is known of each server. Of many it says nothing.
func ages(e selection.Explanation) string {
	const many = 16
	if len(e.Servers) > many {
		return ""
	}
	var list []string
	for _, v := range e.Servers {
		if !v.Server.LastUpdate.IsZero() {
			list = append(list, fmt.Sprintf("%s %v ago", v.Server.Address, time.Since(v.Server.LastUpdate).Round(time.Millisecond)))
		}
	}
	if list == nil {
		return ""
	}
	return " (last heard of: " + strings.Join(list, ", ") + ")"
}

// Limit bounds the time for one server. While there may be another one, it is
// not all that the caller has.
func (s *Set[P]) Limit(ctx context.Context, o selection.Operation) (context.Context, context.CancelFunc) {
	limit := s.places.cfg.SelectionTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if o == selection.Read && len(s.pools) > 1 {
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

// Failed learns from a server that an attempt has chosen in vain. Of an error
// that matches [shardway.ErrUnavailable] it makes one that has OnSet try another
// server, if the caller has the time.
func (s *Set[P]) Failed(ctx context.Context, a *Attempt, server topology.Server, began time.Time, err error) error {
	if !errors.Is(err, shardway.ErrUnavailable) {
		return err
	}
	if Over(ctx) { // the caller had little time, which is no fault of the server
		s.Check()
		return err
	}
	a.Avoid(server.Address)
	s.Broke(a.Unit, server, began, err)
	return &serverError{err}
}

// Broke learns from an error on a server at work that may be the server's fault.
// One that answers is asked; another one is unknown from now on, unless the
// monitor has heard of it since the work began.
func (s *Set[P]) Broke(u *Unit, server topology.Server, began time.Time, err error) {
	u.add(server.Address)
	if s.places.cfg.Answered(s.location.Engine, err) {
		s.Check()
		return
	}
	s.tell(server, began, err)
}

// RefusedWrite learns from a primary that says it takes no writes.
func (s *Set[P]) RefusedWrite(u *Unit, server topology.Server, began time.Time, err error) {
	s.logger.Warn("a primary takes no writes", "server", server.Address, "error", err)
	u.add(server.Address)
	s.tell(server, began, err)
}

// tell makes a server unknown, unless the monitor has heard of it since then,
// and has it checked at once.
func (s *Set[P]) tell(server topology.Server, began time.Time, err error) {
	s.watch.Monitor.Report(topology.Observation{Address: server.Address, Generation: server.Generation, At: began, Err: err})
}

// Check has the servers checked at once.
func (s *Set[P]) Check() { s.watch.Monitor.RequestCheck() }

// Explain says what would be chosen on a route's shard, and why; see
// [Watch.Explain].
func (pl *Places[P]) Explain(ctx context.Context, r *shardway.Route, request selection.Request) (selection.Explanation, error) {
	s, err := pl.Set(r)
	if err != nil {
		return selection.Explanation{}, err
	}
	s.touch()
	request.LocalThreshold = pl.cfg.LocalThreshold
	return s.watch.Explain(ctx, request)
}

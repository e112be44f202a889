package sqlshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// want is what the connections of a handle are for.
type want struct {
	criteria selection.Criteria
	writes   bool          // the criteria are the primary
	retry    *retry.Policy // of units of work; nil is the preset
}

func wantOf(c selection.Criteria) want {
	return want{criteria: c, writes: c.Err() == nil && !c.Predicate() && c.Mode() == selection.ModePrimary}
}

// opening is one call that opens a connection.
type opening struct {
	want
	unit    *unit    // the unit of work it belongs to, or nil
	failed  []string // addresses of servers that failed in this call
	server  string   // address of the last server tried
	token   *Token   // of the writes that a read must see, or nil
	primary bool     // a read needs the primary: no secondary has reached the token
	fence   *fence   // the transaction that the connection is for, or nil
	holds   bool     // the connection is to hold its mapping
	asks    bool     // the connection is only to be validated
}

// operation is what a server is chosen for.
func (w *opening) operation() selection.Operation {
	if w.writes || w.primary {
		return selection.Write
	}
	return selection.Read
}

// avoided are the servers that are chosen only if no other suits.
func (w *opening) avoided() []string {
	if w.unit == nil {
		return w.failed
	}
	return append(w.unit.servers(), w.failed...)
}

// errNotPrimary is a server that has stopped being primary between the choice
// and the session.
var errNotPrimary = errors.New("server is not primary any more")

// errBehind is a secondary that has not reached a token in time.
var errBehind = errors.New("secondary has not reached the token")

// choose opens a session on a server chosen for the opening, and on another one
// while servers fail.
func (o *opener) choose(ctx context.Context, route shardway.Route, w *opening) (*Conn, error) {
	if err := w.readToken(ctx, route); err != nil {
		return nil, err
	}
	for tries, vain := 1, 0; ; {
		rs, err := o.places.watched(&route)
		if err != nil {
			return nil, err
		}
		conn, err := o.onChosen(ctx, route, rs, w)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, errBehind):
			w.primary = true
		case errors.Is(err, errRetired), errors.Is(err, errNotPrimary):
			if vain++; vain == maxRetired {
				return nil, connecting(ctx, err)
			}
		case errors.As(err, new(*serverError)) && tries < max(2, len(rs.pools)) && !over(ctx):
			tries++
		default:
			return nil, err
		}
	}
}

// serverError is the error of a server that could not be reached or lost the
// session: another one may do.
type serverError struct{ err error }

// Error returns the cause's text.
func (e *serverError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *serverError) Unwrap() error { return e.err }

// onChosen opens a session on a server and validates it. The operation counted
// on the server ends with the Conn, or here.
func (o *opener) onChosen(ctx context.Context, route shardway.Route, rs *replicaSet, w *opening) (*Conn, error) {
	conn := &Conn{opener: o, route: route, holds: w.holds, asks: w.asks}
	awaits := w.token != nil && !w.primary
	if !awaits { // else the transaction begins when the token has been reached
		conn.fence = w.fence
	}
	w.server = ""
	if err := rs.choose(ctx, w, &conn.choice); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			conn.choice.Release()
		}
	}()
	server := conn.choice.Server()
	w.server = server.Address
	at := seat{set: rs, position: conn.choice.Set().Position(server.Address), demotions: server.Demotions, reads: !w.writes, unit: w.unit}
	p, err := rs.pool(at.position)
	if err != nil {
		return nil, err
	}
	p.heed(rs, server.Demotions)
	began := time.Now()
	limited, cancel := rs.limit(ctx, w)
	defer cancel()
	if err = o.occupy(ctx, limited, p, conn); err != nil {
		return nil, rs.failed(ctx, w, p, server, began, err)
	}
	conn.session.seat = at
	if err = rs.fits(limited, conn, server, w); err != nil {
		conn.abandon()
		return nil, rs.failed(ctx, w, p, server, began, err)
	}
	if awaits && w.fence != nil {
		conn.fence = w.fence
		if err = conn.admit(limited); err != nil {
			return nil, rs.failed(ctx, w, p, server, began, err)
		}
	}
	done = true
	return conn, nil
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

// limit bounds the time for one server. While there may be another one, it is
// not all that the caller has.
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

// fits checks, now that there is a session, what may have changed since the
// server was chosen.
func (rs *replicaSet) fits(ctx context.Context, conn *Conn, server topology.Server, w *opening) error {
	if w.operation() == selection.Write && !conn.session.seat.primary() {
		return errNotPrimary
	}
	if w.token == nil || w.primary || server.Role != topology.RoleSecondary {
		return nil
	}
	return conn.awaitToken(ctx, w.token.position)
}

// failed learns from a server that was chosen in vain, and says by a
// serverError that another one may be tried.
func (rs *replicaSet) failed(ctx context.Context, w *opening, p *pool, server topology.Server, began time.Time, err error) error {
	stale := server.Role == topology.RoleSecondary && (errors.Is(err, errNotHere) || errors.Is(err, shardway.ErrNoStore))
	if stale {
		w.failed = append(w.failed, server.Address) // it lags behind: ask another one the next time
		return err
	}
	if !errors.Is(err, shardway.ErrUnavailable) {
		return err
	}
	if over(ctx) { // the caller had little time, which is no fault of the server
		rs.watch.Monitor.RequestCheck()
		return err
	}
	w.failed = append(w.failed, server.Address)
	w.unit.add(server.Address)
	rs.report(p, server, began, err)
	return &serverError{err}
}

// explain says what would be chosen on a shard, and why.
func (o *opener) explain(ctx context.Context, name string, want want) (selection.Explanation, error) {
	o.mu.Lock()
	known := o.shards[name]
	o.mu.Unlock()
	route, err := o.shardRoute(ctx, name, known)
	if err != nil {
		return selection.Explanation{}, err
	}
	w := opening{want: want}
	explanation, err := o.explainRoute(ctx, route, &w)
	if err != nil {
		return selection.Explanation{}, o.failure(shardway.Key{}, route, &w, err)
	}
	return explanation, nil
}

func (o *opener) explainRoute(ctx context.Context, route shardway.Route, w *opening) (selection.Explanation, error) {
	rs, err := o.places.watched(&route)
	if err != nil {
		return selection.Explanation{}, err
	}
	rs.touch()
	return rs.watch.Explain(ctx, selection.Request{
		Criteria: w.criteria, Operation: w.operation(), LocalThreshold: o.cfg.Servers.LocalThreshold,
	})
}

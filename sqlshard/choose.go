package sqlshard

import (
	"context"
	"errors"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
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
	replicaset.Attempt
	route   *shardway.Route // that was looked up for it, or nil
	token   *Token          // of the writes that a read must see, or nil
	primary bool            // a read needs the primary: no secondary has reached the token
	fence   *fence          // the transaction that the connection is for, or nil
	holds   bool            // the connection is to hold its mapping
	asks    bool            // the connection is only to be validated
}

// request is what a server is chosen for.
func (w *opening) request() selection.Request {
	r := selection.Request{Criteria: w.criteria, Operation: selection.Read}
	if w.writes || w.primary {
		r.Operation = selection.Write
	}
	return r
}

// errBehind is a secondary that has not reached a token in time.
var errBehind = errors.New("secondary has not reached the token")

// choose opens a session on a server chosen for the opening, and on another one
// while servers fail.
func (o *opener) choose(ctx context.Context, route shardway.Route, w *opening) (conn *Conn, err error) {
	if err := w.readToken(ctx, route); err != nil {
		return nil, err
	}
	err = o.places.OnSet(ctx, &route, func(set *replicaset.Set[pool]) (err error) {
		conn, err = o.onChosen(ctx, route, set, w)
		if errors.Is(err, errBehind) {
			w.primary = true
			conn, err = o.onChosen(ctx, route, set, w)
		}
		return err
	})
	return conn, err
}

// onChosen opens a session on a server and validates it. The operation counted
// on the server ends with the Conn, or here.
func (o *opener) onChosen(ctx context.Context, route shardway.Route, set *replicaset.Set[pool], w *opening) (*Conn, error) {
	conn := &Conn{opener: o, route: route, holds: w.holds, asks: w.asks}
	awaits := w.token != nil && !w.primary
	if !awaits { // else the transaction begins when the token has been reached
		conn.fence = w.fence
	}
	w.Server = ""
	if err := set.Choose(ctx, &w.Attempt, w.request(), &conn.choice); err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			conn.choice.Release()
		}
	}()
	server := conn.choice.Server()
	w.Server = server.Address
	at := seat{set: set, position: conn.choice.Set().Position(server.Address), demotions: server.Demotions, reads: !w.writes, unit: w.Unit}
	p, err := set.Pool(at.position, server.Demotions)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	limited, cancel := set.Limit(ctx, w.request().Operation)
	defer cancel()
	if err = o.occupy(ctx, limited, p, conn); err != nil {
		return nil, w.failed(ctx, set, server, began, err)
	}
	conn.session.seat = at
	if err = w.fits(limited, conn, server); err != nil {
		conn.abandon()
		return nil, w.failed(ctx, set, server, began, err)
	}
	if awaits && w.fence != nil {
		conn.fence = w.fence
		if err = conn.admit(limited); err != nil {
			return nil, w.failed(ctx, set, server, began, err)
		}
	}
	done = true
	return conn, nil
}

// fits checks, now that there is a session, what may have changed since the
// server was chosen.
func (w *opening) fits(ctx context.Context, conn *Conn, server topology.Server) error {
	if (w.writes || w.primary) && !conn.session.seat.primary() {
		return replicaset.ErrNotPrimary
	}
	if w.token == nil || w.primary || server.Role != topology.RoleSecondary {
		return nil
	}
	return conn.awaitToken(ctx, w.token.position)
}

// failed learns from a server that was chosen in vain.
func (w *opening) failed(ctx context.Context, set *replicaset.Set[pool], server topology.Server, began time.Time, err error) error {
	if server.Role == topology.RoleSecondary && (errors.Is(err, errNotHere) || errors.Is(err, shardway.ErrNoStore)) {
		w.Avoid(server.Address) // it lags behind: ask another one the next time
		return err
	}
	return set.Failed(ctx, &w.Attempt, server, began, err)
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
	explanation, err := o.places.Explain(ctx, &route, w.request())
	if err != nil {
		return selection.Explanation{}, o.failure(shardway.Key{}, route, &w, err)
	}
	return explanation, nil
}

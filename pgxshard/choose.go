package pgxshard

import (
	"context"
	"errors"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
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
	replicaset.Attempt
	route *shardway.Route // that was looked up for it, or nil
}

// request is what a server is chosen for.
func (w *opening) request() selection.Request {
	r := selection.Request{Criteria: w.criteria, Operation: selection.Read}
	if w.writes {
		r.Operation = selection.Write
	}
	return r
}

// seat is the place of a session in a replica set. The zero value is a session
// of a shard whose servers are not watched.
type seat struct {
	set    *replicaset.Set[pool]
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
	s, ok := a.set.Now().Find(a.server.Address)
	return ok && s.Demotions == a.server.Demotions
}

// choose does work on a server chosen for it, and on another one while servers
// fail.
func (o *opener) choose(ctx context.Context, route shardway.Route, w *opening, work work) error {
	return o.places.OnSet(ctx, &route, func(set *replicaset.Set[pool]) error { return o.onChosen(ctx, route, set, w, work) })
}

// onChosen does work on a server. The operation counted on the server ends with
// the visit, or here.
func (o *opener) onChosen(ctx context.Context, route shardway.Route, set *replicaset.Set[pool], w *opening, work work) error {
	v := &visit{o: o, route: route, reads: !w.writes, unit: w.Unit}
	w.Server = ""
	request := w.request()
	if err := set.Choose(ctx, &w.Attempt, request, &v.choice); err != nil {
		return err
	}
	server := v.choice.Server()
	w.Server = server.Address
	v.seat = seat{set, server}
	began := time.Now()
	done := false
	defer func() {
		if !done {
			v.choice.Release()
		}
	}()
	p, err := set.Pool(v.choice.Set().Position(server.Address), server.Demotions)
	if err != nil {
		return err
	}
	limited, cancel := set.Limit(ctx, request.Operation)
	defer cancel()
	if err := o.occupy(ctx, limited, p, v, work); err != nil {
		return w.failed(ctx, v.seat, began, err)
	}
	done = true
	return nil
}

// failed learns from a server that was chosen in vain.
func (w *opening) failed(ctx context.Context, at seat, began time.Time, err error) error {
	if errors.As(err, new(*statementError)) {
		return err
	}
	if at.server.Role == topology.RoleSecondary && (errors.Is(err, errNotHere) || errors.Is(err, shardway.ErrNoStore)) {
		w.Avoid(at.server.Address) // it lags behind: ask another one the next time
		return err
	}
	return at.set.Failed(ctx, &w.Attempt, at.server, began, err)
}

// explain says what would be chosen on a shard, and why.
func (o *opener) explain(ctx context.Context, name string, want want) (selection.Explanation, error) {
	shard, err := o.m.Shard(ctx, name)
	if err != nil {
		return selection.Explanation{}, err
	}
	route := shardway.Route{Shard: &shard, Generation: o.m.ShardMap().Generation}
	w := opening{want: want}
	explanation, err := o.places.Explain(ctx, &route, w.request())
	if err != nil {
		return selection.Explanation{}, o.failure(shardway.Key{}, route, &w, err)
	}
	return explanation, nil
}

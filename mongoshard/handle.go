package mongoshard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	drivertopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// handle is the driver.Deployment of one client: the shared deployment with the
// client's criteria. What it does not override is the driver's.
type handle struct {
	*drivertopology.Topology
	deployment      *deployment
	rule            *rule
	mongosForWrites bool
	connected       atomic.Bool
	waiting         waiting

	mu            sync.Mutex // guards subscriptions
	subscriptions []*driver.Subscription
}

var (
	_ driver.Deployment   = (*handle)(nil)
	_ driver.Connector    = (*handle)(nil)
	_ driver.Disconnector = (*handle)(nil)
	_ driver.Subscriber   = (*handle)(nil)
)

// Connect joins the deployment.
func (h *handle) Connect() error {
	if err := h.deployment.join(); err != nil {
		return err
	}
	h.connected.Store(true)
	return nil
}

// Disconnect leaves the deployment; the last client ends it. Selections that
// wait end first: the driver's would turn without rest on a closed topology, and
// those of our own would go on while another client is left.
func (h *handle) Disconnect(ctx context.Context) error {
	if !h.connected.Swap(false) {
		return drivertopology.ErrTopologyClosed
	}
	h.waiting.end()
	h.mu.Lock()
	for _, s := range h.subscriptions {
		_ = h.Topology.Unsubscribe(s) // it never fails
	}
	h.subscriptions = nil
	h.mu.Unlock()
	return h.deployment.leave(ctx)
}

// Subscribe is the topology's; the subscription ends with the client.
func (h *handle) Subscribe() (*driver.Subscription, error) {
	s, err := h.Topology.Subscribe()
	if err == nil {
		h.mu.Lock()
		h.subscriptions = append(h.subscriptions, s)
		h.mu.Unlock()
	}
	return s, err
}

// question is asked through an operation's context.
type question struct{ handle *handle }

// SelectServer selects by the criteria in force. The driver's selector is only
// asked what the operation is and which servers it avoids; where the driver
// alone knows the answer, it selects.
func (h *handle) SelectServer(ctx context.Context, selector description.ServerSelector) (driver.Server, error) {
	var override *rule
	switch asked := ctx.Value(contextKey{}).(type) {
	case *question:
		asked.handle = h
		return nil, errAsked
	case *rule:
		override = asked
	}
	if !h.connected.Load() {
		return nil, drivertopology.ErrTopologyClosed
	}
	if err := ctx.Err(); err != nil && inTransaction(ctx) {
		return &tooLate{err: h.deployment.failed(err)}, nil
	}
	rule := h.rule
	if override != nil {
		rule = override
	}
	purpose := classify(selector)
	choose := h.byCriteria
	if h.leaves(purpose, h.Topology.Kind(), override != nil) {
		choose = h.byDriver
	}
	own := &selecting{Context: ctx, handle: h}
	defer own.end()
	server, err := choose(own, selector, rule, purpose)
	if err != nil && !h.connected.Load() {
		return nil, drivertopology.ErrTopologyClosed
	}
	return server, err
}

// leaves reports whether the choice is left to the driver, which alone knows
// the server of pinned operations, the read preference of reads that have one
// of their own, and what a command outside a sharded cluster needs. Behind a
// load balancer there is no choice.
func (h *handle) leaves(purpose purpose, kind description.TopologyKind, overridden bool) bool {
	switch {
	case kind == description.TopologyKindLoadBalanced, purpose == forPin:
		return true
	case purpose == forOwnPreference:
		return !overridden
	case purpose != forCommand || kind == description.TopologyKindSharded:
		return false
	}
	return !h.mongosForWrites || kind != description.Unknown // it may turn out to be sharded
}

// byDriver lets the driver select.
func (h *handle) byDriver(ctx context.Context, selector description.ServerSelector, rule *rule, purpose purpose) (driver.Server, error) {
	chosen, err := h.Topology.SelectServer(ctx, selector)
	if err != nil {
		return nil, h.refused(err, purpose)
	}
	server, ok := chosen.(*drivertopology.SelectedServer)
	if !ok {
		return chosen, nil
	}
	if server.Kind == description.TopologyKindLoadBalanced {
		if purpose != forRead || rule.preference == nil || inTransaction(ctx) {
			return server, nil
		}
		return &balanced{SelectedServer: server, element: rule.preference}, nil
	}
	v, _, err := h.deployment.look()
	if err != nil {
		return nil, h.deployment.failed(err)
	}
	i := v.position(server.Description().Addr)
	if i < 0 {
		return server, nil // removed a moment ago; the connection will say so
	}
	load := v.set.Load(i)
	load.Begin()
	return &selected{SelectedServer: server, load: load}, nil
}

// refused completes the driver's error, which says nothing of the steps.
func (h *handle) refused(err error, purpose purpose) error {
	v, _, viewErr := h.deployment.look()
	if errors.Is(err, drivertopology.ErrTopologyClosed) || viewErr != nil {
		return err
	}
	var none *selection.Error
	if purpose == forCommand {
		choice, reason := selection.Select(v.set, selection.Request{Operation: selection.Write})
		if choice.Release(); errors.As(reason, &none) {
			none.Cause = err
			return h.deployment.failed(none)
		}
	}
	return h.deployment.failed(err)
}

// byCriteria selects by our algorithm and finds the driver's server. It begins
// anew if the driver has removed the server meanwhile, or if it knew too little
// of the deployment to know what to ask for.
func (h *handle) byCriteria(ctx context.Context, selector description.ServerSelector, rule *rule, purpose purpose) (driver.Server, error) {
	d := h.deployment
	transaction := purpose == forRead && inTransaction(ctx)
	for {
		v, changed, err := d.look()
		if err != nil {
			return nil, d.failed(err)
		}
		if v.from.CompatibilityErr != nil {
			return nil, d.failed(v.from.CompatibilityErr)
		}
		request := h.request(v.set.Kind(), rule, purpose, transaction)
		request.Deprioritized = v.names(spared(selector, v.from.Servers))
		choice, err := d.selector.Select(ctx, request)
		if err != nil {
			return nil, d.failed(err)
		}
		set, i := choice.Set(), choice.Position()
		if set.Kind() != v.set.Kind() && h.request(set.Kind(), rule, purpose, transaction).Operation != request.Operation {
			choice.Release()
			continue
		}
		server, err := d.find(d.address(v, set, i))
		if err != nil {
			choice.Release()
			return nil, err
		}
		if server == nil {
			choice.Release()
			if err := d.wait(ctx, changed); err != nil {
				return nil, d.failed(err)
			}
			continue
		}
		s := &selected{SelectedServer: server, load: set.Load(i)}
		if purpose == forRead && !transaction {
			s.element = rule.element(set.Kind(), set.Server(i).Role)
		}
		return s, nil
	}
}

// request says what to select for in a deployment of a kind.
func (h *handle) request(kind topology.Kind, rule *rule, purpose purpose, transaction bool) selection.Request {
	write := selection.Request{Operation: selection.Write}
	read := selection.Request{Criteria: rule.criteria}
	switch {
	case purpose != forRead && purpose != forOwnPreference:
		if kind == topology.KindSharded && h.mongosForWrites && rule.criteria.Predicate() {
			return read
		}
		return write
	case transaction && kind.MongoReplicaSet():
		return write
	}
	return read
}

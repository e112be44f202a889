package mongoshard

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	drivertopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// deployment is one MongoDB deployment: the driver's topology with its monitors
// and pools, shared by the clients that With makes. It is the selection.Source
// of its selector.
type deployment struct {
	name     string
	options  *options.ClientOptions // of all its clients, but for the deployment
	topology *drivertopology.Topology
	selector *selection.Selector

	translator translator
	current    atomic.Pointer[published]

	mu        sync.Mutex                   // guards the fields below
	clients   int                          // connected ones
	ended     bool                         // the last client has left
	following chan struct{}                // closed when follow has ended
	strangers map[address.Address]stranger // that the driver left out
}

type stranger struct{ kind, setName string }

// newDeployment makes a deployment of checked options and starts nothing.
func newDeployment(o *options.ClientOptions, logger *slog.Logger) (*deployment, error) {
	d := &deployment{name: uriText(o), options: o, strangers: map[address.Address]stranger{}}
	d.translator.heartbeat = topology.DefaultHeartbeat
	d.translator.listed = map[string]bool{}
	if o.HeartbeatInterval != nil {
		d.translator.heartbeat = *o.HeartbeatInterval
	}
	d.current.Store(newPublished())
	d.noteStrangers()
	config, err := driverConfig(o)
	if err != nil {
		return nil, err
	}
	if d.topology, err = drivertopology.New(config); err != nil {
		return nil, err
	}
	if logger != nil {
		logger = logger.With(slog.String("deployment", d.name))
	}
	timeout := d.topology.GetServerSelectionTimeout()
	if timeout <= 0 {
		timeout = math.MaxInt64 // the operation's context alone ends the wait, as in the driver
	}
	d.selector, err = selection.NewSelector(selection.Config{
		Source: d, SelectionTimeout: timeout, LocalThreshold: localThreshold(o), Logger: logger,
	})
	return d, err
}

// join counts a client as connected; the first one starts monitoring.
func (d *deployment) join() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return drivertopology.ErrTopologyClosed
	}
	if d.clients == 0 {
		if err := d.topology.Connect(); err != nil {
			return err
		}
		changes, err := d.topology.Subscribe()
		if err != nil {
			return err
		}
		d.following = make(chan struct{})
		go d.follow(changes)
	}
	d.clients++
	return nil
}

// leave counts a client as gone; the last one ends monitoring and closes all
// connections.
func (d *deployment) leave(ctx context.Context) error {
	d.mu.Lock()
	d.clients--
	if d.ended = d.clients == 0; !d.ended {
		d.mu.Unlock()
		return nil
	}
	d.mu.Unlock() // the driver's events take it while the topology ends
	err := d.topology.Disconnect(ctx)
	<-d.following
	return err
}

// follow wakes those who wait at each new description, until the topology ends.
func (d *deployment) follow(changes *driver.Subscription) {
	defer close(d.following)
	for range changes.Updates {
		close(d.current.Swap(newPublished()).changed)
	}
	close(d.current.Swap(newPublished()).changed)
}

// look returns the view of the newest description and a channel that is closed
// when there is a newer one.
func (d *deployment) look() (*view, <-chan struct{}, error) {
	p := d.current.Load()
	newest := d.topology.Description()
	if v := p.view.Load(); v != nil && v.of(newest) {
		return v, p.changed, nil
	}
	v, err := d.translator.translate(newest, p)
	if err == nil {
		p.view.Store(v)
	}
	return v, p.changed, err
}

// Current returns the newest description, for the selector.
func (d *deployment) Current() (topology.Set, <-chan struct{}) {
	v, changed, err := d.look()
	if err != nil {
		return topology.Set{}, changed
	}
	return v.set, changed
}

// RequestCheck asks the driver for a check of every server.
func (d *deployment) RequestCheck() { d.topology.RequestImmediateCheck() }

// address returns the driver's address of the i-th server of a set. v is a
// recent view, most likely that of the set.
func (d *deployment) address(v *view, set topology.Set, i int) address.Address {
	if v.set == set {
		return v.addresses[i]
	}
	name := set.Server(i).Address
	if newest, _, err := d.look(); err == nil {
		if k := newest.set.Position(name); k >= 0 {
			return newest.addresses[k]
		}
	}
	return address.Address(name)
}

// find returns the driver's server, or nil if the driver just removed it.
func (d *deployment) find(at address.Address) (*drivertopology.SelectedServer, error) {
	return d.topology.FindServer(description.Server{Addr: at})
}

// noteStrangers follows, through the options' monitor, which servers answer
// but are not of the replica set that the options name. The driver leaves them
// out without a word.
func (d *deployment) noteStrangers() {
	if d.options.ReplicaSet == nil || *d.options.ReplicaSet == "" {
		return
	}
	monitor := new(event.ServerMonitor)
	if d.options.ServerMonitor != nil {
		*monitor = *d.options.ServerMonitor
	}
	theirs := monitor.ServerHeartbeatSucceeded
	monitor.ServerHeartbeatSucceeded = func(e *event.ServerHeartbeatSucceededEvent) {
		d.note(&e.Reply)
		if theirs != nil {
			theirs(e)
		}
	}
	d.options.ServerMonitor = monitor
}

func (d *deployment) note(reply *event.ServerDescription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reply.SetName == *d.options.ReplicaSet {
		delete(d.strangers, reply.Addr)
		return
	}
	d.strangers[reply.Addr] = stranger{kind: reply.Kind, setName: reply.SetName}
}

// failed wraps an error of a selection.
func (d *deployment) failed(err error) error {
	e := &Error{Deployment: d.name, Err: err}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(d.strangers)) {
		s := d.strangers[at]
		e.Strangers = append(e.Strangers, &StrangerError{Server: at.String(), Type: s.kind, SetName: s.setName, Want: *d.options.ReplicaSet})
	}
	return e
}

// wait blocks until the channel is closed, or ctx ends, or a heartbeat has
// passed.
func (d *deployment) wait(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(d.translator.heartbeat)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// replicatedEngine is what an engine is besides whose databases may be on
// several servers.
type replicatedEngine interface {
	Prober(database string, c shardway.Credentials) (topology.Prober, error)
}

// Bounds of the search for a primary.
const (
	probeLimit = 5 * time.Second // for the answer of each server
	lateLimit  = time.Second     // for those of the others, once one says that it is primary
)

// primaryConnector connects to that one of several servers which is primary
// now. It asks all of them for each connection: a former primary that nobody has
// told answers as well, and only the comparison shows that it is outdated.
type primaryConnector struct {
	set    topology.Set // nothing is known of its servers
	prober topology.Prober
	at     map[string]driver.Connector // by address
	first  driver.Connector
}

func newPrimaryConnector(e shardway.Engine, l shardway.Location, c shardway.Credentials) (*primaryConnector, error) {
	replicated, ok := e.(replicatedEngine)
	if !ok {
		return nil, &shardway.ArgumentError{Argument: "engine", Value: e.Name(), Reason: "cannot tell which of several servers is primary"}
	}
	p := &primaryConnector{at: map[string]driver.Connector{}}
	for i, s := range l.Servers {
		connector, err := e.Connector(s.Address, l.Database, c)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			p.first = connector
		}
		p.at[s.Address] = connector
	}
	var err error
	if p.set, err = replicaset.Describe(l, 0); err != nil {
		return nil, err
	}
	if p.prober, err = replicated.Prober(l.Database, c); err != nil {
		return nil, fmt.Errorf("opening a prober: %w", err)
	}
	return p, nil
}

// Connect finds the primary and connects to it.
func (p *primaryConnector) Connect(ctx context.Context) (driver.Conn, error) {
	set := p.look(ctx)
	primary, found := set.Primary()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !found:
		return nil, noPrimary(set)
	}
	return p.at[primary.Address].Connect(ctx)
}

// look asks every server what it is.
func (p *primaryConnector) look(ctx context.Context) topology.Set {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel() // ends the questions that nobody waits for
	answers := make(chan topology.Observation, p.set.Len())
	for _, server := range p.set.Servers() {
		go func() {
			began := time.Now()
			o, err := p.prober.Probe(ctx, server)
			o.Address, o.Generation, o.At, o.Err = server.Address, server.Generation, began, err
			answers <- o
		}()
	}
	set := p.set
	var late <-chan time.Time
	for range p.set.Len() {
		select {
		case o := <-answers:
			set = set.Apply(o)
		case <-late:
			return set
		}
		if _, found := set.Primary(); found && late == nil {
			timer := time.NewTimer(lateLimit)
			defer timer.Stop()
			late = timer.C
		}
	}
	return set
}

// noPrimary says of every server why it is not the primary.
func noPrimary(set topology.Set) error {
	errs := []error{set.Conflict()}
	for _, s := range set.Servers() {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Address, s.Err))
		} else {
			errs = append(errs, fmt.Errorf("%s is %s", s.Address, s.Role))
		}
	}
	return fmt.Errorf("no server is primary: %w", errors.Join(errs...))
}

// Driver is that of the first server; they are all of one engine.
func (p *primaryConnector) Driver() driver.Driver { return p.first.Driver() }

// Close closes the connections by which servers are asked. The pool calls it.
func (p *primaryConnector) Close() error {
	if c, ok := p.prober.(io.Closer); ok {
		_ = c.Close() // they only read
	}
	return nil
}

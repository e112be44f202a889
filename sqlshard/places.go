package sqlshard

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// databases opens pools and probers for the places of a DB. They call it once at
// a time.
type databases struct {
	cfg     *Config
	engines map[string]engine
	hosts   map[replicaset.Place]*host // their place has no database
}

func newPlaces(cfg *Config, engines map[string]engine) *replicaset.Places[pool] {
	d := &databases{cfg: cfg, engines: engines, hosts: map[replicaset.Place]*host{}}
	return replicaset.NewPlaces(replicaset.PlacesConfig[pool]{
		Open: d.open, Prober: d.prober, Answered: d.answered,
		Suspect: (*pool).suspect, Demoted: (*pool).dropSuspect, Retire: (*pool).retire,
		Heartbeat: cfg.Servers.Heartbeat, LocalThreshold: cfg.Servers.LocalThreshold,
		SelectionTimeout: cfg.Servers.SelectionTimeout, IdleTime: cfg.MaxIdleTime, Logger: cfg.Logger,
	})
}

func (d *databases) engine(name string) (engine, error) {
	e, ok := d.engines[name]
	if !ok && name == "mongodb" {
		return engine{}, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is not for SQL: the map has a shard on MongoDB, which mongoshard.For connects to"}
	}
	if !ok {
		return engine{}, &shardway.ArgumentError{Argument: "Engines", Value: name, Reason: "is missing: a shard's database is of that engine"}
	}
	return e, nil
}

func (d *databases) open(at replicaset.Place) (*pool, error) {
	e, err := d.engine(at.Engine)
	if err != nil {
		return nil, err
	}
	server := replicaset.Place{Engine: at.Engine, Address: at.Address}
	h := d.hosts[server]
	if h == nil {
		h = &host{limit: d.cfg.MaxOpenPerServer}
		d.hosts[server] = h
	}
	p, err := newPool(d.cfg, e, h, at.Address, at.Database)
	if err != nil {
		return nil, fmt.Errorf("opening a pool: %w", err)
	}
	return p, nil
}

func (d *databases) prober(l shardway.Location) (topology.Prober, error) {
	e, err := d.engine(l.Engine)
	if err != nil {
		return nil, err
	}
	if e.replicated == nil {
		return nil, &shardway.ArgumentError{Argument: "Engines", Value: l.Engine, Reason: "has no prober, which choosing among servers needs"}
	}
	prober, err := e.replicated.Prober(l.Database, d.cfg.Servers.Credentials)
	if err != nil {
		return nil, fmt.Errorf("opening a prober: %w", err)
	}
	return prober, nil
}

// answered is also for a connection that was only found dead.
func (d *databases) answered(engine string, err error) bool {
	return d.engines[engine].dialect.Answered(err) || errors.Is(err, driver.ErrBadConn)
}

package pgxshard

import (
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// databases opens pools and probers for the places of a DB. They call it once at
// a time.
type databases struct {
	cfg   *Config
	hosts map[string]*host // by address
}

func newPlaces(cfg *Config) *replicaset.Places[pool] {
	d := &databases{cfg: cfg, hosts: map[string]*host{}}
	return replicaset.NewPlaces(replicaset.PlacesConfig[pool]{
		Open: d.open, Prober: d.prober,
		Suspect: (*pool).suspect, Retire: (*pool).retire,
		Answered:  func(_ string, err error) bool { return fromServer(err) != nil && !postgres.ReadOnly(err) },
		Heartbeat: cfg.Servers.Heartbeat, LocalThreshold: cfg.Servers.LocalThreshold,
		SelectionTimeout: cfg.Servers.SelectionTimeout, IdleTime: cfg.Servers.IdleTime, Logger: cfg.Logger,
	})
}

func (d *databases) open(at replicaset.Place) (*pool, error) {
	if err := checkEngine(at.Engine); err != nil {
		return nil, err
	}
	h := d.hosts[at.Address]
	if h == nil {
		h = newHost(d.cfg.MaxOpenPerServer)
		d.hosts[at.Address] = h
	}
	p, err := newPool(d.cfg, h, at.Address, at.Database)
	if err != nil {
		return nil, fmt.Errorf("opening a pool: %w", err)
	}
	return p, nil
}

func (d *databases) prober(l shardway.Location) (topology.Prober, error) {
	if err := checkEngine(l.Engine); err != nil {
		return nil, err
	}
	prober, err := d.cfg.Engine.Prober(l.Database, d.cfg.Servers.Credentials)
	if err != nil {
		return nil, fmt.Errorf("opening a prober: %w", err)
	}
	return prober, nil
}

// checkEngine refuses shards on another engine.
func checkEngine(name string) error {
	if name != engineName {
		return &shardway.ArgumentError{Argument: "Engine", Value: name, Reason: "is that of the shard's database: this package is for " + engineName}
	}
	return nil
}

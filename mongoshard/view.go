package mongoshard

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"

	"github.com/shardway/shardway/topology"
)

// view is one description of the driver's topology, translated. The driver
// makes a new description at every heartbeat, so round trips are as fresh as
// its own; between two heartbeats a view is only compared.
type view struct {
	from description.Topology
	set  topology.Set
	// addresses are the driver's, by position in set.
	addresses []address.Address
}

// of reports whether v was made of a description: the driver never changes the
// servers of one, it makes new ones.
func (v *view) of(d description.Topology) bool {
	sameFault := v.from.CompatibilityErr == d.CompatibilityErr //nolint:errorlint // the very same, not one like it
	return v.from.Kind == d.Kind && len(v.from.Servers) == len(d.Servers) && sameFault &&
		(len(d.Servers) == 0 || &v.from.Servers[0] == &d.Servers[0])
}

// published is a view and the channel that is closed when the driver makes a
// newer description. The view is made when the first selection needs it.
type published struct {
	changed chan struct{}
	view    atomic.Pointer[view]
}

func newPublished() *published { return &published{changed: make(chan struct{})} }

// translator makes views. The counters of servers go on from view to view.
type translator struct {
	heartbeat time.Duration

	mu      sync.Mutex // guards the fields below
	last    *view
	round   *published        // that last was made for
	servers []topology.Server // of last, as they were given to Describe
	listed  map[string]bool   // canonical addresses of the view that is made
	base    topology.Set      // the last Set with servers
}

var kinds = map[description.TopologyKind]topology.Kind{
	description.TopologyKindSingle:                topology.KindSingle,
	description.TopologyKindReplicaSetNoPrimary:   topology.KindReplicaSetNoPrimary,
	description.TopologyKindReplicaSetWithPrimary: topology.KindReplicaSetWithPrimary,
	description.TopologyKindSharded:               topology.KindSharded,
	description.TopologyKindLoadBalanced:          topology.KindLoadBalanced,
}

// translate returns the view of a description in a round between two changes.
// When the seeds of an SRV record change, the driver changes a description in
// place; then the round tells.
func (t *translator) translate(d description.Topology, round *published) (*view, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil && t.round == round && t.last.of(d) {
		return t.last, nil
	}
	v := &view{from: d}
	var servers []topology.Server
	clear(t.listed)
	for i := range d.Servers {
		server, err := t.server(i, &d.Servers[i], d.CompatibilityErr)
		if err != nil || t.listed[server.Address] {
			continue // no address that could be dialed, or the same server again: the driver keeps a seed that is named twice
		}
		t.listed[server.Address] = true
		v.addresses = append(v.addresses, d.Servers[i].Addr)
		servers = append(servers, server)
	}
	if err := t.describe(v, servers); err != nil {
		return nil, fmt.Errorf("translating the topology %s: %w", d.Kind, err)
	}
	t.last, t.round, t.servers = v, round, servers
	return v, nil
}

func (t *translator) describe(v *view, servers []topology.Server) error {
	if len(servers) == 0 {
		return nil
	}
	kind := kinds[v.from.Kind] // others are KindUnknown
	if v.from.CompatibilityErr != nil {
		kind = topology.KindUnknown
	}
	var err error
	if t.base.Len() == 0 {
		if t.base, err = topology.NewSet(topology.Config{Heartbeat: t.heartbeat}, servers); err != nil {
			return err
		}
	}
	if v.set, err = t.base.Describe(kind, servers); err == nil {
		t.base = v.set
	}
	return err
}

// server translates the i-th server of a description. One that did not change
// since the last view is taken from there.
func (t *translator) server(i int, d *description.Server, incompatible error) (topology.Server, error) {
	if v := t.last; v != nil && incompatible == nil && v.from.CompatibilityErr == nil && i < len(v.from.Servers) &&
		len(t.servers) == len(v.from.Servers) && v.addresses[i] == d.Addr && same(d, &v.from.Servers[i]) {
		return t.servers[i], nil
	}
	at, err := topology.ParseAddress(d.Addr.String(), defaultPort)
	if err != nil {
		return topology.Server{}, err
	}
	s := topology.Server{
		Address:    at.String(),
		Role:       roleOf(d.Kind),
		LastUpdate: d.LastUpdateTime,
		LastWrite:  d.LastWriteTime,
		Err:        d.LastError,
		SetName:    d.SetName,
		SetVersion: int64(d.SetVersion),
	}
	if d.AverageRTTSet {
		s.AverageRTT = topology.Measured(d.AverageRTT)
	}
	if d.WireVersion != nil {
		s.MinWireVersion, s.MaxWireVersion = int(d.WireVersion.Min), int(d.WireVersion.Max)
	}
	if len(d.Tags) > 0 {
		tags := make(map[string]string, len(d.Tags))
		for _, tag := range d.Tags {
			tags[tag.Name] = tag.Value
		}
		s.Tags = topology.NewTags(tags)
	}
	if incompatible != nil {
		s.Role, s.Err = topology.RoleUnknown, incompatible
	}
	return s, nil
}

// defaultPort is MongoDB's.
const defaultPort = 27017

// same reports whether a server was not checked again since another
// description. A check, or an operation's error, sets a new time.
func same(d, old *description.Server) bool {
	return d.Addr == old.Addr && d.Kind == old.Kind && d.Kind != description.Unknown && d.LastUpdateTime.Equal(old.LastUpdateTime) &&
		d.AverageRTT == old.AverageRTT && d.AverageRTTSet == old.AverageRTTSet
}

func roleOf(kind description.ServerKind) topology.Role {
	switch kind {
	case description.ServerKindStandalone:
		return topology.RoleStandalone
	case description.ServerKindRSPrimary:
		return topology.RolePrimary
	case description.ServerKindRSSecondary:
		return topology.RoleSecondary
	case description.ServerKindRSArbiter:
		return topology.RoleArbiter
	case description.ServerKindRSGhost:
		return topology.RoleGhost
	case description.ServerKindRSMember:
		return topology.RoleOther
	case description.ServerKindMongos:
		return topology.RoleMongos
	case description.ServerKindLoadBalancer:
		return topology.RoleLoadBalancer
	}
	return topology.RoleUnknown
}

// position returns the position in the set of the server at a driver's
// address, or -1.
func (v *view) position(at address.Address) int {
	for i := range v.addresses {
		if v.addresses[i] == at {
			return i
		}
	}
	return -1
}

// names returns addresses in canonical text.
func (v *view) names(list []address.Address) []string {
	var names []string
	for _, at := range list {
		if i := v.position(at); i >= 0 {
			names = append(names, v.set.Server(i).Address)
		}
	}
	return names
}

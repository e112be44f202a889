package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultHeartbeat is the time between two checks of a server, and
// MinHeartbeat the smallest allowed one and the least time between two checks
// however often one is asked for (MongoDB server discovery and monitoring).
const (
	DefaultHeartbeat = 10 * time.Second
	MinHeartbeat     = 500 * time.Millisecond
)

// ErrNoServers means that a set was described without any server.
var ErrNoServers = errors.New("replica set has no servers")

// HeartbeatError refuses a heartbeat interval below MinHeartbeat.
type HeartbeatError struct {
	// Heartbeat is the refused interval.
	Heartbeat time.Duration
}

// Error names the interval and the smallest one allowed.
func (e *HeartbeatError) Error() string {
	return fmt.Sprintf("heartbeat %v is below the minimum of %v", e.Heartbeat, MinHeartbeat)
}

// Config holds what is fixed for a Set. The zero value is a Set of KindUnknown,
// in which nothing is selected.
type Config struct {
	// Kind says which rules the set follows.
	Kind Kind
	// Heartbeat is the time between two checks; 0 means DefaultHeartbeat.
	Heartbeat time.Duration
	// DefaultPort completes addresses without a port; 0 refuses them.
	DefaultPort int
	// ReadOnly says that the set has no primary by design: a write fails at
	// once instead of waiting for one.
	ReadOnly bool
}

func (c *Config) validate() error {
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Heartbeat < MinHeartbeat {
		return &HeartbeatError{Heartbeat: c.Heartbeat}
	}
	return nil
}

// Set is an immutable description of a replica set. Copies are cheap, equal
// (==) if they are the same description, and safe for concurrent use; only the
// operation counters behind it change. The zero value has no servers.
type Set struct{ d *description }

type description struct {
	config      Config
	servers     []Server // Invariant: addresses are distinct; order never changes by Apply.
	primary     int      // index of the primary, or -1
	conflict    *ConflictError
	sitting     string // address of the last server accepted as primary
	newest      Term   // newest term any server reported
	newestBy    string // address that reported newest first
	generations uint64 // last Generation given out
	closed      bool
	index       Index
}

var emptySet = &description{config: Config{Heartbeat: DefaultHeartbeat}, primary: -1}

func (s Set) desc() *description {
	if s.d == nil {
		return emptySet
	}
	return s.d
}

// NewSet describes servers that nothing is known of yet but address and tags.
// A bad address or one listed twice is an *AddressError, a small heartbeat a
// *HeartbeatError, an empty list ErrNoServers.
func NewSet(config Config, servers []Server) (Set, error) {
	if err := config.validate(); err != nil {
		return Set{}, err
	}
	return (&description{config: config, primary: -1}).members(servers)
}

// Members returns the set with exactly the given servers. A server that stays
// keeps its description and its operation counter and takes the new tags; one
// that was removed and comes back is a new server. Removing the server with the
// newest term forgets that term. Errors are those of NewSet.
func (s Set) Members(servers []Server) (Set, error) { return s.desc().members(servers) }

// Describe returns the set with exactly the given descriptions, taken as they
// are, as a translator of another library's monitoring needs. Operation
// counters of kept addresses go on. Errors are those of NewSet.
func (s Set) Describe(kind Kind, servers []Server) (Set, error) {
	next, err := s.desc().members(servers)
	if err != nil {
		return Set{}, err
	}
	next.d.config.Kind = kind
	for i := range next.d.servers {
		kept, given := next.d.servers[i], servers[i]
		given.Address, given.Host, given.Port = kept.Address, kept.Host, kept.Port
		given.Generation, given.load = kept.Generation, kept.load
		given.Demotions, given.wasPrimary = kept.Demotions, kept.wasPrimary
		given.Claimed, given.seenErr = given.Role, given.Err
		next.d.servers[i] = given
	}
	next.d.settle(false) // members labelled it
	return next, nil
}

func (d *description) members(servers []Server) (Set, error) {
	if len(servers) == 0 {
		return Set{}, ErrNoServers
	}
	next := *d
	next.servers = make([]Server, 0, len(servers))
	listed := make(map[string]bool, len(servers)) // canonical address → seen
	relabel := len(servers) != len(d.servers)
	for i, server := range servers {
		name, address, err := d.parse(server.Address)
		if err != nil {
			return Set{}, err
		}
		relabel = relabel || d.servers[i].Address != name || !d.servers[i].Tags.Equal(server.Tags)
		if listed[name] {
			return Set{}, &AddressError{Address: name, Reason: "it is listed twice in one set"}
		}
		listed[name] = true
		next.servers = append(next.servers, next.member(d, name, address, server.Tags))
	}
	if !listed[d.newestBy] {
		next.newest, next.newestBy = Term{}, "" // the remaining servers' terms count
	}
	next.settle(relabel)
	return Set{d: &next}, nil
}

// parse reads an address; one that is in the set already is canonical.
func (d *description) parse(text string) (string, Address, error) {
	if i := d.find(text); i >= 0 {
		return text, Address{Host: d.servers[i].Host, Port: d.servers[i].Port}, nil
	}
	address, err := ParseAddress(text, d.config.DefaultPort)
	return address.String(), address, err
}

// member returns the old description of a server that stays as it was, or a
// new one that nothing is known of.
func (d *description) member(old *description, name string, address Address, tags Tags) Server {
	fresh := Server{Address: name, Host: address.Host, Port: address.Port, Tags: tags}
	if i := old.find(name); i >= 0 {
		kept := old.servers[i]
		kept.Tags = tags
		return kept
	}
	d.generations++
	fresh.Generation = d.generations
	fresh.load = new(Load)
	return fresh
}

// Apply returns the set after an observation. It is pure. An observation of a
// server that is not in the set or was replaced, or one no newer than the last
// applied, changes nothing: the result is the same Set.
func (s Set) Apply(o Observation) Set {
	d := s.desc()
	i := d.find(o.Address)
	if i < 0 || !o.supersedes(d.servers[i]) {
		return s
	}
	next := *d
	next.servers = slices.Clone(d.servers)
	next.servers[i] = d.servers[i].observed(o)
	next.settle(false)
	return Set{d: &next}
}

// close returns the set as it is once its monitor has ended: every server is
// unknown and stays so.
func (s Set) close() Set {
	next := *s.desc()
	next.closed = true
	next.servers = slices.Clone(next.servers)
	for i := range next.servers {
		at := next.servers[i].LastUpdate
		next.servers[i] = next.servers[i].observed(Observation{At: at, Err: ErrClosed})
	}
	next.settle(false)
	return Set{d: &next}
}

// settle derives everything that depends on several servers: accepted roles,
// MongoDB's kind and staleness, the index. relabel says that addresses or tags
// may have changed.
func (d *description) settle(relabel bool) {
	if relabel {
		d.index.labels = newLabels(d.servers)
	}
	d.compareClaims()
	if d.config.Kind.MongoReplicaSet() {
		d.config.Kind = KindReplicaSetNoPrimary
		if d.primary >= 0 {
			d.config.Kind = KindReplicaSetWithPrimary
		}
		d.estimateStaleness()
	}
	d.index = newIndex(d)
}

// estimateStaleness applies MongoDB's max-staleness rule. The point of
// comparison is taken from the whole set, never from filtered candidates.
func (d *description) estimateStaleness() {
	var freshest time.Time
	for i := range d.servers {
		if s := &d.servers[i]; s.Role == RoleSecondary && s.LastWrite.After(freshest) {
			freshest = s.LastWrite
		}
	}
	for i := range d.servers {
		s := &d.servers[i]
		if s.Role != RoleSecondary {
			continue
		}
		s.Staleness = Measurement{}
		if s.LastWrite.IsZero() {
			continue
		}
		behind := freshest.Sub(s.LastWrite)
		if d.primary >= 0 {
			p := &d.servers[d.primary]
			if p.LastWrite.IsZero() {
				continue
			}
			behind = s.LastUpdate.Sub(s.LastWrite) - p.LastUpdate.Sub(p.LastWrite)
		}
		s.Staleness = Measured(max(behind+d.config.Heartbeat, 0))
	}
}

// Kind says which rules the set follows.
func (s Set) Kind() Kind { return s.desc().config.Kind }

// Heartbeat is the time between two checks of a server.
func (s Set) Heartbeat() time.Duration { return s.desc().config.Heartbeat }

// ReadOnly reports whether the set has no primary by design.
func (s Set) ReadOnly() bool { return s.desc().config.ReadOnly }

// Closed reports whether the set's monitor has ended, so that nothing will change.
func (s Set) Closed() bool { return s.desc().closed }

// Len returns the number of servers.
func (s Set) Len() int { return len(s.desc().servers) }

// Server returns the i-th server, 0 <= i < Len; the order is that of NewSet.
func (s Set) Server(i int) Server { return s.desc().servers[i] }

// Servers returns a copy of all descriptions.
func (s Set) Servers() []Server { return slices.Clone(s.desc().servers) }

// Find returns the server at an address in canonical text, and whether there is one.
func (s Set) Find(address string) (Server, bool) {
	if i := s.desc().find(address); i >= 0 {
		return s.desc().servers[i], true
	}
	return Server{}, false
}

// Primary returns the accepted primary, and whether there is one.
func (s Set) Primary() (Server, bool) {
	if d := s.desc(); d.primary >= 0 {
		return d.servers[d.primary], true
	}
	return Server{}, false
}

// Conflict returns why a claim to be primary is refused now, or nil. It is an
// *ConflictError.
func (s Set) Conflict() error {
	if c := s.desc().conflict; c != nil {
		return c
	}
	return nil
}

// Load returns the operation counter of the i-th server.
func (s Set) Load(i int) *Load { return s.desc().servers[i].load }

// Index returns the set arranged for selection.
func (s Set) Index() *Index { return &s.desc().index }

// String lists the kind and each server's address, role and average round trip.
func (s Set) String() string {
	var b strings.Builder
	b.WriteString(s.Kind().String())
	for i := range s.desc().servers {
		server := &s.desc().servers[i]
		fmt.Fprintf(&b, " %s(%s, %s)", server.Address, server.Role, server.AverageRTT)
	}
	return b.String()
}

func (d *description) find(address string) int { return d.index.find(d.servers, address) }

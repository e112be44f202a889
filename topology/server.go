package topology

import (
	"sync/atomic"
	"time"
)

// Server describes one server at one moment. It is a value: changing a copy
// changes nothing else. In the list given to NewSet only Address and Tags are
// needed; Describe takes all of it.
type Server struct {
	// Address is the canonical text of Host and Port, unique in its Set.
	Address string
	// Host is a name, an IP address without brackets, or a socket's path.
	Host string
	// Port is 0 for a socket without one.
	Port int
	// Role is what the server is in the Set, after claims were compared.
	Role Role
	// Claimed is what the server said of itself; it differs from Role if its
	// claim to be primary was refused, and Err says why.
	Claimed Role
	// Detached is true for a secondary that follows nobody; its data stands still.
	Detached bool
	// Tags come from the shard map.
	Tags Tags
	// AverageRTT is the moving average of round trips since the server became known.
	AverageRTT Measurement
	// LastUpdate is the time of the newest applied observation; zero if none was.
	LastUpdate time.Time
	// LastWrite is the time of the last write or replayed write, by the
	// primary's clock; zero if unknown.
	LastWrite time.Time
	// Staleness is how far a secondary was behind at LastUpdate: measured for
	// SQL servers, estimated by MongoDB's rule in its replica sets.
	Staleness Measurement
	// Upstream is the address of the server this one follows, if it said so.
	Upstream string
	// Term orders claims to be primary.
	Term Term
	// Engine is the engine's name, such as "postgres".
	Engine string
	// Version is the engine's version text.
	Version string
	// Err is the last probe's error, or why the server's claim was refused.
	Err error
	// MinWireVersion and MaxWireVersion are MongoDB's protocol versions.
	MinWireVersion, MaxWireVersion int
	// SetName and SetVersion are those of a MongoDB replica set.
	SetName    string
	SetVersion int64
	// Demotions counts how often the server was seen to stop being primary. A
	// write session opened under another count must not carry a write. A missed
	// check alone does not count.
	Demotions uint64
	// Generation tells a server from a later one at the same address.
	Generation uint64

	wasPrimary bool
	told       []string // see Told; shared by descriptions and never changed
	seenErr    error    // the last probe's own error; Err is derived from it
	load       *Load
}

// InFlight returns the number of operations on the server now. It is live: two
// calls on one description may differ. It is 0 for a Server outside a Set.
func (s Server) InFlight() int64 {
	if s.load == nil {
		return 0
	}
	return s.load.InFlight()
}

// Load counts the operations of one server. It belongs to the server, not to a
// description: every Set that holds the server shares it. All methods may be
// called concurrently.
type Load struct {
	inFlight atomic.Int64
	picks    atomic.Int64
	_        [48]byte // keeps two servers' counters out of one cache line
}

// Begin counts an operation as started.
func (l *Load) Begin() { l.inFlight.Add(1) }

// End counts an operation as ended.
func (l *Load) End() { l.inFlight.Add(-1) }

// InFlight returns the number of operations started and not ended.
func (l *Load) InFlight() int64 { return l.inFlight.Load() }

// Pick counts a balanced choice of the server.
func (l *Load) Pick() { l.picks.Add(1) }

// Picks returns the number of recent balanced choices.
func (l *Load) Picks() int64 { return l.picks.Load() }

// Fade halves the count of balanced choices, so that old ones weigh less. A
// concurrent Pick may be lost; the count is a weight, not an account.
func (l *Load) Fade() { l.picks.Store(l.picks.Load() / 2) }

// Observation is what one probe saw of one server. Fields the probe did not
// learn stay zero, which always means unknown, never a favourable value.
type Observation struct {
	// Address names the server.
	Address string
	// Generation is the probed Server's; 0 fits any server at the address.
	Generation uint64
	// At is when the probe began. An observation no newer than the last applied
	// one changes nothing; at the same instant an error wins.
	At time.Time
	// Role is what the server says of itself. Only an explicit answer may be
	// RolePrimary.
	Role Role
	// RTT is this probe's round trip.
	RTT Measurement
	// LastWrite is the last write or replayed write; zero if unknown.
	LastWrite time.Time
	// Staleness is how far the server was behind; unknown if it could not be measured.
	Staleness Measurement
	// Detached is true for a secondary that follows nobody.
	Detached bool
	// Upstream is the address of the server this one follows, in canonical text.
	Upstream string
	// Told are the addresses of other servers that this one tells of, beside
	// Upstream, itself possibly among them. What is no plain address of a host
	// and port is dropped, and so is what exceeds Server.Told's bound.
	Told []string
	// Term orders claims to be primary.
	Term Term
	// Engine and Version name the software.
	Engine, Version string
	// Err makes the server unknown, whatever the other fields say.
	Err error
}

// observed returns the server after o, before claims are compared.
func (s Server) observed(o Observation) Server {
	s.LastUpdate = o.At
	s.seenErr = o.Err
	s.Claimed = o.Role
	if o.Err != nil {
		s.Claimed = RoleUnknown
	}
	if !s.Claimed.Available() {
		s.AverageRTT, s.Staleness = Measurement{}, Measurement{}
		s.Detached, s.Upstream, s.Term, s.LastWrite = false, "", Term{}, time.Time{}
		s.told = nil
		return s
	}
	s.AverageRTT = Average(s.AverageRTT, o.RTT)
	s.LastWrite, s.Staleness = o.LastWrite, o.Staleness
	s.Detached = o.Detached && o.Role == RoleSecondary
	s.Upstream, s.Term, s.told = o.Upstream, o.Term, canonical(o.Told)
	s.Engine, s.Version = o.Engine, o.Version
	return s
}

// supersedes reports whether o may change s.
func (o Observation) supersedes(s Server) bool {
	if o.Generation != 0 && o.Generation != s.Generation {
		return false
	}
	if o.At.Equal(s.LastUpdate) {
		return o.Err != nil && s.seenErr == nil
	}
	return o.At.After(s.LastUpdate)
}

package topology

import (
	"math"
	"slices"
	"sync/atomic"
	"unique"
)

// NoValue marks an unknown duration in the columns of an Index. It is greater
// than every known one.
const NoValue = math.MaxInt64

// smallIndex is the size up to which a linear search beats a map.
const smallIndex = 16

// MemoSlots is the number of conclusions that an Index has room for.
const MemoSlots = 8

// Index is a Set arranged for selection: bit i of every bitmap and element i of
// every column belong to the i-th server. It is computed once per description.
// Its slices must not be changed.
type Index struct {
	// Kind is the set's.
	Kind Kind
	// Available has the servers that answered and said what they are.
	Available []uint64
	// Readable has the servers that hold data or lead to it.
	Readable []uint64
	// Primary has the accepted primary, or nobody.
	Primary []uint64
	// Secondary has all secondaries.
	Secondary []uint64
	// Detached has the secondaries that follow nobody.
	Detached []uint64
	// RTT is the average round trip in nanoseconds, or NoValue.
	RTT []int64
	// Staleness is in nanoseconds, or NoValue; 0 for all but secondaries, as
	// only they can be behind.
	Staleness []int64
	// Loads are the servers' operation counters.
	Loads []*Load
	// AnyDetached says that Detached is not empty.
	AnyDetached bool
	// Memo has room for what a reader concludes from the description, which
	// never changes. Package selection keeps latency windows there.
	Memo *[MemoSlots]atomic.Value

	labels *labels // shared by descriptions with the same addresses and tags
}

// labels finds servers by address and by tag.
type labels struct {
	addresses map[string]int    // address → server; nil for a small set
	tags      []TagHandle       // distinct
	bits      [][]uint64        // bitmap of each of tags
	byTag     map[TagHandle]int // tag → position in tags; nil if they are few
}

func newIndex(d *description) Index {
	n := len(d.servers)
	words := (n + 63) / 64
	bits := make([]uint64, 5*words)
	columns := make([]int64, 2*n)
	ix := Index{
		Kind:      d.config.Kind,
		Available: bits[:words:words],
		Readable:  bits[words : 2*words : 2*words],
		Primary:   bits[2*words : 3*words : 3*words],
		Secondary: bits[3*words : 4*words : 4*words],
		Detached:  bits[4*words:],
		RTT:       columns[:n:n],
		Staleness: columns[n:],
		Loads:     make([]*Load, n),
		Memo:      new([MemoSlots]atomic.Value),
		labels:    d.index.labels,
	}
	for i := range d.servers {
		ix.add(i, &d.servers[i])
	}
	return ix
}

func (ix *Index) add(i int, s *Server) {
	word, bit := i/64, uint64(1)<<(i%64)
	if s.Role.Available() {
		ix.Available[word] |= bit
	}
	if s.Role.Readable() {
		ix.Readable[word] |= bit
	}
	switch s.Role {
	case RolePrimary:
		ix.Primary[word] |= bit
	case RoleSecondary:
		ix.Secondary[word] |= bit
		if s.Detached {
			ix.Detached[word] |= bit
			ix.AnyDetached = true
		}
	}
	ix.Loads[i] = s.load
	ix.RTT[i] = column(s.AverageRTT)
	if s.Role == RoleSecondary {
		ix.Staleness[i] = column(s.Staleness)
	}
}

func column(m Measurement) int64 {
	d, known := m.Value()
	if !known {
		return NoValue
	}
	return int64(d)
}

func newLabels(servers []Server) *labels {
	words := (len(servers) + 63) / 64
	l := &labels{byTag: make(map[TagHandle]int)}
	if len(servers) > smallIndex {
		l.addresses = make(map[string]int, len(servers))
	}
	for i := range servers {
		if l.addresses != nil {
			l.addresses[servers[i].Address] = i
		}
		for _, pair := range servers[i].Tags.pairs {
			tag := unique.Make(pair)
			at, found := l.byTag[tag]
			if !found {
				at = len(l.tags)
				l.byTag[tag] = at
				l.tags = append(l.tags, tag)
				l.bits = append(l.bits, make([]uint64, words))
			}
			l.bits[at][i/64] |= 1 << (i % 64)
		}
	}
	if len(l.tags) <= smallIndex {
		l.byTag = nil
	}
	return l
}

// Tagged returns the bitmap of the servers with a tag, or nil if none has it.
func (ix *Index) Tagged(tag TagHandle) []uint64 {
	l := ix.labels
	if l == nil {
		return nil
	}
	if l.byTag != nil {
		if at, found := l.byTag[tag]; found {
			return l.bits[at]
		}
		return nil
	}
	if at := slices.Index(l.tags, tag); at >= 0 {
		return l.bits[at]
	}
	return nil
}

// Position returns the position of the server at an address in canonical text, or -1.
func (s Set) Position(address string) int { return s.desc().find(address) }

func (ix *Index) find(servers []Server, address string) int {
	if ix.labels != nil && ix.labels.addresses != nil {
		if i, found := ix.labels.addresses[address]; found {
			return i
		}
		return -1
	}
	for i := range servers {
		if servers[i].Address == address {
			return i
		}
	}
	return -1
}

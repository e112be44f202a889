package shardway

import (
	"bytes"
	"time"
	"unsafe"

	"github.com/shardway/shardway/internal/interval"
)

// snapshot is what is known of one shard map at one moment. It never changes:
// methods that change something return another snapshot, which shares most of
// its memory. One index serves list and range maps, see [tree].
type snapshot struct {
	kind    MapKind
	keyKind KeyKind
	ints    interval.Ints  // key kinds that are fixed
	bytes   interval.Bytes // the others, by their encoding
	shards  shardTable

	generation int64 // the newest generation an answer had
	cleared    int64 // the newest generation at which something was found to be gone
}

// find returns the mapping that holds a key of the map's kind. It allocates nothing.
func (s *snapshot) find(k Key) (interval.Value, bool) {
	if s.keyKind.Fixed() {
		return s.findInt(k.hi)
	}
	if k.kind == KindUUID {
		var buf [16]byte
		return s.findBytes(k.AppendEncoded(buf[:0]))
	}
	var buf [MaxEncodedBytes]byte
	return s.findBytes(k.AppendEncoded(buf[:0]))
}

func (s *snapshot) findInt(k uint64) (interval.Value, bool) {
	start, v, _ := s.ints.Floor(k)
	return v, v.ID != 0 && (s.kind == RangeMap || start == k)
}

func (s *snapshot) findBytes(enc []byte) (interval.Value, bool) {
	start, v, _ := s.bytes.Floor(enc)
	return v, v.ID != 0 && (s.kind == RangeMap || bytes.Equal(start, enc))
}

// findValue is find for a Go value of the map's kind. It spares numbers and
// UUIDs, of which there are many requests, the way through a [Key].
func findValue[K KeyType](s *snapshot, k K) (interval.Value, bool) {
	switch k := any(k).(type) {
	case int64:
		return s.findInt(Int64Key(k).hi)
	case int32:
		return s.findInt(Int32Key(k).hi)
	case uint64:
		return s.findInt(k)
	case string, []byte, time.Time, time.Duration:
		key, err := KeyOf(k.(K))
		if err != nil {
			return none, false
		}
		return s.find(key)
	}
	return s.findBytes((*(*[16]byte)(unsafe.Pointer(&k)))[:]) // see KeyOf
}

// lookup returns the route for a key of the map's kind.
func (s *snapshot) lookup(k Key) (Route, bool) {
	v, ok := s.find(k)
	if !ok {
		return Route{}, false
	}
	return s.route(v), true
}

// route returns the route to what find has found.
func (s *snapshot) route(v interval.Value) Route {
	return Route{
		MappingID:  MappingID(v.ID),
		Shard:      s.shards.shards[v.Ref>>1],
		Generation: s.generation,
		Status:     MappingStatus(v.Ref & 1),
		FromCache:  true,
	}
}

// value packs a mapping: the reference is the shard's slot, and the online bit.
func value(id MappingID, slot uint32, status MappingStatus) interval.Value {
	return interval.Value{ID: int64(id), Ref: slot<<1 | uint32(status&1)}
}

// with returns a snapshot with the mapping, whose shard is in the given slot.
func (s *snapshot) with(m Mapping, slot uint32) *snapshot {
	next, v := *s, value(m.ID, slot, m.Status)
	switch {
	case s.kind == ListMap && s.keyKind.Fixed():
		next.ints = s.ints.Set(m.Range.Low.hi, v)
	case s.kind == ListMap:
		next.bytes = s.bytes.Set(m.Range.Low.Encoded(), v)
	case s.keyKind.Fixed():
		next.ints = assign(intAxis, s.ints, intSpan(m.Range), v)
	default:
		next.bytes = assign(byteAxis, s.bytes, byteSpan(m.Range), v)
	}
	return &next
}

// without returns a snapshot that has forgotten every mapping with a key in r,
// which in a list map is a point when it has no high end.
func (s *snapshot) without(r Range) *snapshot {
	if s.kind == ListMap && r.Open() {
		return s.withoutKey(r.Low)
	}
	next := *s
	if s.keyKind.Fixed() {
		next.ints = forget(s.kind, intAxis, s.ints, intSpan(r))
	} else {
		next.bytes = forget(s.kind, byteAxis, s.bytes, byteSpan(r))
	}
	return &next
}

// withoutKey returns a snapshot that has forgotten the mapping that holds k.
func (s *snapshot) withoutKey(k Key) *snapshot {
	next := *s
	if s.keyKind.Fixed() {
		next.ints = forget(s.kind, intAxis, s.ints, intAxis.point(k.hi))
	} else {
		next.bytes = forget(s.kind, byteAxis, s.bytes, byteAxis.point(k.Encoded()))
	}
	return &next
}

// free reports whether nothing is cached in r.
func (s *snapshot) free(r Range) bool {
	if s.kind == ListMap {
		_, ok := s.find(r.Low)
		return !ok
	}
	if s.keyKind.Fixed() {
		return vacant(intAxis, s.ints, intSpan(r))
	}
	return vacant(byteAxis, s.bytes, byteSpan(r))
}

// mappings counts what is cached. It looks at every entry.
func (s *snapshot) mappings() (n int) {
	if s.kind == ListMap {
		return s.ints.Len() + s.bytes.Len()
	}
	count := func(v interval.Value) {
		if v != none {
			n++
		}
	}
	for _, v := range s.ints.All(0) {
		count(v)
	}
	for _, v := range s.bytes.All(nil) {
		count(v)
	}
	return n
}

func intSpan(r Range) span[uint64] {
	return span[uint64]{low: r.Low.hi, high: r.High.hi, open: r.Open()}
}

func byteSpan(r Range) span[[]byte] {
	return span[[]byte]{low: r.Low.Encoded(), high: r.High.Encoded(), open: r.Open()}
}

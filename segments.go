package shardway

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/shardway/shardway/internal/interval"
)

// tree is what segments are kept in: [interval.Ints] or [interval.Bytes].
//
// In a range map an entry is the start of a segment, which ends where the next
// one starts. A segment holds one mapping, or nothing when its value is none.
// Invariants: a mapping is exactly one segment; nothing is cached below the
// first entry, which is never none; no two neighbours are none. In a list map
// an entry is a point, and there is no none.
type tree[K, T any] interface {
	Floor(key K) (K, interval.Value, bool)
	Ceil(key K) (K, interval.Value, bool)
	Set(key K, v interval.Value) T
	DeleteRange(low, high K, open bool) T
}

// none is the value of a segment in which nothing is cached.
var none interval.Value

// span is the keys in [low, high), or all from low on when open.
type span[K any] struct {
	low, high K
	open      bool
}

// axis is the order that the keys of a tree have.
type axis[K any] struct {
	compare func(a, b K) int
	next    func(k K) (next K, open bool) // the first key after k; open when there is none
	decode  func(kind KeyKind, enc []byte) (K, error)
	keep    func(dst, k K) K // a copy of k, in dst where possible
}

var (
	intAxis = axis[uint64]{
		compare: cmp.Compare[uint64],
		next:    func(k uint64) (uint64, bool) { return k + 1, k+1 == 0 },
		decode:  decodeFixed,
		keep:    func(_, k uint64) uint64 { return k },
	}
	byteAxis = axis[[]byte]{
		compare: bytes.Compare,
		next:    func(k []byte) ([]byte, bool) { return append(bytes.Clone(k), 0), false },
		decode:  decodeBytes,
		keep:    func(dst, k []byte) []byte { return append(dst[:0], k...) },
	}
)

// point returns the span of one key.
func (a axis[K]) point(k K) span[K] {
	s := span[K]{low: k}
	s.high, s.open = a.next(k)
	return s
}

func decodeFixed(kind KeyKind, enc []byte) (uint64, error) {
	if kind == KindInt32 && len(enc) == 4 {
		return uint64(binary.BigEndian.Uint32(enc)), nil
	}
	if kind == KindInt32 || len(enc) != 8 {
		return 0, fmt.Errorf("decoding %s key from %x: %w", kind, enc, ErrInvalid)
	}
	return binary.BigEndian.Uint64(enc), nil
}

func decodeBytes(kind KeyKind, enc []byte) ([]byte, error) {
	if !validEncoding(kind, enc) {
		return nil, fmt.Errorf("decoding %s key from %x: %w", kind, enc, ErrInvalid)
	}
	return enc, nil
}

// assign gives the keys of s to the mapping of v. Every other mapping that had
// one of them is forgotten as a whole: it no longer exists.
func assign[K any, T tree[K, T]](a axis[K], t T, s span[K], v interval.Value) T {
	if exact(a, t, s) {
		return t.Set(s.low, v)
	}
	t = vacate(a, t, s).Set(s.low, v)
	if s.open {
		return t
	}
	if start, _, _ := t.Floor(s.high); a.compare(start, s.high) != 0 {
		t = t.Set(s.high, none)
	}
	return t
}

// exact reports whether s is one segment.
func exact[K any, T tree[K, T]](a axis[K], t T, s span[K]) bool {
	if start, _, ok := t.Floor(s.low); !ok || a.compare(start, s.low) != 0 {
		return false
	}
	after, last := a.next(s.low)
	if last {
		return s.open
	}
	end, _, ok := t.Ceil(after)
	return ok != s.open && (s.open || a.compare(end, s.high) == 0)
}

// forget forgets what a map of the given kind has in s.
func forget[K any, T tree[K, T]](kind MapKind, a axis[K], t T, s span[K]) T {
	if kind == ListMap {
		return t.DeleteRange(s.low, s.high, s.open)
	}
	return vacate(a, t, s)
}

// vacate forgets every mapping that has a key in s, as a whole.
func vacate[K any, T tree[K, T]](a axis[K], t T, s span[K]) T {
	if start, v, ok := t.Floor(s.low); ok && v != none {
		s.low = start
	}
	if !s.open {
		start, v, ok := t.Floor(s.high)
		if ok && v != none && a.compare(start, s.high) < 0 {
			s.high, _, ok = t.Ceil(s.high)
			s.open = !ok
		}
	}
	t = t.DeleteRange(s.low, s.high, s.open)
	if _, v, ok := t.Floor(s.low); ok && v != none {
		t = t.Set(s.low, none)
	}
	if s.open {
		return t
	}
	if start, v, ok := t.Floor(s.high); ok && v == none && a.compare(start, s.high) == 0 {
		after, last := a.next(s.high) // what is before is empty too: the boundary says nothing
		t = t.DeleteRange(s.high, after, last)
	}
	return t
}

// vacant reports whether no mapping in a tree of segments has a key in s.
func vacant[K any, T tree[K, T]](a axis[K], t T, s span[K]) bool {
	if _, v, ok := t.Floor(s.low); ok && v != none {
		return false
	}
	start, v, ok := t.Ceil(s.low)
	for ok && (s.open || a.compare(start, s.high) < 0) {
		if v != none {
			return false
		}
		after, last := a.next(start)
		if last {
			break
		}
		start, v, ok = t.Ceil(after)
	}
	return true
}

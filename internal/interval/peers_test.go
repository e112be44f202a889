package interval

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// contender is an index under measurement, beside writers. Its lookups take no part in allocation.
type contender[K any] struct {
	name  string
	floor func(K) (Value, bool)
	set   func(K, Value) // replaces the value of a present key
	// insert and remove change the set of keys; nil where that copies the whole index.
	insert func(K, Value)
	remove func(K)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// intStarts returns n starts over the whole key space, unevenly spaced.
func intStarts(n int) []uint64 {
	step := ^uint64(0) / uint64(n)
	starts := make([]uint64, n)
	for i := range starts {
		starts[i] = uint64(i)*step + rand.Uint64N(step)
	}
	starts[0] = 0
	return starts
}

// byteStarts returns n sorted random keys of 16 bytes, the first of them zero.
func byteStarts(n int) [][]byte {
	text := make([]byte, 16*n)
	starts := make([][]byte, n)
	for i := range starts {
		starts[i] = text[16*i : 16*i+16 : 16*i+16]
		if i > 0 {
			binary.BigEndian.PutUint64(starts[i], rand.Uint64())
			binary.BigEndian.PutUint64(starts[i][8:], rand.Uint64())
		}
	}
	slices.SortFunc(starts, bytes.Compare)
	text = bytes.Join(starts, nil) // in memory they follow each other, as they would come from a store
	for i := range starts {
		starts[i] = text[16*i : 16*i+16 : 16*i+16]
	}
	return starts
}

// numbered pairs keys with values that tell them apart.
func numbered[K any](keys []K) iter.Seq2[K, Value] {
	return func(yield func(K, Value) bool) {
		for i, k := range keys {
			if !yield(k, Value{ID: int64(i), Ref: uint32(i % 7)}) {
				return
			}
		}
	}
}

func ours[K any, M persistent[K, M]](m M) contender[K] {
	var current atomic.Pointer[M]
	current.Store(&m)
	swap := func(m M) { current.Store(&m) }
	return contender[K]{
		name:   "ours",
		floor:  func(k K) (Value, bool) { _, v, ok := (*current.Load()).Floor(k); return v, ok },
		set:    func(k K, v Value) { swap((*current.Load()).Set(k, v)) },
		insert: func(k K, v Value) { swap((*current.Load()).Set(k, v)) },
		remove: func(k K) { swap((*current.Load()).DeleteRange(k, successor(k), false)) },
	}
}

// successor returns the least key greater than k.
func successor[K any](k K) K {
	switch k := any(k).(type) {
	case uint64:
		return any(k + 1).(K)
	case []byte:
		return any(append(slices.Clone(k), 0)).(K)
	}
	panic("no such key")
}

// tidwallMutex is tidwall/btree behind a read-write lock. own makes a key that the map may keep.
func tidwallMutex[K any, T cmp.Ordered](seq iter.Seq2[K, Value], own func(K) T, view func(K) T) contender[K] {
	var mu sync.RWMutex
	var m btree.Map[T, Value]
	for k, v := range seq {
		m.Load(own(k), v)
	}
	return contender[K]{
		name: "tidwall-mutex",
		floor: func(k K) (found Value, ok bool) {
			mu.RLock()
			m.Descend(view(k), func(_ T, v Value) bool { found, ok = v, true; return false })
			mu.RUnlock()
			return found, ok
		},
		set:    func(k K, v Value) { mu.Lock(); m.Set(own(k), v); mu.Unlock() },
		insert: func(k K, v Value) { mu.Lock(); m.Set(own(k), v); mu.Unlock() },
		remove: func(k K) { mu.Lock(); m.Delete(view(k)); mu.Unlock() },
	}
}

// tidwallCopy is tidwall/btree with a copy-on-write copy published for each change.
func tidwallCopy[K any, T cmp.Ordered](seq iter.Seq2[K, Value], own func(K) T, view func(K) T) contender[K] {
	var current atomic.Pointer[btree.Map[T, Value]]
	var first btree.Map[T, Value]
	for k, v := range seq {
		first.Load(own(k), v)
	}
	current.Store(&first)
	change := func(f func(m *btree.Map[T, Value])) {
		m := current.Load().Copy()
		f(m)
		current.Store(m)
	}
	return contender[K]{
		name: "tidwall-copy",
		floor: func(k K) (found Value, ok bool) {
			current.Load().Descend(view(k), func(_ T, v Value) bool { found, ok = v, true; return false })
			return found, ok
		},
		set:    func(k K, v Value) { change(func(m *btree.Map[T, Value]) { m.Set(own(k), v) }) },
		insert: func(k K, v Value) { change(func(m *btree.Map[T, Value]) { m.Set(own(k), v) }) },
		remove: func(k K) { change(func(m *btree.Map[T, Value]) { m.Delete(view(k)) }) },
	}
}

// slicePair is a sorted slice of keys beside their values.
type slicePair[T cmp.Ordered] struct {
	keys   []T
	values []Value
}

// sortedSlice is a sorted slice and binary search; a change copies it.
func sortedSlice[K any, T cmp.Ordered](seq iter.Seq2[K, Value], own func(K) T, view func(K) T) contender[K] {
	var current atomic.Pointer[slicePair[T]]
	p := &slicePair[T]{}
	for k, v := range seq {
		p.keys, p.values = append(p.keys, own(k)), append(p.values, v)
	}
	p.keys, p.values = slices.Clone(p.keys), slices.Clone(p.values)
	current.Store(p)
	return contender[K]{
		name: "sorted-slice",
		floor: func(k K) (Value, bool) {
			p := current.Load()
			i, found := slices.BinarySearch(p.keys, view(k))
			if !found {
				i--
			}
			if i < 0 {
				return Value{}, false
			}
			return p.values[i], true
		},
		set: func(k K, v Value) {
			p := current.Load()
			next := &slicePair[T]{keys: slices.Clone(p.keys), values: slices.Clone(p.values)}
			i, _ := slices.BinarySearch(next.keys, view(k))
			next.values[i] = v
			current.Store(next)
		},
	}
}

func intContenders(starts []uint64) []func() contender[uint64] {
	same := func(k uint64) uint64 { return k }
	return []func() contender[uint64]{
		func() contender[uint64] { return ours[uint64](IntsFromSorted(numbered(starts), len(starts))) },
		func() contender[uint64] { return tidwallMutex(numbered(starts), same, same) },
		func() contender[uint64] { return tidwallCopy(numbered(starts), same, same) },
		func() contender[uint64] { return sortedSlice(numbered(starts), same, same) },
	}
}

func byteContenders(starts [][]byte) []func() contender[[]byte] {
	own := func(k []byte) string { return string(k) }
	return []func() contender[[]byte]{
		func() contender[[]byte] { return ours[[]byte](BytesFromSorted(numbered(starts), len(starts))) },
		func() contender[[]byte] { return tidwallMutex(numbered(starts), own, viewOf) },
		func() contender[[]byte] { return tidwallCopy(numbered(starts), own, viewOf) },
		func() contender[[]byte] { return sortedSlice(numbered(starts), own, viewOf) },
	}
}

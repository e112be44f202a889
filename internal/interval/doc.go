// Package interval is the ordered index behind the cache of a shard map: it finds the greatest start at or below a key.
//
// [Ints] and [Bytes] are persistent maps. A change returns a new map that shares all untouched parts with the old one,
// and the old one stays as it was; so a reader needs no lock, and publishing a change is one store to an
// atomic.Pointer. Their zero values are empty maps. Lookups allocate nothing.
//
//	var m interval.Ints
//	m = m.Set(100, interval.Value{ID: 1})
//	m = m.Set(200, interval.Value{ID: 2})
//	start, v, ok := m.Floor(150) // 100, {ID: 1}, true
//
// The package never decides what a key or a value means: ends of ranges, gaps and overlap are the caller's business.
//
// # Structure
//
// A map is a path-copying B+tree (update.go) whose leaves hold their entries as one byte slice without pointers, at
// exactly the size they need. The garbage collector therefore sees one object per leaf instead of one per entry, and
// memory follows the number of entries even after many changes. Within a block of keys a search samples every eighth
// word, then counts in the eight (rank.go): independent loads that the processor overlaps, where a binary search would
// wait for one after the other. Byte keys are compared by the eight bytes behind the prefix that the block's keys share
// (byteblock.go), and in full only on a tie.
//
// A separator is always the exact first key of its child, so a lookup goes down once and never back. The first
// separator of a node is never compared: it stands for minus infinity.
package interval

import "encoding/binary"

// Value is what an index stores for a key: 12 bytes without pointers. The index does not look into it.
type Value struct {
	ID  int64
	Ref uint32
}

// valueSize is the number of bytes of an encoded Value.
const valueSize = 12

func putValue(b []byte, v Value) {
	binary.LittleEndian.PutUint64(b, uint64(v.ID))
	binary.LittleEndian.PutUint32(b[8:], v.Ref)
}

func valueAt(b []byte) Value {
	_ = b[valueSize-1]
	return Value{ID: int64(binary.LittleEndian.Uint64(b)), Ref: binary.LittleEndian.Uint32(b[8:])}
}

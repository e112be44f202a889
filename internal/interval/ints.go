package interval

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
)

// Ints is a persistent ordered map from uint64 keys to values. Signed keys must come in an order-preserving form, such
// as with their sign bit flipped.
//
// The zero value is the empty map. A map never changes, so any number of goroutines may use it without locks. It is
// small and is passed by value.
type Ints struct {
	t tree[uint64, intLayout]
}

// IntsFromSorted makes a map of the entries of seq, about n of them, faster and more densely than [Ints.Set] would.
// It panics if the keys are not strictly ascending.
func IntsFromSorted(seq iter.Seq2[uint64, Value], n int) Ints {
	kids := make([]kid[uint64], 0, max(n, 0)/leafMax+1)
	var leaf []byte // full-size, filled up to entry at
	count, at := 0, leafMax
	var last uint64
	for key, v := range seq {
		if count > 0 && key <= last {
			panic("interval: IntsFromSorted: keys are not strictly ascending")
		}
		if at == leafMax {
			leaf, at = make([]byte, leafMax*intEntry), 0
			kids = append(kids, kid[uint64]{first: key, leaf: leaf})
		}
		binary.LittleEndian.PutUint64(leaf[8*at:], key)
		putValue(leaf[8*leafMax+valueSize*at:], v)
		last = key
		at++
		count++
	}
	if at < leafMax {
		kids[len(kids)-1].leaf = intLayout{}.pack([]run{{leaf, 0, at}})
	}
	return Ints{tree[uint64, intLayout]{}.build(kids, count)}
}

// Floor returns the entry with the greatest key <= key. It reports false if there is none.
func (m Ints) Floor(key uint64) (start uint64, v Value, ok bool) {
	nd := m.t.root
	if nd == nil {
		return 0, Value{}, false
	}
	for nd.kids != nil {
		nd = nd.kids[rank(nd.seps[8:], key)]
	}
	leaf := nd.leaves[rank(nd.seps[8:], key)]
	n := len(leaf) / intEntry
	i := rank(leaf[:8*n], key) - 1
	if i < 0 {
		return 0, Value{}, false
	}
	return binary.LittleEndian.Uint64(leaf[8*i:]), valueAt(leaf[8*n+valueSize*i:]), true
}

// Ceil returns the entry with the least key >= key. It reports false if there is none.
func (m Ints) Ceil(key uint64) (start uint64, v Value, ok bool) {
	nd := m.t.root
	if nd == nil {
		return 0, Value{}, false
	}
	var next *node // child at of next begins right behind the path
	at, i := 0, 0
	for {
		i = rank(nd.seps[8:], key)
		if i+1 < nd.width() {
			next, at = nd, i+1
		}
		if nd.kids == nil {
			break
		}
		nd = nd.kids[i]
	}
	leaf := nd.leaves[i]
	i = rankBelow(leaf[:8*(len(leaf)/intEntry)], key)
	if i == len(leaf)/intEntry {
		if next == nil {
			return 0, Value{}, false
		}
		leaf, i = firstLeaf(next, at), 0
	}
	start, v = intLayout{}.entry(leaf, i)
	return start, v, true
}

// Set returns a map in which key has value v. It costs O(log n) time and memory.
func (m Ints) Set(key uint64, v Value) Ints { return Ints{m.t.set(key, v)} }

// DeleteRange returns a map without the keys in [low, high), or without those from low on if open is set; high is then
// ignored. It returns m itself if there are none. It costs O(log n + dropped/64).
func (m Ints) DeleteRange(low, high uint64, open bool) Ints {
	return Ints{m.t.deleteRange(low, high, open)}
}

// All returns the entries with keys >= from in ascending order.
func (m Ints) All(from uint64) iter.Seq2[uint64, Value] { return m.t.all(from) }

// Len returns the number of entries.
func (m Ints) Len() int { return m.t.n }

// intEntry is the number of bytes of an entry in a leaf.
const intEntry = 8 + valueSize

// intLayout: a list of separators is its keys, 8 bytes little-endian each. A leaf is the same for its keys, then its
// values; the number of entries follows from its length.
type intLayout struct{}

func (intLayout) size(leaf []byte) int { return len(leaf) / intEntry }

func (intLayout) entry(leaf []byte, i int) (uint64, Value) {
	n := len(leaf) / intEntry
	return binary.LittleEndian.Uint64(leaf[8*i:]), valueAt(leaf[8*n+valueSize*i:])
}

func (intLayout) search(leaf []byte, key uint64) (int, bool) {
	n := len(leaf) / intEntry
	i := rankBelow(leaf[:8*n], key)
	return i, i < n && binary.LittleEndian.Uint64(leaf[8*i:]) == key
}

func (intLayout) one(key uint64, v Value) []byte {
	leaf := make([]byte, intEntry)
	binary.LittleEndian.PutUint64(leaf, key)
	putValue(leaf[8:], v)
	return leaf
}

func (intLayout) with(leaf []byte, i int, v Value) []byte {
	leaf = slices.Clone(leaf)
	putValue(leaf[8*(len(leaf)/intEntry)+valueSize*i:], v)
	return leaf
}

func (intLayout) pack(runs []run) []byte {
	n := 0
	for _, r := range runs {
		n += r.to - r.from
	}
	leaf := make([]byte, n*intEntry)
	keys, values := leaf[:8*n], leaf[8*n:]
	for _, r := range runs {
		from := r.leaf[8*(len(r.leaf)/intEntry):]
		keys = keys[copy(keys, r.leaf[8*r.from:8*r.to]):]
		values = values[copy(values, from[valueSize*r.from:valueSize*r.to]):]
	}
	return leaf
}

func (intLayout) sepsOf(firsts []uint64) []byte {
	seps := make([]byte, 8*len(firsts))
	for i, first := range firsts {
		binary.LittleEndian.PutUint64(seps[8*i:], first)
	}
	return seps
}

func (intLayout) sep(seps []byte, i int) uint64     { return binary.LittleEndian.Uint64(seps[8*i:]) }
func (intLayout) child(seps []byte, key uint64) int { return rank(seps[8:], key) }
func (intLayout) compare(a, b uint64) int           { return cmp.Compare(a, b) }

package interval

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
)

// Bytes is a persistent ordered map from byte strings of at most 512 bytes to values. Keys are compared bytewise. The
// map copies keys in and never keeps a caller's slice; a nil key is the empty key.
//
// The zero value is the empty map. A map never changes, so any number of goroutines may use it without locks. It is
// small and is passed by value.
type Bytes struct {
	t tree[[]byte, byteLayout]
}

// BytesFromSorted makes a map of the entries of seq, about n of them, faster and more densely than [Bytes.Set] would.
// The keys may share a buffer. It panics if they are not strictly ascending, or longer than 512 bytes.
func BytesFromSorted(seq iter.Seq2[[]byte, Value], n int) Bytes {
	kids := make([]kid[[]byte], 0, max(n, 0)/leafMax+1)
	var b blockBuilder
	b.text = make([]byte, leafMax*maxKeySize)
	count := 0
	flush := func() {
		leaf := b.block()
		kids = append(kids, kid[[]byte]{first: blockKey(leaf, valueSize, 0), leaf: leaf})
	}
	for key, v := range seq {
		checkSize(key)
		if count > 0 && bytes.Compare(key, b.last()) <= 0 {
			panic("interval: BytesFromSorted: keys are not strictly ascending")
		}
		if b.n == leafMax {
			flush()
		}
		b.add(key, v)
		count++
	}
	if count > 0 {
		flush()
	}
	return Bytes{tree[[]byte, byteLayout]{}.build(kids, count)}
}

// Floor returns the entry with the greatest key <= key. It reports false if there is none. The start is the map's own
// memory: read it only.
func (m Bytes) Floor(key []byte) (start []byte, v Value, ok bool) {
	nd := m.t.root
	if nd == nil {
		return nil, Value{}, false
	}
	for nd.kids != nil {
		nd = nd.kids[lastAtMost(nd.seps, 0, key)]
	}
	leaf := nd.leaves[lastAtMost(nd.seps, 0, key)]
	i := lastAtMost(leaf, valueSize, key)
	start = blockKey(leaf, valueSize, i)
	if i == 0 && bytes.Compare(start, key) > 0 {
		return nil, Value{}, false
	}
	return start, valueAt(leaf[8*blockSize(leaf)+valueSize*i:]), true
}

// Ceil returns the entry with the least key >= key. It reports false if there is none. The start is the map's own
// memory: read it only.
func (m Bytes) Ceil(key []byte) (start []byte, v Value, ok bool) {
	nd := m.t.root
	if nd == nil {
		return nil, Value{}, false
	}
	var next *node // child at of next begins right behind the path
	at, i := 0, 0
	for {
		i = lastAtMost(nd.seps, 0, key)
		if i+1 < nd.width() {
			next, at = nd, i+1
		}
		if nd.kids == nil {
			break
		}
		nd = nd.kids[i]
	}
	leaf := nd.leaves[i]
	i, _ = byteLayout{}.search(leaf, key)
	if i == blockSize(leaf) {
		if next == nil {
			return nil, Value{}, false
		}
		leaf, i = firstLeaf(next, at), 0
	}
	start, v = byteLayout{}.entry(leaf, i)
	return start, v, true
}

// Set returns a map in which key has value v. It costs O(log n) time and memory. It panics if key is longer than 512
// bytes.
func (m Bytes) Set(key []byte, v Value) Bytes {
	checkSize(key)
	return Bytes{m.t.set(key, v)}
}

// DeleteRange returns a map without the keys in [low, high), or without those from low on if open is set; high is then
// ignored. It returns m itself if there are none. It costs O(log n + dropped/64).
func (m Bytes) DeleteRange(low, high []byte, open bool) Bytes {
	return Bytes{m.t.deleteRange(low, high, open)}
}

// All returns the entries with keys >= from in ascending order. The keys are the map's own memory: read them only.
func (m Bytes) All(from []byte) iter.Seq2[[]byte, Value] { return m.t.all(from) }

// Len returns the number of entries.
func (m Bytes) Len() int { return m.t.n }

func checkSize(key []byte) {
	if len(key) > maxKeySize {
		panic("interval: key is longer than 512 bytes")
	}
}

// byteLayout: a leaf is a block with values, a list of separators a block without.
type byteLayout struct{}

func (byteLayout) size(leaf []byte) int { return blockSize(leaf) }

func (byteLayout) entry(leaf []byte, i int) ([]byte, Value) {
	return blockKey(leaf, valueSize, i), valueAt(leaf[8*blockSize(leaf)+valueSize*i:])
}

func (byteLayout) search(leaf, key []byte) (int, bool) {
	i := lastAtMost(leaf, valueSize, key)
	switch bytes.Compare(blockKey(leaf, valueSize, i), key) {
	case 0:
		return i, true
	case 1: // only the first key can be greater
		return i, false
	}
	return i + 1, false
}

func (byteLayout) one(key []byte, v Value) []byte {
	leaf := newBlock(1, len(key), valueSize)
	putValue(leaf[8:], v)
	binary.LittleEndian.PutUint16(leaf[8+valueSize:], uint16(len(key)))
	copy(leaf[8+valueSize+2:], key)
	return leaf
}

func (byteLayout) with(leaf []byte, i int, v Value) []byte {
	leaf = slices.Clone(leaf)
	putValue(leaf[8*blockSize(leaf)+valueSize*i:], v)
	return leaf
}

func (byteLayout) pack(runs []run) []byte {
	n, size := 0, 0
	for _, r := range runs {
		n += r.to - r.from
		size += len(runText(r))
	}
	leaf := newBlock(n, size, valueSize)
	values, ends, text := leaf[8*n:20*n], leaf[20*n:22*n], leaf[22*n:]
	filled := 0
	for _, r := range runs {
		from := r.leaf[8*blockSize(r.leaf):]
		values = values[copy(values, from[valueSize*r.from:valueSize*r.to]):]
		for i := r.from; i < r.to; i++ {
			filled += len(blockKey(r.leaf, valueSize, i))
			binary.LittleEndian.PutUint16(ends, uint16(filled))
			ends = ends[2:]
		}
		text = text[copy(text, runText(r)):]
	}
	sealBlock(leaf, valueSize)
	return leaf
}

// runText returns the keys of a run, one behind the other.
func runText(r run) []byte {
	if r.from == r.to {
		return nil
	}
	n := blockSize(r.leaf)
	text := r.leaf[22*n:]
	from := 0
	if r.from > 0 {
		from = int(binary.LittleEndian.Uint16(r.leaf[20*n+2*(r.from-1):]))
	}
	return text[from:binary.LittleEndian.Uint16(r.leaf[20*n+2*(r.to-1):])]
}

func (byteLayout) sepsOf(firsts [][]byte) []byte {
	n, size := len(firsts), 0
	for _, first := range firsts {
		size += len(first)
	}
	seps := newBlock(n, size, 0)
	ends, text, filled := seps[8*n:10*n], seps[10*n:], 0
	for i, first := range firsts {
		filled += copy(text[filled:], first)
		binary.LittleEndian.PutUint16(ends[2*i:], uint16(filled))
	}
	sealBlock(seps, 0)
	return seps
}

func (byteLayout) sep(seps []byte, i int) []byte { return blockKey(seps, 0, i) }
func (byteLayout) child(seps, key []byte) int    { return lastAtMost(seps, 0, key) }
func (byteLayout) compare(a, b []byte) int       { return bytes.Compare(a, b) }

package interval

import (
	"bytes"
	"encoding/binary"
)

// A block is a sorted list of n byte keys, each with width bytes of payload (a value in leaves, nothing in lists of
// separators), in one slice:
//
//	n, prefix  uint16 each, then 4 bytes unused
//	heads      8 bytes for each key but the first
//	payload    width bytes for each key
//	ends       uint16 for each key: where it ends in text
//	text       the keys in full, one behind the other
//
// prefix is the length of the longest prefix that all keys but the first share; a head is the eight bytes behind it as
// a number, padded with zeros, so heads are in the order of keys, except for ties. The first key takes no part: whoever
// searches a block already knows that it is not greater, or checks it. Were it part, one empty key would leave the
// whole left edge of a tree without prefix.

const (
	maxKeySize  = 512 // so that ends fit
	blockHeader = 8
)

// newBlock returns a block with room for n keys of size bytes in all. The caller fills payload, ends and text, then
// calls sealBlock.
func newBlock(n, size, width int) []byte {
	b := make([]byte, n*(8+width+2)+size)
	binary.LittleEndian.PutUint16(b, uint16(n))
	return b
}

// sealBlock computes prefix and heads from the keys.
func sealBlock(b []byte, width int) {
	n := blockSize(b)
	if n == 1 {
		return
	}
	prefix := commonPrefix(blockKey(b, width, 1), blockKey(b, width, n-1))
	binary.LittleEndian.PutUint16(b[2:], uint16(prefix))
	for i := 1; i < n; i++ {
		binary.LittleEndian.PutUint64(b[8*i:], head(blockKey(b, width, i)[prefix:]))
	}
}

func blockSize(b []byte) int { return int(binary.LittleEndian.Uint16(b)) }

// blockKey returns key i. Its capacity ends with it, so appending to it copies.
func blockKey(b []byte, width, i int) []byte {
	n := blockSize(b)
	ends := n * (8 + width)
	text := ends + 2*n
	from := text
	if i > 0 {
		from += int(binary.LittleEndian.Uint16(b[ends+2*(i-1):]))
	}
	to := text + int(binary.LittleEndian.Uint16(b[ends+2*i:]))
	return b[from:to:to]
}

// lastAtMost returns the index of the last key <= key, 0 if there is none: whether the first key is <= key is not checked.
func lastAtMost(b []byte, width int, key []byte) int {
	n := blockSize(b)
	prefix := int(binary.LittleEndian.Uint16(b[2:]))
	if prefix > 0 {
		switch bytes.Compare(key[:min(prefix, len(key))], blockKey(b, width, 1)[:prefix]) {
		case -1:
			return 0
		case 1:
			return n - 1
		}
	}
	heads := b[blockHeader : 8*n]
	h := head(key[prefix:])
	i := rankBelow(heads, h)
	if i == n-1 || binary.LittleEndian.Uint64(heads[8*i:]) != h {
		return i
	}
	// Keys (i, high] have the same head.
	high := rank(heads, h)
	for i < high {
		mid := int(uint(i+high+1) / 2)
		if bytes.Compare(blockKey(b, width, mid), key) <= 0 {
			i = mid
		} else {
			high = mid - 1
		}
	}
	return i
}

// blockBuilder collects the entries of one leaf after another.
type blockBuilder struct {
	n        int // entries so far
	filled   int // bytes of text so far
	lastFrom int // the last key is text[lastFrom:lastTo], also right after block
	lastTo   int
	values   [leafMax * valueSize]byte
	ends     [leafMax * 2]byte
	text     []byte // leafMax*maxKeySize bytes
}

func (b *blockBuilder) add(key []byte, v Value) {
	b.lastFrom = b.filled
	b.filled += copy(b.text[b.filled:], key)
	b.lastTo = b.filled
	putValue(b.values[valueSize*b.n:], v)
	binary.LittleEndian.PutUint16(b.ends[2*b.n:], uint16(b.filled))
	b.n++
}

func (b *blockBuilder) last() []byte { return b.text[b.lastFrom:b.lastTo] }

// block returns the leaf of the entries collected and begins the next one.
func (b *blockBuilder) block() []byte {
	leaf := newBlock(b.n, b.filled, valueSize)
	at := 8 * b.n
	at += copy(leaf[at:], b.values[:valueSize*b.n])
	at += copy(leaf[at:], b.ends[:2*b.n])
	copy(leaf[at:], b.text[:b.filled])
	sealBlock(leaf, valueSize)
	b.n, b.filled = 0, 0
	return leaf
}

// head returns the first eight bytes of key as a number that orders as they do.
func head(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

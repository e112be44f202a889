package interval

import "encoding/binary"

// rank returns how many words of an ascending array are <= key. The array is b, 8 bytes little-endian per word.
//
// It samples the last word of every group of eight to find the group, then counts within it. No comparison waits
// for another's outcome.
func rank(b []byte, key uint64) int {
	group := 0
	for i := 56; i+8 <= len(b); i += 64 {
		group += atMost(binary.LittleEndian.Uint64(b[i:]), key)
	}
	if len(b) < 64 {
		n := 0
		for i := 0; i+8 <= len(b); i += 8 {
			n += atMost(binary.LittleEndian.Uint64(b[i:]), key)
		}
		return n
	}
	// The last group may be short: counting from a little further left is as good, since all words there are <= key.
	at := min(group*64, len(b)-64)
	w := (*[64]byte)(b[at:])
	return at/8 +
		(atMost(binary.LittleEndian.Uint64(w[0:]), key) + atMost(binary.LittleEndian.Uint64(w[8:]), key)) +
		(atMost(binary.LittleEndian.Uint64(w[16:]), key) + atMost(binary.LittleEndian.Uint64(w[24:]), key)) +
		(atMost(binary.LittleEndian.Uint64(w[32:]), key) + atMost(binary.LittleEndian.Uint64(w[40:]), key)) +
		(atMost(binary.LittleEndian.Uint64(w[48:]), key) + atMost(binary.LittleEndian.Uint64(w[56:]), key))
}

// rankBelow returns how many words of the array are < key.
func rankBelow(b []byte, key uint64) int {
	if key == 0 {
		return 0
	}
	return rank(b, key-1)
}

// atMost is 1 if word <= key, else 0. It compiles to a flag, not to a branch.
func atMost(word, key uint64) int {
	n := 0
	if word <= key {
		n = 1
	}
	return n
}

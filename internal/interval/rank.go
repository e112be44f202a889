package interval

import "encoding/binary"

// rank returns how many words of an ascending array are <= key. The array is b, 8 bytes little-endian per word.
//
// It samples the last word of every group of eight to find the group, then counts within it. No comparison waits
// for another's outcome. At most 64 words are searched well.
func rank(b []byte, key uint64) int {
	group := 0
	switch {
	case len(b) < 64:
		n := 0
		for i := 0; i+8 <= len(b); i += 8 {
			n += atMost(b[i:], key)
		}
		return n
	case len(b) >= 7*64: // the usual size, written out; the last group needs no sample
		w := (*[7 * 64]byte)(b)
		group = (atMost(w[56:], key) + atMost(w[120:], key)) +
			(atMost(w[184:], key) + atMost(w[248:], key)) +
			(atMost(w[312:], key) + atMost(w[376:], key)) +
			atMost(w[440:], key)
	default:
		for rest := b; len(rest) > 64; rest = rest[64:] {
			group += atMost((*[64]byte)(rest)[56:], key)
		}
	}
	// The last group may be short: counting from a little further left is as good, since all words there are <= key.
	at := min(group*64, len(b)-64)
	w := (*[64]byte)(b[at:])
	return at/8 +
		(atMost(w[0:], key) + atMost(w[8:], key)) +
		(atMost(w[16:], key) + atMost(w[24:], key)) +
		(atMost(w[32:], key) + atMost(w[40:], key)) +
		(atMost(w[48:], key) + atMost(w[56:], key))
}

// rankBelow returns how many words of the array are < key.
func rankBelow(b []byte, key uint64) int {
	if key == 0 {
		return 0
	}
	return rank(b, key-1)
}

// atMost is 1 if the first word of b is <= key, else 0. It compiles to a flag, not to a branch.
func atMost(b []byte, key uint64) int {
	n := 0
	if binary.LittleEndian.Uint64(b) <= key {
		n = 1
	}
	return n
}

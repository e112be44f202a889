package interval

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// step is one version of a map in a random history: the map and what it must hold.
type step[K, M any] struct {
	m M
	o *oracle[K]
}

// runModel applies random changes, most of them to the newest version and some to older ones, and compares each
// version with the oracle: at once, and again at the end, when newer versions have come from it.
func runModel[K any, M persistent[K, M]](t *rapid.T, start step[K, M], keys *rapid.Generator[K], check func(M)) {
	versions := []step[K, M]{start}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		s := versions[len(versions)-1]
		if rapid.IntRange(0, 9).Draw(t, "branch") == 0 {
			s = rapid.SampledFrom(versions).Draw(t, "version")
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0: // drop a range, closed or open
			low, high := keys.Draw(t, "low"), keys.Draw(t, "high")
			open := rapid.IntRange(0, 9).Draw(t, "open") == 0
			s = step[K, M]{s.m.DeleteRange(low, high, open), s.o.deleteRange(low, high, open)}
		case 1: // drop a few neighbours, as a merge of ranges does
			low := keys.Draw(t, "low")
			i, _ := s.o.find(low)
			if i == len(s.o.entries) {
				continue
			}
			high := s.o.entries[min(i+rapid.IntRange(1, 40).Draw(t, "count"), len(s.o.entries)-1)].key
			s = step[K, M]{s.m.DeleteRange(low, high, false), s.o.deleteRange(low, high, false)}
		default:
			for range rapid.IntRange(1, 30).Draw(t, "sets") {
				key := keys.Draw(t, "key")
				v := Value{ID: rapid.Int64().Draw(t, "id"), Ref: rapid.Uint32().Draw(t, "ref")}
				s = step[K, M]{s.m.Set(key, v), s.o.set(key, v)}
			}
		}
		versions = append(versions, s)
		check(s.m)
		mustFind(t, s.m, s.o, keys.Draw(t, "probe"))
	}
	for _, s := range versions {
		mustHold(t, s.m, s.o)
		for range 5 {
			mustFind(t, s.m, s.o, keys.Draw(t, "probe"))
		}
	}
}

// intKeys yields keys of three densities, so that they collide, adjoin and touch both ends.
func intKeys() *rapid.Generator[uint64] {
	return rapid.OneOf(
		rapid.Uint64Range(0, 300),
		rapid.Uint64Range(0, 40_000),
		rapid.Uint64(),
		rapid.SampledFrom([]uint64{0, 1, math.MaxUint64 - 1, math.MaxUint64, 1 << 63, 1<<63 - 1}),
	)
}

// byteKeys yields keys that share prefixes, are prefixes of each other, are empty, hold zeros, or are as long as can be.
func byteKeys() *rapid.Generator[[]byte] {
	long := strings.Repeat("x", maxKeySize-2)
	return rapid.Custom(func(t *rapid.T) []byte {
		prefix := rapid.SampledFrom([]string{"", "", "a", "tenant-00000000-", "tenant-00000000-00000000", long}).Draw(t, "prefix")
		tail := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xff}), 0, min(12, maxKeySize-len(prefix))).Draw(t, "tail")
		return append([]byte(prefix), tail...)
	})
}

// filler makes a map and oracle of n sorted keys to begin a history with.
func filler[K any](o *oracle[K], n int, key func(i int) K) *oracle[K] {
	for i := range n {
		o.entries = append(o.entries, entry[K]{key(i), Value{ID: int64(i), Ref: uint32(i)}})
	}
	return o
}

func TestInts_model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 63, 64, 65, 95, 96, 97, 700, 5000}).Draw(t, "n")
		o := filler(newIntOracle(), n, func(i int) uint64 { return uint64(i) * 7 })
		m := IntsFromSorted(o.all(), n)
		runModel(t, step[uint64, Ints]{m, o}, intKeys(), func(m Ints) { checkTree(t, m.t) })
	})
}

func TestBytes_model(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 63, 64, 65, 95, 96, 97, 700, 5000}).Draw(t, "n")
		o := filler(newBytesOracle(), n, func(i int) []byte {
			return []byte("tenant-00000000-" + string([]byte{byte(i >> 8), byte(i)}))
		})
		m := BytesFromSorted(o.all(), n)
		runModel(t, step[[]byte, Bytes]{m, o}, byteKeys(), func(m Bytes) { checkTree(t, m.t) })
	})
}

// FuzzInts reads a history from the input: an operation byte, then two keys of two bytes, spread over the key space.
func FuzzInts(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 0, 0, 255, 255, 200, 255, 255, 0, 0}, uint16(70))
	f.Fuzz(func(t *testing.T, input []byte, n uint16) {
		n %= 5000
		spread := func(b []byte) uint64 {
			k := uint64(b[0])<<8 | uint64(b[1])
			return k | k<<48 // 0 stays 0, 0xffff is near the top
		}
		o := filler(newIntOracle(), int(n), func(i int) uint64 { return uint64(i) | uint64(i)<<48 })
		s := step[uint64, Ints]{IntsFromSorted(o.all(), int(n)), o}
		replay(t, s, input, spread, func(m Ints) { checkTree(t, m.t) })
	})
}

// FuzzBytes reads a history from the input as FuzzInts does; a key of two bytes x y is x%40 copies of 'k', then y bits
// as bytes.
func FuzzBytes(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 1, 3, 0, 255, 255, 200, 255, 255, 0, 0}, uint16(70))
	f.Fuzz(func(t *testing.T, input []byte, n uint16) {
		n %= 3000
		spell := func(b []byte) []byte {
			key := bytes.Repeat([]byte("k"), int(b[0]%40))
			for y := b[1]; y > 0; y >>= 1 {
				key = append(key, y&1*'k')
			}
			return key
		}
		o := filler(newBytesOracle(), int(n), func(i int) []byte { return []byte{'k', 'k', byte(i >> 8), byte(i)} })
		s := step[[]byte, Bytes]{BytesFromSorted(o.all(), int(n)), o}
		replay(t, s, input, spell, func(m Bytes) { checkTree(t, m.t) })
	})
}

func replay[K any, M persistent[K, M]](t *testing.T, s step[K, M], input []byte, key func([]byte) K, check func(M)) {
	versions := []step[K, M]{s}
	for i := 0; len(input) >= 5 && i < 200; i++ {
		op, a, b := input[0], key(input[1:]), key(input[3:])
		input = input[5:]
		if op < 128 {
			v := Value{ID: int64(i), Ref: uint32(op)}
			s = step[K, M]{s.m.Set(a, v), s.o.set(a, v)}
		} else {
			open := op == 255
			s = step[K, M]{s.m.DeleteRange(a, b, open), s.o.deleteRange(a, b, open)}
		}
		check(s.m)
		mustFind(t, s.m, s.o, a)
		mustFind(t, s.m, s.o, b)
		versions = append(versions, s)
	}
	mustHold(t, versions[0].m, versions[0].o)
	mustHold(t, versions[len(versions)/2].m, versions[len(versions)/2].o)
	mustHold(t, s.m, s.o)
}

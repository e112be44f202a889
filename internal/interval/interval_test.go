package interval

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestInts_both_ends_of_the_key_space(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 40, 3000} { // alone, in a leaf with others, in a deeper tree
		o := filler(newIntOracle(), n, func(i int) uint64 { return 1000 + uint64(i) })
		m := IntsFromSorted(o.all(), n)
		for _, k := range []uint64{math.MaxUint64, 0, math.MaxUint64 - 1, 1} {
			v := Value{ID: math.MinInt64, Ref: math.MaxUint32}
			m, o = m.Set(k, v), o.set(k, v)
		}
		checkTree(t, m.t)
		mustHold(t, m, o)
		for _, k := range []uint64{0, 1, 2, 999, 1000, 1001, 2000, 1 << 63, math.MaxUint64 - 2, math.MaxUint64 - 1, math.MaxUint64} {
			mustFind(t, m, o, k)
		}
		// A closed range cannot reach the last key, an open one does.
		closed := m.DeleteRange(0, math.MaxUint64, false)
		mustHold(t, closed, o.deleteRange(0, math.MaxUint64, false))
		if closed.Len() != 1 {
			t.Errorf("[0, max) left %d entries, want 1", closed.Len())
		}
		if got := m.DeleteRange(0, 0, true); got != (Ints{}) {
			t.Errorf("dropping all left %d entries", got.Len())
		}
	}
}

func TestBytes_empty_longest_and_zero_padded_keys(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 40, 3000} {
		o := filler(newBytesOracle(), n, func(i int) []byte { return binary.BigEndian.AppendUint32([]byte("customer/tenant-"), uint32(i)) })
		m := BytesFromSorted(o.all(), n)
		longest := bytes.Repeat([]byte{0xff}, maxKeySize)
		odd := [][]byte{
			nil, {0}, {0, 0}, bytes.Repeat([]byte{0}, 8), bytes.Repeat([]byte{0}, 9), bytes.Repeat([]byte{0}, maxKeySize),
			longest, longest[:maxKeySize-1], []byte("customer/tenant-"), []byte("customer/tenant"), []byte("customer/tenant-\x00\x00\x00\x07\x00"),
		}
		for i, k := range odd {
			v := Value{ID: int64(i)}
			m, o = m.Set(k, v), o.set(k, v)
		}
		checkTree(t, m.t)
		mustHold(t, m, o)
		probes := append(slices.Clone(odd), []byte("customer/tenant-\x00\x00\x00"), []byte("customer/tenant-\x00\x00\x00\x07\x00\x00"),
			[]byte("customer/zenant-"), []byte("customer/a"), append(slices.Clone(longest), 0xff), bytes.Repeat([]byte{0}, 2*maxKeySize))
		for _, k := range probes {
			mustFind(t, m, o, k)
		}
		if got := m.DeleteRange(nil, nil, true); got != (Bytes{}) {
			t.Errorf("dropping all left %d entries", got.Len())
		}
	}
}

func TestBytes_longest_keys_fill_leaves(t *testing.T) {
	t.Parallel()
	o := filler(newBytesOracle(), 500, func(i int) []byte {
		return binary.BigEndian.AppendUint16(bytes.Repeat([]byte("x"), maxKeySize-2), uint16(3*i))
	})
	built := BytesFromSorted(o.all(), 500)
	var set Bytes
	for _, e := range o.entries {
		set = set.Set(e.key, e.value)
	}
	for _, m := range []Bytes{built, set} {
		checkTree(t, m.t)
		mustHold(t, m, o)
		for i := range uint16(40) {
			mustFind(t, m, o, binary.BigEndian.AppendUint16(bytes.Repeat([]byte("x"), maxKeySize-2), 37*i))
		}
	}
}

func TestBytes_keeps_no_memory_of_callers(t *testing.T) {
	t.Parallel()
	buf := []byte("key-a")
	m := BytesFromSorted(func(yield func([]byte, Value) bool) { yield(buf, Value{ID: 1}) }, 1)
	copy(buf, "key-b")
	m = m.Set(buf, Value{ID: 2})
	copy(buf, "zzzzz")
	got := map[string]int64{}
	for k, v := range m.All(nil) {
		got[string(k)] = v.ID
	}
	if want := map[string]int64{"key-a": 1, "key-b": 2}; !maps.Equal(got, want) {
		t.Errorf("map holds %v, want %v", got, want)
	}
	// Appending to a returned key must not run into its neighbour.
	start, _, _ := m.Floor([]byte("key-a"))
	_ = append(start, "!!!!!"...)
	if start, _, ok := m.Floor([]byte("key-b")); !ok || string(start) != "key-b" {
		t.Errorf("Floor(key-b) = %q after an append to its neighbour", start)
	}
}

func TestPanics_on_broken_input(t *testing.T) {
	t.Parallel()
	long := make([]byte, maxKeySize+1)
	tests := map[string]func(){
		"ints: equal keys":        func() { IntsFromSorted(numbered([]uint64{1, 1}), 2) },
		"ints: descending keys":   func() { IntsFromSorted(numbered([]uint64{0, 2, 1}), 3) },
		"bytes: equal keys":       func() { BytesFromSorted(numbered([][]byte{nil, {}}), 2) },
		"bytes: descending keys":  func() { BytesFromSorted(numbered([][]byte{{1}, {0, 1}}), 2) },
		"bytes: long key":         func() { BytesFromSorted(numbered([][]byte{long}), 1) },
		"bytes: long key for Set": func() { Bytes{}.Set(long, Value{}) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "interval: ") {
					t.Errorf("panic = %q, want one that names the package", text)
				}
			}()
			do()
		})
	}
}

func TestFromSorted_ignores_a_wrong_size_hint(t *testing.T) {
	t.Parallel()
	o := filler(newIntOracle(), 200, func(i int) uint64 { return uint64(i) })
	for _, hint := range []int{-5, 0, 1, 10_000} {
		m := IntsFromSorted(o.all(), hint)
		checkTree(t, m.t)
		mustHold(t, m, o)
	}
}

func TestChange_of_nothing_returns_the_same_map(t *testing.T) {
	t.Parallel()
	m := IntsFromSorted(numbered([]uint64{10, 20, 30}), 3)
	for _, r := range [][2]uint64{{11, 20}, {20, 20}, {30, 10}, {31, 90}, {0, 10}} {
		if got := m.DeleteRange(r[0], r[1], false); got != m {
			t.Errorf("DeleteRange(%d, %d) made a new map of %d entries", r[0], r[1], got.Len())
		}
	}
}

func TestLookups_do_not_allocate(t *testing.T) { // not parallel: AllocsPerRun counts the whole process
	ints := intStarts(20_000)
	mi := IntsFromSorted(numbered(ints), len(ints))
	keys := byteStarts(20_000)
	mb := BytesFromSorted(numbered(keys), len(keys))
	i := 0
	tests := map[string]func(){
		"Ints.Floor": func() { _, _, _ = mi.Floor(mix(uint64(i))) },
		"Ints.Ceil":  func() { _, _, _ = mi.Ceil(mix(uint64(i))) },
		"Bytes.Floor": func() {
			var key [16]byte
			binary.BigEndian.PutUint64(key[:], mix(uint64(i)))
			_, _, _ = mb.Floor(key[:])
		},
		"Bytes.Ceil": func() {
			var key [16]byte
			binary.BigEndian.PutUint64(key[:], mix(uint64(i)))
			_, _, _ = mb.Ceil(key[:])
		},
	}
	for name, do := range tests {
		if n := testing.AllocsPerRun(2000, func() { do(); i++ }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// churn replaces a map's entries many times over at a steady size, by single entries and by ranges, and returns the
// greatest shape seen per entry.
func churn[K any, M persistent[K, M]](t *testing.T, m M, key func(uint64) K, check func(M) shape) {
	const n = 3000
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 25 {
		for m.Len() < n {
			m = m.Set(key(rng.Uint64N(1<<40)), Value{ID: int64(round)})
		}
		for m.Len() > n/2 {
			low := rng.Uint64N(1 << 40)
			m = m.DeleteRange(key(low), key(low+rng.Uint64N(1<<32)), false)
		}
		s := check(m)
		if most := m.Len()/leafMin + 1; s.leaves > most {
			t.Fatalf("round %d: %d entries in %d leaves, want at most %d", round, m.Len(), s.leaves, most)
		}
		if most := 2*s.leaves/nodeMin + 2; s.nodes > most {
			t.Fatalf("round %d: %d leaves under %d nodes, want at most %d", round, s.leaves, s.nodes, most)
		}
		if per := s.bytes / m.Len(); per > 48 {
			t.Fatalf("round %d: %d bytes per entry", round, per)
		}
	}
	for m.Len() > 0 { // drain from a side, then from within
		k, _, _ := m.Ceil(key(0))
		if mid, _, ok := m.Floor(key(1 << 39)); ok && m.Len()%3 == 0 {
			k = mid
		}
		if before := m.Len(); before > 1 {
			m = m.DeleteRange(k, successor(k), false)
			if m.Len() != before-1 {
				t.Fatalf("DeleteRange of the single key %v went from %d to %d entries", k, before, m.Len())
			}
		} else {
			m = m.DeleteRange(k, k, true)
		}
		if m.Len()%97 < 2 {
			check(m)
		}
	}
}

func TestInts_memory_stays_bounded_under_churn(t *testing.T) {
	t.Parallel()
	churn(t, Ints{}, func(x uint64) uint64 { return x }, func(m Ints) shape { return checkTree(t, m.t) })
}

func TestBytes_memory_stays_bounded_under_churn(t *testing.T) {
	t.Parallel()
	churn(t, Bytes{}, func(x uint64) []byte { return binary.BigEndian.AppendUint64([]byte("tenant-"), x) },
		func(m Bytes) shape { return checkTree(t, m.t) })
}

func TestInts_sequential_inserts(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for name, key := range map[string]func(i uint64) uint64{
		"ascending":  func(i uint64) uint64 { return i },
		"descending": func(i uint64) uint64 { return n - 1 - i },
	} {
		var m Ints
		for i := range uint64(n) {
			m = m.Set(key(i), Value{ID: int64(key(i))})
		}
		if s := checkTree(t, m.t); s.bytes > 24*n {
			t.Errorf("%s: %d bytes per entry", name, s.bytes/n)
		}
		for i := range uint64(n) {
			if k, v, ok := m.Floor(i); !ok || k != i || v.ID != int64(i) {
				t.Fatalf("%s: Floor(%d) = %d %v %v", name, i, k, v, ok)
			}
		}
	}
}

// Readers see each published version whole: in version v the first, middle and last key all have ID v, and one entry
// has moved, so that the number of entries is always the same.
func TestReaders_beside_a_writer(t *testing.T) {
	t.Parallel()
	t.Run("ints", func(t *testing.T) {
		t.Parallel()
		readBesideWriter(t, Ints{}, func(i uint64) uint64 { return i })
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		readBesideWriter(t, Bytes{}, func(i uint64) []byte { return binary.BigEndian.AppendUint64([]byte("k"), i) })
	})
}

func readBesideWriter[K any, M persistent[K, M]](t *testing.T, m M, key func(uint64) K) {
	const n, versions = 10_000, 1000 // keys 0, 10, 20 … and one mover, which is no multiple of 10
	marked := []uint64{0, n / 2, n}
	for i := uint64(0); i <= n; i += 10 {
		m = m.Set(key(i), Value{})
	}
	m = m.Set(key(1), Value{})
	size := m.Len()
	var current atomic.Pointer[M]
	current.Store(&m)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for last := int64(0); last < versions; {
				m := *current.Load()
				_, first, _ := m.Floor(key(marked[0]))
				_, middle, _ := m.Ceil(key(marked[1]))
				_, end, _ := m.Floor(key(2 * n))
				if m.Len() != size || first != middle || middle != end || first.ID < last {
					t.Errorf("after version %d a reader sees %d entries with %v, %v, %v", last, m.Len(), first, middle, end)
					return
				}
				last = first.ID
			}
		})
	}
	mover := uint64(1)
	for v := range versions {
		m := *current.Load()
		m = m.DeleteRange(key(mover), key(mover+1), false)
		mover = mix(uint64(v))%(n/10)*10 + 1
		m = m.Set(key(mover), Value{})
		for _, k := range marked {
			m = m.Set(key(k), Value{ID: int64(v) + 1})
		}
		current.Store(&m)
	}
	wg.Wait()
}

package interval

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// Figures are wall time as ns/op and CPU time as cpu-ns/op: on a shared machine read the second. Compare contenders
// within one run.

var benchSizes = []int{1_000, 100_000, 1_000_000}

// viewOf is a string over k's memory, for lookups in maps with string keys.
func viewOf(k []byte) string { return unsafe.String(unsafe.SliceData(k), len(k)) }

// intProbe and byteProbe turn a number into a key over the whole key space.
func intProbe(x uint64, _ *[16]byte) uint64 { return x }

func byteProbe(x uint64, b *[16]byte) []byte {
	binary.BigEndian.PutUint64(b[:], x)
	binary.BigEndian.PutUint64(b[8:], x*31)
	return b[:]
}

// chase makes lookups of which each takes its key from the answer of the one before, as one request after another
// would, and returns their CPU time.
func chase[K any](c contender[K], probe func(uint64, *[16]byte) K, seed uint64, n int) (time.Duration, uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := new([16]byte)
	x := seed
	start := threadCPU()
	for range n {
		v, ok := c.floor(probe(x, buf))
		if !ok {
			panic("a key has no floor")
		}
		x = mix(x + uint64(v.ID))
	}
	return threadCPU() - start, x
}

var sink uint64

func BenchmarkFloor(b *testing.B) {
	for _, n := range benchSizes {
		starts := intStarts(n)
		benchFloor(b, fmt.Sprintf("ints/%d", n), intContenders(starts), intProbe)
	}
	for _, n := range benchSizes {
		starts := byteStarts(n)
		benchFloor(b, fmt.Sprintf("bytes16/%d", n), byteContenders(starts), byteProbe)
	}
}

func benchFloor[K any](b *testing.B, name string, makers []func() contender[K], probe func(uint64, *[16]byte) K) {
	for _, make := range makers {
		c := make()
		b.Run(name+"/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			used, x := chase(c, probe, 1, b.N)
			sink += x
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkFloorBesideWriter is BenchmarkFloor with two readers and a writer that makes ten changes a second.
func BenchmarkFloorBesideWriter(b *testing.B) {
	for _, n := range benchSizes {
		starts := intStarts(n)
		benchBeside(b, fmt.Sprintf("ints/%d", n), starts, intContenders(starts), intProbe)
	}
	for _, n := range benchSizes {
		starts := byteStarts(n)
		benchBeside(b, fmt.Sprintf("bytes16/%d", n), starts, byteContenders(starts), byteProbe)
	}
}

func benchBeside[K any](b *testing.B, name string, starts []K, makers []func() contender[K], probe func(uint64, *[16]byte) K) {
	for _, make := range makers {
		c := make()
		b.Run(name+"/"+c.name, func(b *testing.B) {
			stop := writeBeside(c, starts)
			var wg sync.WaitGroup
			var used [2]time.Duration
			for r := range used {
				wg.Go(func() { used[r], _ = chase(c, probe, uint64(r), b.N) })
			}
			wg.Wait()
			stop()
			b.ReportMetric(float64((used[0]+used[1]).Nanoseconds())/float64(2*b.N), "cpu-ns/op")
		})
	}
}

// writeBeside makes ten changes a second until stop is called; stop waits for the writer.
func writeBeside[K any](c contender[K], starts []K) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				at := mix(uint64(i)) % uint64(len(starts))
				c.set(starts[at], Value{ID: int64(at)})
			}
		}
	}()
	return func() { close(done); <-ended }
}

// BenchmarkChange is the cost of one change at 1e6 entries; B/op is its garbage.
func BenchmarkChange(b *testing.B) {
	const n = 1_000_000
	ints := intStarts(n)
	benchChange(b, "ints", ints, intContenders(ints), intProbe)
	byteKeys := byteStarts(n)
	benchChange(b, "bytes16", byteKeys, byteContenders(byteKeys), byteProbe)
}

func benchChange[K any](b *testing.B, name string, starts []K, makers []func() contender[K], probe func(uint64, *[16]byte) K) {
	for _, make := range makers {
		c := make()
		measure := func(kind string, change func(i int)) {
			b.Run(name+"/"+kind+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				start := threadCPU()
				for i := range b.N {
					change(i)
				}
				b.ReportMetric(float64((threadCPU()-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
		measure("replace", func(i int) {
			c.set(starts[mix(uint64(i))%uint64(len(starts))], Value{ID: int64(i)})
		})
		if c.insert == nil {
			continue
		}
		measure("insert+delete", func(i int) {
			var buf [16]byte
			k := probe(mix(uint64(i)), &buf)
			c.insert(k, Value{ID: int64(i)})
			c.remove(k)
		})
	}
}

// BenchmarkMemory reports the live heap per entry of a map as loaded, and the CPU time of one garbage collection with
// only that map live; "nothing" is the collection alone.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	benchMemory(b, "nothing", 1, func() contender[uint64] { return contender[uint64]{} })
	for i, name := range []string{"ours", "tidwall-mutex", "tidwall-copy", "sorted-slice"} {
		benchMemory(b, "ints/"+name, n, func() contender[uint64] { return intContenders(intStarts(n))[i]() })
		benchMemory(b, "bytes16/"+name, n, func() contender[[]byte] { return byteContenders(byteStarts(n))[i]() })
	}
}

func benchMemory[K any](b *testing.B, name string, n int, make func() contender[K]) {
	b.Run(name, func(b *testing.B) {
		before := liveHeap()
		c := make()
		held := liveHeap() - before
		b.ResetTimer()
		start := collectorCPU()
		for range b.N {
			runtime.GC()
		}
		b.ReportMetric((collectorCPU()-start)*1e3/float64(b.N), "gc-cpu-ms/cycle")
		b.ReportMetric(float64(held)/float64(n), "B/entry")
		runtime.KeepAlive(c)
	})
}

// collectorCPU returns the CPU seconds spent in garbage collection, by the runtime's account: that of the process also
// holds the wait for the end of a cycle, which spins.
func collectorCPU() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkBuild is the load of 1e6 sorted entries.
func BenchmarkBuild(b *testing.B) {
	const n = 1_000_000
	ints, keys := intStarts(n), byteStarts(n)
	b.Run("ints", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink += uint64(IntsFromSorted(numbered(ints), n).Len())
		}
	})
	b.Run("bytes16", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink += uint64(BytesFromSorted(numbered(keys), n).Len())
		}
	})
}

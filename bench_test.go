package shardway_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"github.com/shardway/shardway"
)

// evenSource is a store with one range map of n even ranges. It only loads.
type evenSource struct {
	shardway.Source // not asked for anything else
	described       shardway.ShardMap
	ranges          []shardway.Range
}

func newEvenSource(tb testing.TB, kind shardway.KeyKind, n int) *evenSource {
	tb.Helper()
	e := &evenSource{described: shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.RangeMap, KeyKind: kind, Generation: 1}}
	step := math.MaxUint64 / uint64(n)
	for i := range n {
		r := shardway.Range{Low: evenKey(kind, uint64(i)*step)}
		if i > 0 {
			e.ranges[i-1].High = r.Low
		}
		e.ranges = append(e.ranges, r)
	}
	return e
}

func evenKey(kind shardway.KeyKind, n uint64) shardway.Key {
	if kind == shardway.KindUUID {
		return shardway.UUIDKey(evenUUID(n))
	}
	return shardway.Int64Key(int64(n ^ 1<<63))
}

func evenUUID(n uint64) (u uuid.UUID) {
	binary.BigEndian.PutUint64(u[:], n)
	return u
}

func (e *evenSource) ShardMap(context.Context, string) (shardway.ShardMap, error) {
	return e.described, nil
}

func (e *evenSource) Load(_ context.Context, _ shardway.ShardMap, _ shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	state := shardway.MapState{Generation: 1}
	for i := range 100 {
		state.Shards = append(state.Shards, shardway.Shard{ID: shardway.ShardID(i + 1), Version: 1, Name: fmt.Sprint("s", i)})
	}
	var low, high []byte
	for i, r := range e.ranges {
		low, high = r.Low.AppendEncoded(low[:0]), r.High.AppendEncoded(high[:0])
		row := shardway.MappingRow{ID: shardway.MappingID(i + 1), Low: low, ShardID: shardway.ShardID(i%100 + 1), Status: shardway.Online}
		if !r.Open() {
			row.High = high
		}
		if err := each(row); err != nil {
			return state, err
		}
	}
	return state, nil
}

func openEven(tb testing.TB, kind shardway.KeyKind, n int) *shardway.Router {
	tb.Helper()
	r, err := shardway.Open(tb.Context(), newEvenSource(tb, kind, n), shardway.Config{LoadPolicy: shardway.Eager, PollInterval: math.MaxInt64})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.Close() })
	return r
}

func openEvenMap[K shardway.KeyType](b *testing.B, n int) *shardway.RangeShardMap[K] {
	m, err := shardway.OpenRangeShardMap[K](b.Context(), openEven(b, shardway.KindOf[K](), n), "m")
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	return m
}

// BenchmarkLookup is one lookup of a random cached key through a typed handle.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1e3, 1e5, 1e6} {
		b.Run(fmt.Sprint("int64/", n), func(b *testing.B) {
			m := openEvenMap[int64](b, n)
			benchLookup(b, func(ctx context.Context, u uint64) (shardway.Route, error) { return m.Lookup(ctx, int64(u)) })
		})
		b.Run(fmt.Sprint("uuid/", n), func(b *testing.B) {
			m := openEvenMap[uuid.UUID](b, n)
			benchLookup(b, func(ctx context.Context, u uint64) (shardway.Route, error) { return m.Lookup(ctx, evenUUID(u)) })
		})
	}
}

func benchLookup(b *testing.B, lookup func(context.Context, uint64) (shardway.Route, error)) {
	ctx := b.Context()
	var rnd rand.PCG
	b.ReportAllocs()
	for b.Loop() {
		route, err := lookup(ctx, rnd.Uint64())
		if err != nil || route.Shard == nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad is the reading of a whole map, without the store's part.
func BenchmarkLoad(b *testing.B) {
	const n = 1e6
	src := newEvenSource(b, shardway.KindInt64, n)
	for b.Loop() {
		r, err := shardway.Open(b.Context(), src, shardway.Config{LoadPolicy: shardway.Eager, PollInterval: math.MaxInt64})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Map(b.Context(), "m"); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/mapping")
}

// Memory: at most 24 bytes for each int64 mapping, key length + 32 for a UUID.
func TestMemoryPerMapping(t *testing.T) { //nolint:paralleltest // it weighs the heap of the whole process
	const n = 100_000
	for kind, most := range map[shardway.KeyKind]float64{shardway.KindInt64: 24, shardway.KindUUID: 48} {
		src := newEvenSource(t, kind, n)
		r, err := shardway.Open(t.Context(), src, shardway.Config{LoadPolicy: shardway.Eager, PollInterval: math.MaxInt64})
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		m, err := r.Map(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		per := float64(heap()-before) / n
		if per > most || per < 12 {
			t.Errorf("%s: %.1f bytes for each mapping, want at most %v", kind, per, most)
		}
		runtime.KeepAlive(m)
		runtime.KeepAlive(src)
		r.Close()
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

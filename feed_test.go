package shardway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
)

// eager opens customers eagerly inside a bubble; the feed polls every second.
func eager(t *testing.T) (*fakeSource, *shardway.Router, *shardway.RangeShardMap[int64]) {
	t.Helper()
	f, r, m := customers(t, shardway.Config{LoadPolicy: shardway.Eager})
	f.loads.Store(0)
	f.rows.Store(0)
	return f, r, m
}

// eagerOf opens customers eagerly from a source that stands before a fakeSource.
// The router is closed with the bubble.
func eagerOf(t *testing.T, src shardway.Source) (*shardway.Router, *shardway.RangeShardMap[int64]) {
	t.Helper()
	r, err := shardway.Open(t.Context(), src, shardway.Config{LoadPolicy: shardway.Eager})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	m, err := shardway.OpenRangeShardMap[int64](t.Context(), r, "customers")
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// poll lets the feed look once.
func poll() {
	time.Sleep(time.Second) // fake time
	synctest.Wait()
}

// cached checks what the cache has for a key; "" is nothing.
func cached(t *testing.T, m *shardway.RangeShardMap[int64], k int64, shard string) {
	t.Helper()
	route, err := m.LookupIn(t.Context(), k, shardway.CacheOnly)
	if shard == "" {
		if !errors.Is(err, shardway.ErrKeyNotMapped) {
			t.Errorf("key %d: %+v, %v; want nothing cached", k, route, err)
		}
		return
	}
	want(t, route, err, shard)
}

func TestEager(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := eager(t)
		cached(t, m, 0, "s1")
		cached(t, m, 199, "s2")
		cached(t, m, 200, "")
		cached(t, m, -1, "")

		f.put("customers", ints(0, 100), "s3")
		f.put("customers", ints(-100, -1), "s2")
		cached(t, m, 0, "s1")
		poll()
		cached(t, m, 0, "s3")
		cached(t, m, -2, "s2")
		cached(t, m, 150, "s2")
		if n := f.loads.Swap(0); n != 2 {
			t.Errorf("%d reads for two changed ranges", n)
		}
		f.put("customers", ints(0, 50), "")
		poll()
		cached(t, m, 0, "")
		cached(t, m, 60, "")
		cached(t, m, 150, "s2")
		f.loads.Store(0)
		f.rows.Store(0)
		for range 5 {
			poll()
		}
		if n := f.loads.Load(); n != 0 {
			t.Errorf("%d reads though nothing changed", n)
		}
		f.wantLookups(t, 0)

		f.moveShard("customers", "s2", "/elsewhere")
		poll()
		route, err := m.LookupIn(t.Context(), 150, shardway.CacheOnly)
		want(t, route, err, "s2")
		if got := route.Shard.Location.Servers[0].Address; got != "/elsewhere" {
			t.Errorf("a moved shard is at %s", got)
		}
		if loads, rows := f.loads.Load(), f.rows.Load(); loads != 1 || rows != 0 {
			t.Errorf("%d reads and %d mappings for a change of a shard", loads, rows)
		}
		if got, stored := m.Map().ShardMap().Generation, f.maps["customers"].described.Generation; got != stored {
			t.Errorf("generation %d, want %d", got, stored)
		}
		r.Close()
	})
}

func TestEagerListMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.addMap("tenants", shardway.ListMap, shardway.KindString)
		point := func(text string) shardway.Range { return shardway.Range{Low: key(t, text)} }
		f.put("tenants", point("a"), "s1")
		f.put("tenants", point(""), "s2")
		r := f.open(t, shardway.Config{LoadPolicy: shardway.Eager})
		m, err := shardway.OpenListShardMap[string](t.Context(), r, "tenants")
		if err != nil {
			t.Fatal(err)
		}
		f.put("tenants", point("a"), "")
		f.put("tenants", point("b"), "s3")
		poll()
		for k, shard := range map[string]string{"": "s2", "a": "", "b": "s3", "b\x00": "", "c": ""} {
			route, err := m.LookupIn(t.Context(), k, shardway.CacheOnly)
			if shard == "" && errors.Is(err, shardway.ErrKeyNotMapped) {
				continue
			}
			want(t, route, err, shard)
		}
		r.Close()
	})
}

// More changes than are worth reading again are forgotten, and read on demand.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := eager(t)
		for i := range int64(300) {
			f.put("customers", ints(1000+2*i, 1001+2*i), "s3")
		}
		f.put("customers", ints(0, 100), "s2")
		poll()
		if n := f.loads.Load(); n != 256 {
			t.Errorf("%d ranges read again", n)
		}
		cached(t, m, 0, "s2")
		cached(t, m, 1000, "s3")
		cached(t, m, 1598, "") // not the old shard
		route, err := m.Lookup(t.Context(), 1598)
		want(t, route, err, "s3")
		cached(t, m, 150, "s2")
		r.Close()
	})
}

// The store has forgotten what changed: the whole map is read.
func TestFeedStartsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := eager(t)
		f.put("customers", ints(0, 100), "s3")
		f.put("customers", ints(100, 200), "")
		f.set(func(f *fakeSource) { f.history = f.maps["customers"].described.Generation })
		poll()
		cached(t, m, 5, "s3")
		cached(t, m, 150, "")
		if n := f.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		f.put("customers", ints(0, 100), "s1")
		poll()
		cached(t, m, 5, "s1")
		r.Close()
	})
}

// MAP-10 with a feed: it fails and recovers without harm, and says so once.
func TestFeedFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f, r, m := customers(t, shardway.Config{LoadPolicy: shardway.Eager, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f.set(func(f *fakeSource) { f.down = shardway.ErrUnavailable })
		for range 3 {
			poll()
		}
		cached(t, m, 5, "s1")
		if err := r.Stats().Maps[0].FeedError; !errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("the feed's error is %v", err)
		}
		f.set(func(f *fakeSource) { f.down = nil })
		f.put("customers", ints(0, 100), "s3")
		poll()
		cached(t, m, 5, "s3")
		if err := r.Stats().Maps[0].FeedError; err != nil {
			t.Errorf("the feed's error is %v", err)
		}
		r.Close()
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "customers") {
			t.Errorf("%d lines logged:\n%s", lines, log.String())
		}
	})
}

// silentSource swallows the reading of whole maps once it is told to.
type silentSource struct {
	*fakeSource
	silent atomic.Bool
}

func (s *silentSource) Load(ctx context.Context, m shardway.ShardMap, within shardway.Range, each func(shardway.MappingRow) error) (shardway.MapState, error) {
	if s.silent.Load() && within.Low.IsZero() {
		<-ctx.Done()
		return shardway.MapState{}, ctx.Err()
	}
	return s.fakeSource.Load(ctx, m, within, each)
}

// A store that takes the question for the whole map and never answers: the
// feed gives up, says so, and goes on when the store does.
func TestFeedMeetsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, first, _ := customers(t, shardway.Config{})
		first.Close()
		s := &silentSource{fakeSource: f}
		r, m := eagerOf(t, s)
		s.silent.Store(true)
		f.put("customers", ints(0, 100), "s3")
		f.set(func(f *fakeSource) { f.history = f.maps["customers"].described.Generation })
		poll()
		time.Sleep(6 * time.Second) // fake time, longer than StoreTimeout
		synctest.Wait()
		if err := r.Stats().Maps[0].FeedError; !errors.Is(err, shardway.ErrUnavailable) || !strings.Contains(err.Error(), "5s") {
			t.Errorf("the feed's error is %v", err)
		}
		cached(t, m, 5, "s1")
		s.silent.Store(false)
		time.Sleep(time.Minute) // fake time: a reading under way is given up, and the next one begins up to 30 s later
		synctest.Wait()
		cached(t, m, 5, "s3")
		r.Close()
	})
}

func TestFeedEndsWithItsMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, r, m := eager(t)
		f.dropMap("customers")
		poll()
		cached(t, m, 5, "")
		polls := f.polls.Load()
		poll()
		if f.polls.Load() != polls {
			t.Error("a map that is gone is followed on")
		}
		if len(r.Stats().Maps) != 0 {
			t.Error("a map that is gone is still open")
		}
		r.Close()
	})
}

// Damaged stores are refused, not routed by.
func TestLoadRefusesDamage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(m *fakeMap)
		want   error
	}{
		{"overlap", func(m *fakeMap) { m.mappings[0].Range = ints(0, 101) }, shardway.ErrInvalid},
		{"overlap of an open range", func(m *fakeMap) { m.mappings[0].Range = ints(0, 0) }, shardway.ErrInvalid},
		{"order", func(m *fakeMap) { m.mappings[0], m.mappings[1] = m.mappings[1], m.mappings[0] }, shardway.ErrInvalid},
		{"empty range", func(m *fakeMap) { m.mappings[0].Range.High = m.mappings[0].Range.Low }, shardway.ErrInvalid},
		{"other key kind", func(m *fakeMap) { m.mappings[0].Range = shardway.Range{Low: shardway.Int32Key(1)} }, shardway.ErrInvalid},
		{"no shard", func(m *fakeMap) { m.shards = m.shards[1:] }, shardway.ErrShardNotFound},
		{"no id", func(m *fakeMap) { m.mappings[1].ID = 0 }, shardway.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.addMap("customers", shardway.RangeMap, shardway.KindInt64)
			f.put("customers", ints(0, 100), "s1")
			f.put("customers", ints(100, 200), "s2")
			c.damage(f.maps["customers"])
			r := f.open(t, shardway.Config{LoadPolicy: shardway.Eager})
			_, err := r.Map(t.Context(), "customers")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "customers") {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestLoadRefusesOnePointTwice(t *testing.T) {
	t.Parallel()
	for _, kind := range []shardway.KeyKind{shardway.KindInt32, shardway.KindString} {
		f := newFake()
		f.addMap("m", shardway.ListMap, kind)
		f.put("m", shardway.Range{Low: shardway.MinKey(kind)}, "s1")
		f.maps["m"].mappings = append(f.maps["m"].mappings, f.maps["m"].mappings[0])
		_, err := f.open(t, shardway.Config{LoadPolicy: shardway.Eager}).Map(t.Context(), "m")
		if !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Every kind of key loads, in both kinds of map, with gaps and without.
func TestLoadEveryKind(t *testing.T) {
	t.Parallel()
	for kind := shardway.KeyKind(1); kind <= allKinds; kind++ {
		for _, mapKind := range []shardway.MapKind{shardway.ListMap, shardway.RangeMap} {
			t.Run(fmt.Sprint(mapKind, " map of ", kind), func(t *testing.T) {
				t.Parallel()
				keys := map[shardway.KeyKind][]string{
					shardway.KindInt32:    {"-2147483648", "-1", "0", "7", "2147483647"},
					shardway.KindInt64:    {"-9223372036854775808", "-1000", "-1", "0", "9223372036854775807"}, // KEY-04
					shardway.KindUint64:   {"0", "1", "2", "9223372036854775808", "18446744073709551615"},
					shardway.KindUUID:     {"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001", "9fffffff-0000-0000-0000-000000000000", "a0000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
					shardway.KindString:   {"", "A", "a", "a\x00", "ä"},
					shardway.KindBytes:    {"0x", "0x00", "0x0003", "0x000300", "0xff"},
					shardway.KindTime:     {"1900-01-01", "1969-12-31", "1970-01-01", "2026-01-01", "2026-01-01T00:00:00.000001Z"},
					shardway.KindDuration: {"-1h0m0s", "-1ns", "0s", "1ns", "1h"},
				}[kind]
				f := newFake()
				f.addMap("m", mapKind, kind)
				var at []shardway.Key
				for _, text := range keys {
					k, err := shardway.ParseKey(kind, text)
					if err != nil {
						t.Fatal(err)
					}
					at = append(at, k)
				}
				shards := []string{"s1", "s2", "", "s3", "s1"} // the third is a gap
				for i, k := range at {
					r := shardway.Range{Low: k}
					if mapKind == shardway.RangeMap && i+1 < len(at) {
						r.High = at[i+1]
					}
					if shards[i] != "" {
						f.put("m", r, shards[i])
					}
				}
				r := f.open(t, shardway.Config{LoadPolicy: shardway.Eager})
				m, err := r.Map(t.Context(), "m")
				if err != nil {
					t.Fatal(err)
				}
				for i, k := range at {
					route, err := m.Lookup(t.Context(), k, shardway.CacheOnly)
					if shards[i] == "" {
						if !errors.Is(err, shardway.ErrKeyNotMapped) {
							t.Errorf("%s: %v, %v", k, route.Shard, err)
						}
						continue
					}
					want(t, route, err, shards[i])
				}
				if n := m.Stats().Mappings; n != 4 {
					t.Errorf("%d mappings", n)
				}
				f.wantLookups(t, 0)
			})
		}
	}
}

// The first load of a map may be given up.
func TestOpeningIsCancelled(t *testing.T) {
	t.Parallel()
	f := newFake()
	r := f.open(t, shardway.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Map(ctx, "customers"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

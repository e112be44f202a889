package shardway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shardway/shardway"
)

// loaded opens an eagerly loaded map with one open range (or one point per
// value) on s1.
func loaded[K shardway.KeyType](t testing.TB, kind shardway.MapKind, values ...K) *shardway.Router {
	t.Helper()
	f := newFake()
	f.addMap("m", kind, shardway.KindOf[K]())
	for _, v := range values {
		f.put("m", shardway.Range{Low: key(t, v)}, "s1")
	}
	return f.open(t, shardway.Config{LoadPolicy: shardway.Eager})
}

// allocations is how much memory one lookup of a cached key takes.
func allocations[K shardway.KeyType](t *testing.T, name string, v K, most float64) {
	t.Helper()
	ctx := t.Context()
	ranges, err := shardway.OpenRangeShardMap[K](ctx, loaded(t, shardway.RangeMap, v), "m")
	if err != nil {
		t.Fatal(err)
	}
	points, err := shardway.OpenListShardMap[K](ctx, loaded(t, shardway.ListMap, v), "m")
	if err != nil {
		t.Fatal(err)
	}
	for _, lookup := range []func(context.Context, K) (shardway.Route, error){ranges.Lookup, points.Lookup} {
		if n := testing.AllocsPerRun(100, func() {
			if route, err := lookup(ctx, v); err != nil || route.Shard.Name != "s1" {
				t.Fatalf("%s: %v, %v", name, route, err)
			}
		}); n > most {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestLookupAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	type tenant [16]byte
	allocations(t, "int32", int32(-5), 0)
	allocations(t, "int64", int64(1<<40), 0)
	allocations(t, "uint64", uint64(1<<63), 0)
	allocations(t, "uuid", uuid.UUID{1, 2, 3}, 0)
	allocations(t, "named uuid", tenant{1, 2, 3}, 0)
	allocations(t, "array", [16]byte{1, 2, 3}, 0)
	allocations(t, "string", strings.Repeat("customer ", 9), 0)
	allocations(t, "time", time.Now(), 0)
	allocations(t, "duration", time.Hour, 0)
	allocations(t, "bytes", []byte("a key"), 1) // the copy
}

// keyed is what an adapter asks of a typed map: K is inferred from it.
type keyed[K shardway.KeyType] interface {
	Map() *shardway.Map
	Key(k K) (shardway.Key, error)
}

func shardOf[K shardway.KeyType](ctx context.Context, m keyed[K], k K) (string, error) {
	key, err := m.Key(k)
	if err != nil {
		return "", err
	}
	route, err := m.Map().Lookup(ctx, key, shardway.CacheAndStore)
	if err != nil {
		return "", err
	}
	return route.Shard.Name, nil
}

func TestAdaptersInferTheKeyType(t *testing.T) {
	t.Parallel()
	ranges, err := shardway.OpenRangeShardMap[int64](t.Context(), loaded(t, shardway.RangeMap, int64(0)), "m")
	if err != nil {
		t.Fatal(err)
	}
	if name, err := shardOf(t.Context(), ranges, 42); name != "s1" || err != nil {
		t.Errorf("%s, %v", name, err)
	}
	points, err := shardway.OpenListShardMap[string](t.Context(), loaded(t, shardway.ListMap, "a"), "m")
	if err != nil {
		t.Fatal(err)
	}
	if name, err := shardOf(t.Context(), points, "a"); name != "s1" || err != nil {
		t.Errorf("%s, %v", name, err)
	}
	var argument *shardway.ArgumentError
	if _, err := points.Lookup(t.Context(), strings.Repeat("x", 129)); !errors.As(err, &argument) || !strings.Contains(err.Error(), `"m"`) {
		t.Errorf("a key that is too long: %v", err)
	}
}

// The key of a request is set once.
func TestKeyInContext(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if k, ok := shardway.KeyFromContext(ctx); ok || !k.IsZero() {
		t.Errorf("a bare context has key %s", k)
	}
	ctx, err := shardway.WithKey(ctx, int64(5))
	if err != nil {
		t.Fatal(err)
	}
	wantKey := func(ctx context.Context, k shardway.Key) {
		t.Helper()
		if got, ok := shardway.KeyFromContext(ctx); !ok || got != k {
			t.Errorf("the context has key %s, %v; want %s", got, ok, k)
		}
	}
	wantKey(ctx, shardway.Int64Key(5))
	same, err := shardway.WithKey(ctx, int64(5))
	if err != nil || same != ctx {
		t.Errorf("the same key again: %v", err)
	}
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = shardway.WithKey(child, int64(6))
	if !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), `key "6" differs from key 5`) {
		t.Errorf("another key: %v", err)
	}
	if _, err := shardway.WithKey(child, int32(5)); !errors.Is(err, shardway.ErrInvalid) {
		t.Errorf("a key of another kind: %v", err)
	}
	replaced, err := shardway.ReplaceKey(child, "tenant")
	if err != nil {
		t.Fatal(err)
	}
	wantKey(replaced, key(t, "tenant"))
	wantKey(child, shardway.Int64Key(5))
	for _, set := range []func(context.Context, []byte) (context.Context, error){shardway.WithKey[[]byte], shardway.ReplaceKey[[]byte]} {
		if _, err := set(t.Context(), nil); !errors.Is(err, shardway.ErrKeyRequired) {
			t.Errorf("no key: %v", err)
		}
	}
}

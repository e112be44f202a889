package memstore_test

import (
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
	"github.com/shardway/shardway/store/storetest"
)

func deployed(t *testing.T) store.Global {
	g := memstore.NewGlobal()
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatalf("Deploy = %v", err)
	}
	return g
}

func TestGlobal(t *testing.T) {
	t.Parallel()
	storetest.Global(t, deployed)
}

func TestUndeployed(t *testing.T) {
	t.Parallel()
	storetest.Undeployed(t, func(*testing.T) storetest.Deployable { return memstore.NewGlobal() })
}

func TestLocal(t *testing.T) {
	t.Parallel()
	storetest.Local(t, func(*testing.T) store.Local { return memstore.NewLocal() })
}

// TestCompare says that the random changes end as their generator predicts.
func TestCompare(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, deployed, deployed)
}

func TestZeroValuesAreNotDeployed(t *testing.T) {
	t.Parallel()
	storetest.Undeployed(t, func(*testing.T) storetest.Deployable { return new(memstore.Global) })
	storetest.Local(t, func(*testing.T) store.Local { return new(memstore.Local) })
}

func TestClock(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 2, 3, 4, 5, 6, 123456789, time.FixedZone("east", 3600))
	g := &memstore.Global{Now: func() time.Time { return clock }}
	if _, err := g.Deploy(t.Context(), false); err != nil {
		t.Fatalf("Deploy = %v", err)
	}
	var got time.Time
	err := g.Update(t.Context(), 0, func(_ store.Reader, now time.Time) (store.Delta, error) {
		got = now
		return store.Delta{}, nil
	})
	if want := time.Date(2026, 2, 3, 3, 5, 6, 123456000, time.UTC); err != nil || got != want {
		t.Errorf("now = %v, %v, want %v", got, err, want)
	}
}

// TestLoadSpoilsRows makes sure that a reader that keeps a row's bytes is found out.
func TestLoadSpoilsRows(t *testing.T) {
	t.Parallel()
	g := deployed(t)
	m := shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.ListMap, KeyKind: shardway.KindInt64}
	s := shardway.Shard{ID: 2, MapID: 1, Name: "s", Version: 3}
	point := shardway.Mapping{ID: 4, MapID: 1, ShardID: 2, Range: shardway.Range{Low: shardway.Int64Key(5)}}
	o := &store.Operation{ID: 6, Map: m, Steps: []store.Step{{Shard: s, After: &s, Add: []shardway.Mapping{point}}}}
	err := g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) {
		return store.Delta{AddMap: &m, Prepare: o, Publish: o}, nil
	})
	if err != nil {
		t.Fatalf("Update = %v", err)
	}
	var kept []byte
	_, err = g.Load(t.Context(), m, shardway.Range{}, func(row shardway.MappingRow) error {
		kept = row.Low
		return nil
	})
	if k, decodeErr := shardway.DecodeKey(m.KeyKind, kept); err != nil || decodeErr != nil || k == point.Range.Low {
		t.Errorf("bytes kept from Load still are %v (%v, %v)", k, err, decodeErr)
	}
}

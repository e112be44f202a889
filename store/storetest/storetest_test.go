package storetest_test

import (
	"testing"

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

func TestMemstoreGlobal(t *testing.T) {
	t.Parallel()
	storetest.Global(t, deployed)
}

func TestMemstoreCompare(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, deployed, deployed)
}

func TestMemstoreUndeployed(t *testing.T) {
	t.Parallel()
	storetest.Undeployed(t, func(*testing.T) storetest.Deployable { return memstore.NewGlobal() })
}

func TestMemstoreLocal(t *testing.T) {
	t.Parallel()
	storetest.Local(t, func(*testing.T) store.Local { return memstore.NewLocal() })
}

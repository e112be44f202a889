package catalog_test

import (
	"testing"

	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/memstore"
)

var memory = engine{
	name: "memory",
	global: func(t *testing.T) store.Global {
		g := memstore.NewGlobal()
		if _, err := g.Deploy(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		return g
	},
	local: func(*testing.T) store.Local { return memstore.NewLocal() },
}

func engines(*testing.T) []engine { return []engine{memory} }

package sqlstore_test

import (
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlite"
	"github.com/shardway/shardway/store/sqlstore"
)

func TestLocalsRefuseEngines(t *testing.T) {
	t.Parallel()
	for name, engines := range map[string][]shardway.Engine{
		"nil": {nil}, "twice": {sqlite.Engine{}, sqlite.Engine{Options: "mode=ro"}},
	} {
		if l, err := sqlstore.NewLocals(engines, shardway.Credentials{}); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("NewLocals with engine %s = %v, %v", name, l, err)
		}
	}
}

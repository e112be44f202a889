package sqlshard_test

import (
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/sqlshard"
)

// P2 and P3: add on several shards, look up, open a connection.
func TestOpenConnectionForKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		r := newRig(t, e)
		db := r.open(sqlshard.Config{})
		for range 3 {
			a, b := opened(t, db, 7, "a"), opened(t, db, 150, "b")
			if a.Route().MappingID != r.mapping(7).ID || a.Server() != r.shards["a"].Location.Servers[0].Address {
				t.Errorf("route %+v on %q", a.Route(), a.Server())
			}
			for _, conn := range []*sqlshard.Conn{a, b} {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				if err := conn.Close(); err != nil {
					t.Error("closing twice:", err)
				}
			}
		}
		quiet(t, db)
		if n := r.source.lookups.Load(); n != 2 {
			t.Errorf("the store was asked %d times for two mappings", n)
		}
		if opened := sum(db, func(p sqlshard.PoolStats) int { return int(p.Opened) }); opened != 2 {
			t.Errorf("%d sessions were opened, want one on each shard", opened)
		}
		refused(t, db, 200, shardway.ErrKeyNotMapped)
	})
}

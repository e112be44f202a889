package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
)

// TestLostRaces makes the same change eight times at once. One succeeds; all
// others are told that they are refused as things stand, whether they have met
// the winner or come after it, and never that their command line is wrong.
func TestLostRaces(t *testing.T) {
	t.Parallel()
	const clients = 8
	for _, race := range []string{
		"map create other --kind list --key int64",
		"mapping add --map customers --shard s1 --low 1000 --high 2000",
		"mapping split --map customers --at 50",
		"mapping split --map customers --key 0 --at 50",
		"mapping merge --map customers --left 0 --right 100",
		"mapping lock --map customers --key 0",
		"shard update s1 --name north --map customers",
	} {
		t.Run(race, func(t *testing.T) {
			t.Parallel()
			global := dbtest.Database{Engine: "sqlite", Name: dbtest.SQLite(t)}
			shard := dbtest.Database{Engine: "sqlite", Name: dbtest.SQLite(t)}
			p := newProgram(t, "SHARDWAY_STORE="+global.DSN())
			p.must("init")
			p.must("map", "create", "customers", "--kind", "range", "--key", "int64")
			p.must("shard", "add", "s1", location(shard), "--map", "customers")
			p.must("mapping", "add", "--map", "customers", "--shard", "s1", "--low", "0", "--high", "100")
			p.must("mapping", "add", "--map", "customers", "--shard", "s1", "--low", "100", "--high", "200")
			codes := map[int]int{}
			var mu sync.Mutex // guards codes
			var running sync.WaitGroup
			for range clients {
				running.Go(func() {
					r := p.run(strings.Fields(race)...)
					mu.Lock()
					defer mu.Unlock()
					codes[r.code]++
					if r.code != exitOK && r.code != exitConflict && r.code != exitNotFound {
						t.Errorf("exit code %d: %s", r.code, r.errs)
					}
				})
			}
			running.Wait()
			if codes[exitOK] != 1 {
				t.Errorf("exit codes and how often they came: %v, want one %d", codes, exitOK)
			}
		})
	}
}

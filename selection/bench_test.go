package selection_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// benchSet has one primary and n-1 secondaries, round trips of 1..30 ms, lags
// of 0..119 s and two tags each.
func benchSet(tb testing.TB, n int) topology.Set {
	tb.Helper()
	list := make([]topology.Server, n)
	for i := range list {
		list[i] = topology.Server{
			Address:    fmt.Sprintf("server-%d.example.com:5432", i),
			Role:       topology.RoleSecondary,
			Tags:       topology.NewTags(map[string]string{"zone": fmt.Sprintf("eu-%d", i%3), "use": fmt.Sprintf("class-%d", i%2)}),
			AverageRTT: topology.Measured(time.Duration(1+i%30) * time.Millisecond),
			Staleness:  topology.Measured(time.Duration(i*7%120) * time.Second),
			LastUpdate: time.Unix(1_000_000, 0),
		}
	}
	list[0].Role = topology.RolePrimary
	var none topology.Set
	first, err := none.Describe(topology.KindReplicaSet, list)
	if err != nil {
		tb.Fatal(err)
	}
	return first
}

var benchCriteria = []struct {
	name     string
	criteria selection.Criteria
}{
	{"nearest", selection.Nearest()},
	{"secondaryPreferred", selection.SecondaryPreferred(selection.MaxStaleness(100*time.Second),
		selection.Tags{"zone": "nowhere"}, selection.Tags{"zone": "eu-1"}, selection.Tags{})},
	{"primary", selection.Primary()},
	{"predicate", selection.Where(func(s selection.ServerInfo) bool { return s.Port == 5432 })},
}

func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{3, 10, 50, 1000} {
		set := benchSet(b, n)
		for _, c := range benchCriteria {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					choice, err := selection.Select(set, selection.Request{Criteria: c.criteria})
					if err != nil {
						b.Fatal(err)
					}
					choice.Release()
				}
			})
		}
	}
}

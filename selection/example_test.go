package selection_test

import (
	"fmt"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

func Example() {
	near := topology.NewTags(map[string]string{"zone": "eu-1a"})
	servers := []topology.Server{
		{Address: "db1:5432", Role: topology.RolePrimary, AverageRTT: topology.Measured(2 * time.Millisecond)},
		{Address: "db2:5432", Role: topology.RoleSecondary, AverageRTT: topology.Measured(time.Millisecond), Tags: near, Staleness: topology.Measured(time.Second)},
		{Address: "localhost:5432", Role: topology.RoleSecondary, AverageRTT: topology.Measured(40 * time.Millisecond)},
	}
	set, err := topology.Set{}.Describe(topology.KindReplicaSet, servers)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, criteria := range []selection.Criteria{
		{},
		selection.Nearest(selection.MaxStaleness(30*time.Second), selection.Tags{"zone": "eu-1a"}),
		selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" }),
		selection.Secondary(selection.Tags{"zone": "us-2"}),
	} {
		choice, err := selection.Select(set, selection.Request{Criteria: criteria})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(choice.Server().Address)
		choice.Release()
	}
	// Output:
	// db1:5432
	// db2:5432
	// localhost:5432
	// no suitable server for read (secondary, tags {zone=us-2}); role (primary): db1:5432; tags (zone=eu-1a): db2:5432; tags (no tags): localhost:5432
}

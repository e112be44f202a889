package sqlserverprobe_test

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe/probetest"
	"github.com/shardway/shardway/topology/sqlserverprobe"
)

// The other members of a group are told by their routing URLs; what else stands
// there, or that nothing does, changes nothing else.
func TestTold(t *testing.T) {
	t.Parallel()
	none := probetest.Answer{Columns: []string{"read_only_routing_url"}}
	urls := none
	for _, url := range []driver.Value{"TCP://DB2.example:1433", "tcp://[fe80::3]:1434", "https://db4:1433", "TCP://db5", "db6:1433", "", nil} {
		urls.Rows = append(urls.Rows, []driver.Value{url})
	}
	for name, c := range map[string]struct {
		fake fake
		want []string
	}{
		"urls":    {fake{edition: 3, groups: 1, told: []probetest.Answer{urls}}, []string{"db2.example:1433", "[fe80::3]:1434"}},
		"no urls": {fake{edition: 3, groups: 1, told: []probetest.Answer{none}}, nil},
		"caught":  {fake{edition: 3, groups: 1, told: []probetest.Answer{{}}}, nil},
		"nothing": {fake{edition: 3, groups: 1}, nil},
		"alone":   {fake{edition: 3}, nil},
		"Azure":   {fake{edition: 5}, nil},
	} {
		c.fake.role, c.fake.replica = role("ONLINE", "READ_WRITE"), replica(1, 0, "SYNCHRONIZED", nil, nil)
		got := probetest.Once(t, c.fake.prober(t, sqlserverprobe.Options{}), "db1:1433")
		if diff := cmp.Diff(c.want, got.Told); diff != "" || got.Role != topology.RolePrimary {
			t.Errorf("%s: %v (-want +got):\n%s", name, got.Role, diff)
		}
		if asks := strings.Contains(c.fake.asked[len(c.fake.asked)-1], "routing_url"); asks != (c.fake.groups == 1) {
			t.Errorf("%s: asks for URLs: %v", name, asks)
		}
	}
}

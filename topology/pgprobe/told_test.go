package pgprobe_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/pgprobe"
	"github.com/shardway/shardway/topology/probe/probetest"
)

// A secondary tells of its primary, which is missing where it is not listed;
// its other spelling is not. A primary tells of nobody.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{})
	prober := newProber(t, set.NewDatabase(t), pgprobe.Options{})
	set.AwaitReplay(t, 1)
	other := "localhost:" + strconv.Itoa(set.Server(0).Port())
	for name, c := range map[string]struct {
		listed []string
		want   []topology.Unlisted
	}{
		"the secondary alone":           {[]string{set.Addr(1)}, []topology.Unlisted{{Address: set.Addr(0), ToldBy: []string{set.Addr(1)}}}},
		"the primary alone":             {[]string{set.Addr(0)}, []topology.Unlisted{}},
		"both":                          {[]string{set.Addr(0), set.Addr(1)}, []topology.Unlisted{}},
		"both, one in another spelling": {[]string{other, set.Addr(1)}, []topology.Unlisted{}},
	} {
		m := probetest.Open(t, prober, c.listed...)
		seen := m.Await(t, "an answer of every server", func(s topology.Set) bool {
			for _, server := range s.Servers() {
				if !server.Claimed.Available() || server.Claimed == topology.RoleSecondary && server.Upstream == "" {
					return false
				}
			}
			return true
		})
		if diff := cmp.Diff(c.want, topology.FindUnlisted(seen.Servers())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

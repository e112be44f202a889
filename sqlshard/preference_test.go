package sqlshard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// servedBy opens some connections and returns the addresses that served them.
func servedBy(t testing.TB, db *sqlshard.DB[int64], n int) map[string]int {
	t.Helper()
	served := map[string]int{}
	for range n {
		conn, err := db.OpenConnectionForKey(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		served[conn.Server()]++
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return served
}

// within checks that only some servers served, and each of them did.
func within(t testing.TB, what string, served map[string]int, want []string) {
	t.Helper()
	var got []string
	for address := range served {
		got = append(got, address)
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: served by %v, want %v", what, served, want)
	}
}

// allKnown waits until every server has answered.
func allKnown(t testing.TB, db *sqlshard.DB[int64]) {
	t.Helper()
	known(t, db, "all servers", func(v []selection.Verdict) bool {
		return !slices.ContainsFunc(v, func(v selection.Verdict) bool { return v.Step == selection.StepUnknown })
	})
}

// Where reads and writes go, on real servers: each read preference, tags, a
// predicate, the nearest of what was asked for. Operations in flight are counted
// until the connection is closed, twice or not.
func TestReadPreferences(t *testing.T) {
	t.Parallel()
	eachSet(t, func(t *testing.T, r *replicas) {
		var secondaries []int
		for i := 1; i < len(r.set.Servers()); i++ {
			secondaries = append(secondaries, i)
		}
		all := r.addresses(append([]int{0}, secondaries...)...)
		db := r.connect(sqlshard.Config{})
		allKnown(t, db)
		port := fmt.Sprint(r.set.Proxy(1).Port())
		for name, c := range map[string]struct {
			criteria selection.Criteria
			want     []string
		}{
			"primary":             {selection.Primary(), r.addresses(0)},
			"primary preferred":   {selection.PrimaryPreferred(), r.addresses(0)},
			"secondary":           {selection.Secondary(), r.addresses(secondaries...)},
			"secondary preferred": {selection.SecondaryPreferred(), r.addresses(secondaries...)},
			"nearest":             {selection.Nearest(), all},
			"tags":                {selection.Nearest(selection.Tags{"zone": "z1"}), r.addresses(1)},
			"predicate": {selection.Where(func(s selection.ServerInfo) bool {
				return s.Host == "127.0.0.1" && strings.HasSuffix(s.Address, port)
			}), r.addresses(1)},
		} {
			within(t, name, servedBy(t, db.With(c.criteria), 60), c.want)
		}
		within(t, "a nearer With", servedBy(t, db.With(selection.Secondary()).With(selection.Primary()), 5), r.addresses(0))
		readers := r.connect(sqlshard.Config{Criteria: selection.Secondary()})
		allKnown(t, readers)
		within(t, "Config.Criteria", servedBy(t, readers, 60), r.addresses(secondaries...))

		if server, err := write(t.Context(), db, 1); err != nil || server != r.set.Addr(0) {
			t.Errorf("a write went to %s: %v", server, err)
		}
		if server, err := write(t.Context(), db.With(selection.Secondary()), 2); err == nil {
			t.Errorf("secondary %s took a write", server)
		}
		r.inFlight(db)
	})
}

func (r *replicas) inFlight(db *sqlshard.DB[int64]) {
	r.t.Helper()
	count := func() (n int64) {
		for _, v := range known(r.t, db, "", func([]selection.Verdict) bool { return true }) {
			n += v.InFlight
		}
		return n
	}
	var conns []*sqlshard.Conn
	for range 3 {
		for _, d := range []*sqlshard.DB[int64]{db, db.With(selection.Nearest())} {
			conn, err := d.OpenConnectionForKey(r.t.Context(), 7)
			if err != nil {
				r.t.Fatal(err)
			}
			conns = append(conns, conn)
		}
	}
	if n := count(); n != 6 {
		r.t.Errorf("%d operations in flight with 6 connections", n)
	}
	for _, conn := range conns {
		_ = conn.Close()
		_ = conn.Close()
	}
	if n := count(); n != 0 {
		r.t.Errorf("%d operations in flight after Close", n)
	}
	quiet(r.t, db)
}

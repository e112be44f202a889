package catalog_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/store"
)

// TestLocks is ADM-05: what a lock keeps others from, and what its owner may do.
// L1, L3, L4.
func TestLocks(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		ann, bob := rg.client(catalog.Config{Who: "ann"}), rg.client(catalog.Config{Who: "bob"})
		expires := time.Now().Add(time.Hour).Round(0)
		lock := shardway.Lock{Token: catalog.NewLockToken(), Owner: "ann", Reason: "moving", Expires: expires}
		held := do(t, ann, catalog.LockMapping{Mapping: w.b, Lock: lock}).Mappings[0]
		if held.ID != w.b.ID {
			t.Error("a lock has changed the id")
		}
		got, err := bob.MappingForKey(t.Context(), w.ranges, k(150))
		if err != nil || got != held || got.Lock.Owner != "ann" || got.Lock.Reason != "moving" || !got.Lock.Expires.Equal(expires.Truncate(time.Microsecond)) {
			t.Errorf("bob sees %+v, %v; ann has %+v", got, err, held)
		}
		for _, ch := range []catalog.Change{
			catalog.UpdateMapping{Mapping: got, Status: ptr(shardway.Online)},
			catalog.UpdateMapping{Mapping: got, ShardID: &w.s2.ID, Token: "bob's"},
			catalog.DeleteMapping{Mapping: got},
			catalog.SplitMapping{Mapping: got, At: k(150)},
			catalog.LockMapping{Mapping: got, Lock: shardway.Lock{Token: "bob's", Owner: "bob"}},
			catalog.UnlockMapping{Mapping: got, Token: "bob's"},
			catalog.UnlockMapping{Mapping: got},
			catalog.UnlockMapping{Mapping: got, Token: lock.Token + " "},
		} {
			refused(t, bob, ch, shardway.ErrMappingLocked, "[100, 200)")
		}
		do(t, ann, catalog.UnlockMapping{Mapping: held, Token: lock.Token})
		do(t, bob, catalog.LockMapping{Mapping: got, Lock: shardway.Lock{Token: "bob's", Owner: "bob"}})
		refused(t, ann, catalog.DeleteMapping{Mapping: got, Token: lock.Token}, shardway.ErrMappingLocked, `"bob"`)
		do(t, bob, catalog.DeleteMapping{Mapping: got, Token: "bob's"})
		rg.look(t).checkSettled(t)
	})
}

// TestLocksSurvive changes a locked mapping with its token: the lock goes with
// it into every part, and into what left becomes: L6.
func TestLocksSurvive(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		check := func(what string, mappings ...shardway.Mapping) {
			t.Helper()
			for _, m := range mappings {
				got, err := c.MappingForKey(t.Context(), w.ranges, m.Range.Low)
				if err != nil || got != m || got.Lock != w.c.Lock {
					t.Errorf("%s: MappingForKey = %+v, %v, want %+v", what, got, err, m)
				}
			}
		}
		m := do(t, c, catalog.UpdateMapping{Mapping: w.c, Status: ptr(shardway.Offline), Token: token}).Mappings[0]
		check("update", m)
		m = do(t, c, catalog.UpdateMapping{Mapping: m, ShardID: &w.s3.ID, Token: token}).Mappings[0]
		check("move", m)
		parts := do(t, c, catalog.SplitMapping{Mapping: m, At: k(250), Token: token}).Mappings
		check("split", parts...)
		refused(t, c, catalog.MergeMappings{Left: parts[0], Right: parts[1], Token: token}, shardway.ErrMappingLocked)
		m = do(t, c, catalog.MergeMappings{Left: parts[0], Right: parts[1], Token: token, RightToken: token}).Mappings[0]
		check("merge", m)
		free := do(t, c, catalog.UnlockMapping{Mapping: m, Force: true}).Mappings[0]
		if got, err := c.MappingForKey(t.Context(), w.ranges, k(200)); err != nil || got != free || got.Lock != (shardway.Lock{}) {
			t.Errorf("after a forced unlock: %+v, %v", got, err)
		}
	})
}

// TestUnlockOwner frees exactly one owner's mappings in one map: L5, in list and
// range maps. Tokens are compared by bytes.
func TestUnlockOwner(t *testing.T) {
	t.Parallel()
	each(t, engines(t), func(t *testing.T, e engine) {
		rg, w := e.world(t)
		c := rg.client(catalog.Config{})
		for _, x := range []struct {
			mapping shardway.Mapping
			token   shardway.LockToken
		}{{w.a, "t"}, {w.b, "t "}, {w.d, "T"}, {w.e, "t"}, {w.one, "t"}, {w.two, "ť"}} {
			do(t, c, catalog.LockMapping{Mapping: x.mapping, Lock: shardway.Lock{Token: x.token, Owner: "o"}})
		}
		locked := func(m shardway.ShardMap) (tokens []string) {
			for _, mp := range list(t, c, store.MappingQuery{Map: m}) {
				tokens = append(tokens, string(mp.Lock.Token))
			}
			return tokens
		}
		if n := len(do(t, c, catalog.UnlockOwner{Map: w.ranges, Token: "t"}).Mappings); n != 2 {
			t.Errorf("%d mappings were unlocked, want 2", n)
		}
		if diff := cmp.Diff([]string{"", "t ", string(token), "T", ""}, locked(w.ranges)); diff != "" {
			t.Errorf("tokens of the range map (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"t", "ť"}, locked(w.points)); diff != "" {
			t.Errorf("tokens of the list map (-want +got):\n%s", diff)
		}
		do(t, c, catalog.UnlockOwner{Map: w.points, Token: "t"})
		if diff := cmp.Diff([]string{"", "ť"}, locked(w.points)); diff != "" {
			t.Errorf("tokens of the list map (-want +got):\n%s", diff)
		}
	})
}

// TestLockExpires lets the store's clock run ahead of the client's: it alone
// says whether a lock stands.
func TestLockExpires(t *testing.T) {
	t.Parallel()
	rg, w := memory.world(t)
	c := rg.client(catalog.Config{})
	lock := func(d time.Duration) shardway.Lock {
		return shardway.Lock{Token: "t", Owner: "ann", Expires: time.Now().Add(d)}
	}
	off := catalog.UpdateMapping{Mapping: w.a, Status: ptr(shardway.Offline)}
	refused(t, c, catalog.LockMapping{Mapping: w.a, Lock: lock(-time.Second)}, shardway.ErrInvalid, "lock expiry")
	rg.ahead.Store(int64(2 * time.Hour))
	refused(t, c, catalog.LockMapping{Mapping: w.a, Lock: lock(time.Hour)}, shardway.ErrInvalid, "lock expiry")
	do(t, c, catalog.LockMapping{Mapping: w.a, Lock: lock(3 * time.Hour)})
	refused(t, c, off, shardway.ErrMappingLocked)
	rg.ahead.Store(int64(4 * time.Hour))
	if _, err := c.Preview(t.Context(), off); err != nil {
		t.Errorf("after the expiry, Preview = %v", err)
	}
	// An expired lock counts as free: another owner's takes its place.
	again := lock(5 * time.Hour)
	again.Token = "second"
	do(t, c, catalog.LockMapping{Mapping: w.a, Lock: again})
	refused(t, c, off, shardway.ErrMappingLocked)
	rg.ahead.Store(int64(6 * time.Hour))
	do(t, c, off)
	// And the other way round: the client's clock runs ahead.
	rg.ahead.Store(int64(-3 * time.Hour))
	do(t, c, catalog.LockMapping{Mapping: w.d, Lock: lock(-time.Hour)})
	refused(t, c, catalog.UpdateMapping{Mapping: w.d, Status: ptr(shardway.Offline)}, shardway.ErrMappingLocked)
	rg.look(t).checkSettled(t)
}

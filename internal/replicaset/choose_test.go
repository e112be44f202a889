package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// LAT-07: a server that failed is chosen again only if no other suits, in the
// call and in the unit; work tries another server while there are some.
func TestOnSet(t *testing.T) {
	t.Parallel()
	down := fmt.Errorf("connection refused: %w", shardway.ErrUnavailable)
	for name, c := range map[string]struct {
		err   error
		tries int
	}{
		"refused":       {down, 3},
		"answered":      {fmt.Errorf("%w: %w", errAnswered, shardway.ErrUnavailable), 3},
		"another error": {errors.New("syntax"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop(0)
				defer s.Close()
				unit := &replicaset.Unit{}
				a := &replicaset.Attempt{Unit: unit}
				var tried []string
				r := at(1, 1, 1, "a:1", "b:1", "c:1")
				if _, err := s.Set(r); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // until all servers are known
				choose := func(set *replicaset.Set[sessions], a *replicaset.Attempt, fails error) error {
					began := time.Now()
					var choice selection.Choice
					err := set.Choose(t.Context(), a, selection.Request{Criteria: selection.Nearest(), Operation: selection.Read}, &choice)
					if err != nil {
						return err
					}
					defer choice.Release()
					tried = append(tried, choice.Server().Address)
					return set.Failed(t.Context(), a, choice.Server(), began, fails)
				}
				err := s.OnSet(t.Context(), r, func(set *replicaset.Set[sessions]) error { return choose(set, a, c.err) })
				if !errors.Is(err, c.err) || len(tried) != c.tries {
					t.Fatalf("tried %v: %v", tried, err)
				}
				slices.Sort(tried)
				if len(slices.Compact(tried)) != c.tries {
					t.Errorf("a server was tried twice: %v", tried)
				}
			})
		})
	}
}

// Without any server the error says so, and whether one that does not answer may
// be the reason; a caller with little time is no fault of a server.
func TestChoose_none(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(0)
		r := at(1, 1, 1, "a:1", "b:1")
		set, err := s.Set(r)
		if err != nil {
			t.Fatal(err)
		}
		var choice selection.Choice
		far := selection.Request{Criteria: selection.Nearest(selection.Tags{"zone": "far"}), Operation: selection.Read}
		if err := set.Choose(t.Context(), &replicaset.Attempt{}, far, &choice); !errors.Is(err, selection.ErrTimeout) || errors.Is(err, shardway.ErrUnavailable) {
			t.Errorf("servers that do not suit: %v", err)
		}
		bad := selection.Request{Criteria: selection.Nearest(selection.MaxStaleness(-time.Second)), Operation: selection.Read}
		if err := set.Choose(t.Context(), &replicaset.Attempt{}, bad, &choice); !errors.Is(err, shardway.ErrInvalid) {
			t.Errorf("bad criteria: %v", err)
		}
		server, ended := set.Now().Server(0), errors.New("too slow")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if limited, done := set.Limit(ctx, selection.Write); limited != ctx {
			t.Error("a write gets less time than its caller has")
		} else {
			done()
		}
		limited, done := set.Limit(ctx, selection.Read)
		defer done()
		if deadline, _ := limited.Deadline(); time.Until(deadline) != time.Second/2 {
			t.Errorf("a read that may try another server gets %v of 1s", time.Until(deadline))
		}
		time.Sleep(time.Second) // fake time
		began := time.Now()
		if err := set.Failed(ctx, &replicaset.Attempt{}, server, began, replicaset.Connecting(ctx, ended)); !errors.Is(err, shardway.ErrUnavailable) || !errors.Is(err, ended) {
			t.Errorf("out of time: %v", err)
		}
		synctest.Wait()
		if got := set.Now().Server(0).Role; got != topology.RoleSecondary {
			t.Errorf("the server is %v now", got)
		}
		s.Close()
		if err := set.Choose(t.Context(), &replicaset.Attempt{}, far, &choice); !errors.Is(err, replicaset.ErrRetired) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// LAT-07: what failed one attempt of a unit is avoided by the later ones, and by
// nobody else.
func TestUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(0)
		defer s.Close()
		set, err := s.Set(at(1, 1, 1, "a:1", "b:1"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		unit := &replicaset.Unit{}
		set.Broke(unit, set.Now().Server(0), time.Now(), errAnswered)
		chosen := func(a replicaset.Attempt) map[string]int {
			got := map[string]int{}
			for range 50 {
				var choice selection.Choice
				err := set.Choose(t.Context(), &a, selection.Request{Criteria: selection.Nearest(), Operation: selection.Read}, &choice)
				if err != nil {
					t.Fatal(err)
				}
				got[choice.Server().Address]++
				choice.Release()
			}
			return got
		}
		if got := chosen(replicaset.Attempt{Unit: unit}); got["a:1"] != 0 {
			t.Errorf("in the unit: %v", got)
		}
		if got := chosen(replicaset.Attempt{}); got["a:1"] == 0 || got["b:1"] == 0 {
			t.Errorf("in no unit: %v", got)
		}
		set.Broke(unit, set.Now().Server(1), time.Now(), errAnswered)
		if got := chosen(replicaset.Attempt{Unit: unit}); got["a:1"]+got["b:1"] != 50 {
			t.Errorf("where both have failed: %v", got)
		}
	})
}

// Only an error that the mapping is away is explained by an earlier attempt's
// session, and only once.
func TestMovedBefore(t *testing.T) {
	t.Parallel()
	at := func(err error) error { return &shardway.LookupError{Map: "m", Shard: "a", Err: err} }
	for name, c := range map[string]struct {
		err  error
		says bool
	}{
		"offline":       {at(shardway.ErrMappingOffline), true},
		"stale":         {at(shardway.ErrStale), true},
		"unavailable":   {at(shardway.ErrUnavailable), false},
		"of nowhere":    {shardway.ErrStale, false},
		"said already":  {at(&shardway.MovedError{Map: "m", Shard: "b", Err: errAnswered}), false},
		"another error": {errAnswered, false},
	} {
		got := replicaset.MovedBefore(c.err)
		moved, says := got.(*shardway.MovedError)                              //nolint:errorlint // itself
		if says != c.says || !errors.Is(got, c.err) || !says && got != c.err { //nolint:errorlint // itself
			t.Errorf("%s: %v", name, got)
		}
		if says && (moved.Map != "m" || moved.Shard != "a" || !moved.SafeToRetry() || !errors.Is(got, shardway.ErrStale)) {
			t.Errorf("%s: %#v", name, moved)
		}
	}
}

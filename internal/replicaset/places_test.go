package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

// sessions is a pool that keeps books of what happens to it.
type sessions struct {
	place                     replicaset.Place
	suspect, dropped, retired atomic.Int32
}

// shop has the pools of places, and the servers behind them.
type shop struct {
	*replicaset.Places[sessions]
	fails   error        // of opening
	probers atomic.Int32 // that are open

	mu      sync.Mutex // guards the fields below
	opened  []*sessions
	primary string
}

func newShop(idle time.Duration) *shop {
	s := &shop{}
	s.Places = replicaset.NewPlaces(replicaset.PlacesConfig[sessions]{
		Open:     s.open,
		Prober:   func(shardway.Location) (topology.Prober, error) { s.probers.Add(1); return shopProber{s}, nil },
		Suspect:  func(p *sessions) { p.suspect.Add(1) },
		Demoted:  func(p *sessions) { p.dropped.Add(1) },
		Retire:   func(p *sessions) { p.retired.Add(1) },
		Answered: func(_ string, err error) bool { return errors.Is(err, errAnswered) },
		IdleTime: idle, SelectionTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	return s
}

var errAnswered = errors.New("said the server")

func (s *shop) open(at replicaset.Place) (*sessions, error) {
	if s.fails != nil {
		return nil, s.fails
	}
	p := &sessions{place: at}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, p)
	return p, nil
}

// pools returns the pools opened so far.
func (s *shop) pools() []*sessions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.opened)
}

func (s *shop) promote(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.primary = address
}

type shopProber struct{ shop *shop }

func (p shopProber) Probe(_ context.Context, s topology.Server) (topology.Observation, error) {
	p.shop.mu.Lock()
	defer p.shop.mu.Unlock()
	if s.Address == p.shop.primary {
		return topology.Observation{Role: topology.RolePrimary}, nil
	}
	return topology.Observation{Role: topology.RoleSecondary}, nil
}

func (p shopProber) Close() error { p.shop.probers.Add(-1); return nil }

// at is the route to a shard as it was at a generation; the location changes
// with the version.
func at(id shardway.ShardID, version, generation int64, addresses ...string) *shardway.Route {
	return &shardway.Route{Generation: generation, Shard: &shardway.Shard{ID: id, Name: fmt.Sprint("s", id), Version: version, Location: location(addresses...)}}
}

// A pool is opened once, serves all shards of its database, and is
// retired when the last of them is elsewhere; a route from before the move does
// not bring it back.
func TestPool(t *testing.T) {
	t.Parallel()
	s := newShop(0)
	get := func(r *shardway.Route) *sessions {
		t.Helper()
		p, err := s.Pool(r)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	old := get(at(1, 1, 1, "a:1"))
	if get(at(1, 1, 2, "a:1")) != old || get(at(2, 1, 1, "a:1")) != old || len(s.pools()) != 1 {
		t.Errorf("%d pools for one database", len(s.pools()))
	}
	moved := get(at(1, 2, 5, "b:1"))
	if moved.place.Address != "b:1" || old.retired.Load() != 0 {
		t.Errorf("a pool to %s; the one that another shard needs was retired: %d", moved.place.Address, old.retired.Load())
	}
	if get(at(1, 1, 4, "a:1")) != moved {
		t.Error("a route of an older generation leads back")
	}
	get(at(2, 2, 5, "b:1"))
	if old.retired.Load() != 1 || len(s.pools()) != 2 {
		t.Errorf("the pool that nobody needs was retired %d times, %d were opened", old.retired.Load(), len(s.pools()))
	}
	var shards []string
	s.Each(func(shard string, p *sessions) { shards = append(shards, shard+" on "+p.place.Address) })
	if len(shards) != 1 || shards[0] != "s1 on b:1" && shards[0] != "s2 on b:1" {
		t.Errorf("pools %v", shards)
	}
	s.fails = errors.New("no such engine")
	if _, err := s.Pool(at(3, 1, 1, "c:1")); !errors.Is(err, s.fails) {
		t.Errorf("opening failed: %v", err)
	}
	s.Close()
	s.Close()
	if _, err := s.Pool(at(1, 2, 5, "b:1")); !errors.Is(err, replicaset.ErrClosed) || !errors.Is(err, shardway.ErrUnavailable) || moved.retired.Load() != 1 {
		t.Errorf("after Close: %v, retired %d times", err, moved.retired.Load())
	}
}

// asking is a log handler that uses the places that log through it.
type asking struct {
	slog.Handler

	asks func()
}

func (asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(context.Context, slog.Record) error {
	a.asks()
	return nil
}

// A log handler may look at the places, or write to a database by them: nothing
// is locked meanwhile, else this waits for ever.
func TestPool_log(t *testing.T) {
	t.Parallel()
	var pl *replicaset.Places[sessions]
	asked := 0
	pl = replicaset.NewPlaces(replicaset.PlacesConfig[sessions]{
		Open:   func(at replicaset.Place) (*sessions, error) { return &sessions{place: at}, nil },
		Retire: func(p *sessions) { p.retired.Add(1) },
		Logger: slog.New(asking{slog.DiscardHandler, func() { pl.Each(func(string, *sessions) { asked++ }) }}),
	})
	defer pl.Close()
	for i, address := range []string{"a:1", "b:1"} {
		if _, err := pl.Pool(at(1, int64(i+1), int64(i+1), address)); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("the log saw %d pools, want the one that is left", asked)
	}
}

// Work goes to the next pool when its own was retired, and not for ever.
func TestOnPool(t *testing.T) {
	t.Parallel()
	s := newShop(0)
	defer s.Close()
	calls := 0
	err := s.OnPool(t.Context(), at(1, 1, 1, "a:1"), func(*sessions) error {
		if calls++; calls < 3 {
			return fmt.Errorf("wrapped: %w", replicaset.ErrRetired)
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	calls = 0
	err = s.OnPool(t.Context(), at(1, 1, 1, "a:1"), func(*sessions) error { calls++; return replicaset.ErrRetired })
	if !errors.Is(err, shardway.ErrUnavailable) || calls < 2 {
		t.Errorf("always retired: %d calls, %v", calls, err)
	}
	mine := errors.New("mine")
	calls = 0
	if err = s.OnPool(t.Context(), at(1, 1, 1, "a:1"), func(*sessions) error { calls++; return mine }); err != mine || calls != 1 { //nolint:errorlint // as it is
		t.Errorf("an error of the work: %d calls, %v", calls, err)
	}
}

// A set ends when nobody has used it for long, its prober with it; the next use
// begins a new one, and a move ends it.
func TestSetEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(time.Minute)
		s.promote("a:1")
		use := func(r *shardway.Route) (server string) {
			t.Helper()
			err := s.OnSet(t.Context(), r, func(set *replicaset.Set[sessions]) error {
				var choice selection.Choice
				if err := set.Choose(t.Context(), &replicaset.Attempt{}, selection.Request{}, &choice); err != nil {
					return err
				}
				defer choice.Release()
				server = choice.Server().Address
				_, err := set.Pool(choice.Set().Position(server), choice.Server().Demotions)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return server
		}
		r := at(1, 1, 1, "a:1", "b:1")
		if got := use(r); got != "a:1" {
			t.Errorf("the primary is %s", got)
		}
		for range 6 {
			time.Sleep(20 * time.Second) // fake time
			use(r)
		}
		synctest.Wait()
		if s.probers.Load() != 1 || len(s.pools()) != 1 {
			t.Errorf("in use: %d probers, %d pools", s.probers.Load(), len(s.pools()))
		}
		time.Sleep(3 * time.Minute) // fake time
		synctest.Wait()
		if s.probers.Load() != 0 || s.pools()[0].retired.Load() != 0 {
			t.Errorf("idle: %d probers, the pool was retired %d times", s.probers.Load(), s.pools()[0].retired.Load())
		}
		use(r)
		s.promote("c:1")
		if got := use(at(1, 2, 2, "c:1", "d:1")); got != "c:1" {
			t.Errorf("after the move the primary is %s", got)
		}
		synctest.Wait()
		if s.probers.Load() != 1 || s.pools()[0].retired.Load() != 1 {
			t.Errorf("moved: %d probers, the old pool was retired %d times", s.probers.Load(), s.pools()[0].retired.Load())
		}
		s.Close()
		if s.probers.Load() != 0 {
			t.Error("a prober is open after Close")
		}
	})
}

// ROLE-01: the sessions to a server that has stopped being primary are dropped,
// once, by those who watch it or by the next who chooses it.
func TestDemotedServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(0)
		defer s.Close()
		s.promote("a:1")
		set, err := s.Set(at(1, 1, 1, "a:1", "b:1"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p, err := set.Pool(0, set.Now().Server(0).Demotions)
		if err != nil || p.suspect.Load() != 0 {
			t.Fatalf("suspect %d times: %v", p.suspect.Load(), err)
		}
		s.promote("b:1")
		set.Check()
		synctest.Wait()
		time.Sleep(30 * time.Second) // fake time
		synctest.Wait()
		if _, err := set.Pool(0, set.Now().Server(0).Demotions); err != nil || p.suspect.Load() != 1 || p.dropped.Load() != 1 {
			t.Errorf("sessions were suspect %d times and dropped %d times, want once: %v", p.suspect.Load(), p.dropped.Load(), err)
		}
		if _, err := set.Pool(0, 7); err != nil || p.suspect.Load() != 2 {
			t.Errorf("chosen from a newer description: suspect %d times, %v", p.suspect.Load(), err)
		}
	})
}

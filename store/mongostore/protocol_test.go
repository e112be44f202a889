package mongostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mongomap"
	"github.com/shardway/shardway/store"
)

// scene is a local map in one database and the programs that change it, each
// with a client of its own.
type scene struct {
	*testing.T

	uri, name string
	m         shardway.ShardMap
	shard     shardway.Shard
	have      []shardway.Mapping // [0, 10), [10, 20), …
	seq       int64
	emulated  bool
}

const globalID = "the global store"

func newScene(t *testing.T, d deployment) *scene {
	t.Helper()
	s := &scene{T: t, m: shardway.ShardMap{ID: 1, Name: "m", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64}}
	s.uri, s.name = d.uri(t)
	s.emulated = d.name != "ferretdb"
	s.shard = shardway.Shard{ID: 2, MapID: 1, Name: "s", Version: 3, Location: shardway.Location{Engine: "mongodb", Servers: []shardway.Server{{Address: "h:1"}}}}
	l := s.program()
	if err := l.Deploy(t.Context(), globalID); err != nil {
		t.Fatal(err)
	}
	for n := range int64(4) {
		s.have = append(s.have, s.mapping(10*n, 10*n+10))
	}
	s.step(l, s.operation(store.Step{Shard: s.shard, After: &s.shard, Add: s.have}), store.StepApplied)
	return s
}

func (s *scene) program() *Local { return NewLocal(connect(s.T, s.uri, s.name), nil) }

func (s *scene) mapping(low, high int64) shardway.Mapping {
	return shardway.Mapping{
		ID: shardway.MappingID(store.NewID()), MapID: s.m.ID, ShardID: s.shard.ID, Status: shardway.Online,
		Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)},
	}
}

// operation is a new operation that wants its step applied.
func (s *scene) operation(step store.Step) store.LocalStep {
	s.seq++
	step.Shard = s.shard
	return store.LocalStep{Operation: store.OperationID(store.NewID()), Seq: s.seq, Epoch: 1, Map: s.m, Step: step, Want: store.StepApplied}
}

func (s *scene) step(l *Local, step store.LocalStep, want store.StepState) {
	s.Helper()
	if got, err := l.Step(s.Context(), step); err != nil || got != want {
		s.Fatalf("Step wanting %d in epoch %d = %d, %v, want %d", step.Want, step.Epoch, got, err, want)
	}
}

// holds compares the map with what it should be.
func (s *scene) holds(what string, l *Local, want ...shardway.Mapping) {
	s.Helper()
	maps, err := l.Read(s.Context(), s.m.ID)
	if err != nil || len(maps) != 1 {
		s.Fatalf("%s: Read = %v, %v", what, maps, err)
	}
	if got := maps[0].Mappings; !slices.Equal(want, got) {
		s.Errorf("%s: the map holds\n%v, want\n%v", what, got, want)
	}
}

// clean demands that no row has a mark. The emulator does not look into arrays
// for ranges, as MongoDB and FerretDB do, so that nothing is swept there.
func (s *scene) clean(what string, l *Local) {
	s.Helper()
	if s.emulated {
		return
	}
	rows, err := l.rows(s.Context(), bson.D{})
	if err != nil {
		s.Fatal(err)
	}
	for _, r := range rows {
		if !r.Clean() {
			s.Errorf("%s: row %s is left with marks %q and %q", what, r.ID, r.Added, r.Removed)
		}
	}
}

// Many programs change one map at once: each of its own mappings, so that all
// succeed, and half of the changes are taken back.
func TestManyPrograms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		s := newScene(t, d)
		final := make([]shardway.Mapping, len(s.have))
		var all sync.WaitGroup
		for n, mine := range s.have {
			l := s.program()
			all.Go(func() {
				for turn := range 8 {
					next := mine
					next.ID = shardway.MappingID(store.NewID())
					op := store.LocalStep{
						Operation: store.OperationID(store.NewID()), Seq: int64(100*(n+1) + turn), Epoch: 1, Map: s.m, Want: store.StepApplied,
						Step: store.Step{Shard: s.shard, Remove: []shardway.Mapping{mine}, Add: []shardway.Mapping{next}},
					}
					if got, err := l.Step(t.Context(), op); err != nil || got != store.StepApplied {
						t.Errorf("applying = %d, %v", got, err)
						return
					}
					if turn%2 == 0 {
						mine = next
						continue
					}
					op.Want, op.Epoch = store.StepUndone, 2
					if got, err := l.Step(t.Context(), op); err != nil || got != store.StepUndone {
						t.Errorf("undoing = %d, %v", got, err)
						return
					}
				}
				final[n] = mine
			})
		}
		all.Wait()
		l := s.program()
		s.holds("after all changes", l, final...)
		s.clean("after all changes", l)
	})
}

// Of programs that remove the same mapping at once, one succeeds.
func TestSameRowAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d deployment) {
		s := newScene(t, d)
		const programs = 4
		results := make([]error, programs)
		operations := make([]store.LocalStep, programs)
		var all sync.WaitGroup
		for n := range programs {
			operations[n] = s.operation(store.Step{Remove: s.have[1:2], Add: []shardway.Mapping{s.mapping(10, 20)}})
			l := s.program()
			all.Go(func() { _, results[n] = l.Step(t.Context(), operations[n]) })
		}
		all.Wait()
		want, applied := s.have, 0
		for n, err := range results {
			switch {
			case err == nil:
				applied++
				want = []shardway.Mapping{s.have[0], operations[n].Step.Add[0], s.have[2], s.have[3]}
			case !errors.Is(err, store.ErrMapsDiffer):
				t.Errorf("Step = %v, want success or ErrMapsDiffer", err)
			}
		}
		if applied != 1 {
			t.Errorf("%d of %d steps were applied", applied, programs)
		}
		s.holds("after all steps", s.program(), want...)
	})
}

// I6: whatever an executor that lost its operation still writes counts for
// nothing: marks and rows before and after the end, and the commit itself.
func TestLateExecutor(t *testing.T) {
	t.Parallel()
	for _, end := range []store.StepState{store.StepSeen, store.StepApplied, store.StepUndone} {
		t.Run(fmt.Sprint("taken over, ", end), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, d deployment) {
				s := newScene(t, d)
				op := s.operation(store.Step{Remove: s.have[1:2], Add: []shardway.Mapping{s.mapping(10, 15), s.mapping(15, 20)}})
				late := &attempt{Local: s.program(), s: op, id: mongomap.NewAttempt(int64(op.Operation), op.Seq, int32(op.Want))}
				before, err := late.settled(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if ready, err := late.prepare(t.Context(), before.Last.Attempt); ready || err != nil {
					t.Fatalf("prepare = %v, %v", ready, err)
				}
				second := s.program()
				taken := op
				taken.Epoch, taken.Want = 2, end
				s.step(second, taken, end)
				want := s.have
				if end == store.StepApplied {
					want = []shardway.Mapping{s.have[0], op.Step.Add[0], op.Step.Add[1], s.have[2], s.have[3]}
				}
				s.holds("after the end", second, want...)
				if _, err := late.prepare(t.Context(), before.Last.Attempt); err != nil && !errors.Is(err, store.ErrMapsDiffer) {
					t.Errorf("a late prepare = %v", err)
				}
				if done, err := late.commit(t.Context(), before, late.id, store.StepApplied); done || err != nil {
					t.Errorf("a late commit = %v, %v", done, err)
				}
				s.holds("after a late commit", second, want...)
				if _, err := late.Step(t.Context(), op); !errors.Is(err, store.ErrLostLease) {
					t.Errorf("a late step = %v", err)
				}
				s.holds("after a late step", second, want...)
				other := s.operation(store.Step{Remove: s.have[3:], Add: []shardway.Mapping{s.mapping(30, 40)}})
				s.step(second, other, store.StepApplied)
				s.holds("after another operation", second, append(want[:len(want)-1:len(want)-1], other.Step.Add[0])...)
			})
		})
	}
}

// mortal is a program's network that can end all at once.
type mortal struct {
	net.Dialer

	mu    sync.Mutex // guards the fields below
	dead  bool
	conns []net.Conn
}

func (m *mortal) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := m.Dialer.DialContext(ctx, network, address)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.dead {
		_ = c.Close()
		err = errors.New("the program is dead")
	}
	if err == nil {
		m.conns = append(m.conns, c)
	}
	return c, err
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close()
	}
}

// TestCrashAnywhere lets the program die after each command of a step. Whoever
// comes next finds the step applied or not, ends it either way, and nothing of
// the dead program is left.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	for _, d := range deployments[:3] {
		for _, want := range []store.StepState{store.StepApplied, store.StepUndone} {
			t.Run(fmt.Sprint(d.name, " ", want), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, d)
				deaths := 0
				for survived := false; !survived; deaths++ {
					survived = s.crash(deaths+1, want)
				}
				if deaths < 8 {
					t.Errorf("the step has %d commands", deaths)
				}
			})
		}
	}
}

// crash makes a step, after whose n-th command the program dies, and ends it as
// wanted. It reports whether the step had fewer commands.
func (s *scene) crash(n int, want store.StepState) (survived bool) {
	s.Helper()
	op := s.operation(store.Step{Remove: s.have[1:2], Add: []shardway.Mapping{s.mapping(10, 20)}})
	network := &mortal{}
	commands := 0
	monitor := &event.CommandMonitor{Succeeded: func(context.Context, *event.CommandSucceededEvent) {
		if commands++; commands == n {
			network.die()
		}
	}}
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri).SetDialer(network).SetMonitor(monitor).
		SetServerSelectionTimeout(400 * time.Millisecond).SetHeartbeatInterval(500 * time.Millisecond))
	if err != nil {
		s.Fatal(err)
	}
	_, err = NewLocal(client.Database(s.name), nil).Step(s.Context(), op)
	survived = commands < n
	network.die()
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	_ = client.Disconnect(ended)
	if survived != (err == nil) && commands < n {
		s.Errorf("a step that nobody disturbed = %v", err)
	}
	second := s.program()
	op.Epoch, op.Want = 2, store.StepSeen
	found, err := second.Step(s.Context(), op)
	if err != nil {
		s.Fatalf("after command %d: looking = %v", n, err)
	}
	before := []shardway.Mapping{s.have[0], s.have[1], s.have[2], s.have[3]}
	after := []shardway.Mapping{s.have[0], op.Step.Add[0], s.have[2], s.have[3]}
	if found == store.StepApplied {
		s.holds(fmt.Sprintf("applied, dead after command %d", n), second, after...)
	} else {
		s.holds(fmt.Sprintf("not applied, dead after command %d", n), second, before...)
	}
	op.Want = want
	s.step(second, op, want)
	if want == store.StepApplied {
		s.have = after
	}
	s.holds(fmt.Sprintf("ended after command %d", n), second, s.have...)
	s.clean(fmt.Sprintf("ended after command %d", n), second)
	return survived
}

package sqlshard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology"
)

// fakeSet is a replica set in the test alone: what its servers say of
// themselves is set by the test, and they accept writes as they say.
type fakeSet struct {
	*fakeEngine
	mu       sync.Mutex // guards the fields below
	servers  map[string]fakeServer
	accepted map[string]int // writes by address
	probing  int            // probers open
	probers  int            // that were ever opened
	hang     bool           // probes never answer
	probes   int
}

type fakeServer struct {
	role topology.Role
	term uint64
	down bool
}

// readOnlyError is what SQLite says of a file that cannot be written.
type readOnlyError struct{}

func (readOnlyError) Error() string { return "attempt to write a readonly database" }
func (readOnlyError) Code() int     { return 8 }

var errDown = errors.New("connection refused")

// newFakeSet opens a DB for a shard on some servers, the first of which is the
// primary of term 1.
func newFakeSet(t testing.TB, cfg sqlshard.Config, addresses ...string) (db *sqlshard.DB[int64], f *fakeSet, s *fakeSource, closeAll func()) {
	t.Helper()
	f = &fakeSet{fakeEngine: &fakeEngine{}, servers: map[string]fakeServer{}, accepted: map[string]int{}}
	for i, a := range addresses {
		f.servers[a] = fakeServer{role: topology.RoleSecondary, term: 1}
		if i == 0 {
			f.servers[a] = fakeServer{role: topology.RolePrimary, term: 1}
		}
	}
	f.connect = func(_ context.Context, address string) error {
		if f.server(address).down {
			return errDown
		}
		return nil
	}
	f.exec = f.write
	s = &fakeSource{shards: 1}
	s.serve(addresses...)
	db, closeEngine := openFakeEngine(t, f, f.fakeEngine, s, cfg)
	return db, f, s, func() {
		closeEngine()
		if f.probing != 0 {
			t.Errorf("%d probers are open after Close", f.probing)
		}
	}
}

func (f *fakeSet) server(address string) fakeServer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servers[address]
}

func (f *fakeSet) become(address string, s fakeServer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[address] = s
}

func (f *fakeSet) write(address string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch s := f.servers[address]; {
	case s.down:
		return errDown
	case s.role != topology.RolePrimary:
		return readOnlyError{}
	}
	f.accepted[address]++
	return nil
}

func (f *fakeSet) writesOn(address string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted[address]
}

func (f *fakeSet) Prober(string, shardway.Credentials) (topology.Prober, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing++
	f.probers++
	return fakeProber{f}, nil
}

// counted returns how many probers are and were open, and the probes made.
func (f *fakeSet) counted() (open, all, probes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probing, f.probers, f.probes
}

type fakeProber struct{ f *fakeSet }

func (p fakeProber) Close() error {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.probing--
	return nil
}

func (p fakeProber) Probe(ctx context.Context, server topology.Server) (topology.Observation, error) {
	p.f.mu.Lock()
	p.f.probes++
	hang := p.f.hang
	p.f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return topology.Observation{}, ctx.Err()
	}
	s := p.f.server(server.Address)
	if s.down {
		return topology.Observation{}, errDown
	}
	return topology.Observation{
		Role: s.role, Term: topology.Term{Major: s.term}, RTT: topology.Measured(time.Millisecond), Staleness: topology.Measured(0),
	}, nil
}

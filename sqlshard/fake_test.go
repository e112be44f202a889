package sqlshard_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlshard"
)

// fakeEngine is an engine whose databases exist in the test alone, for what no
// real server does on demand. It passes for SQLite.
type fakeEngine struct {
	mu      sync.Mutex // guards the fields below
	open    int        // sessions open or being opened
	most    int        // that were, at any moment
	opened  int
	connect func(ctx context.Context, address string) error // nil works at once
	ask     func() (status int64, found bool, err error)    // answers validation; nil says online
	lacks   string                                          // address of the server that does not have the mapping
	reset   func() error                                    // of an idle session
	exec    func(address string) error                      // of a statement without rows; nil takes it
}

func (f *fakeEngine) Name() string { return "sqlite" }

func (f *fakeEngine) Normalize(l shardway.Location) (shardway.Location, error) { return l, nil }

func (f *fakeEngine) Connector(address, _ string, _ shardway.Credentials) (driver.Connector, error) {
	return fakeConnector{f, address}, nil
}

// set changes the engine's behaviour.
func (f *fakeEngine) set(change func(f *fakeEngine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// counts returns how many sessions are open and have been opened.
func (f *fakeEngine) counts() (open, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.opened
}

type fakeConnector struct {
	f       *fakeEngine
	address string
}

func (c fakeConnector) Driver() driver.Driver { return nil }

func (c fakeConnector) Connect(ctx context.Context) (driver.Conn, error) {
	var connect func(context.Context, string) error
	c.f.set(func(f *fakeEngine) {
		f.open++
		f.most = max(f.most, f.open)
		connect = f.connect
	})
	if connect != nil {
		if err := connect(ctx, c.address); err != nil {
			c.f.set(func(f *fakeEngine) { f.open-- })
			return nil, err
		}
	}
	c.f.set(func(f *fakeEngine) { f.opened++ })
	return &fakeConn{f: c.f, address: c.address}, nil
}

type fakeConn struct {
	f       *fakeEngine
	address string
	closed  bool
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not in this test") }

func (c *fakeConn) Begin() (driver.Tx, error) { return nil, errors.New("not in this test") }

func (c *fakeConn) Close() error {
	if c.closed {
		return errors.New("closed twice")
	}
	c.closed = true
	c.f.set(func(f *fakeEngine) { f.open-- })
	return nil
}

func (c *fakeConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	var exec func(string) error
	c.f.set(func(f *fakeEngine) { exec = f.exec })
	if exec == nil {
		return driver.ResultNoRows, nil
	}
	return driver.ResultNoRows, exec(c.address)
}

func (c *fakeConn) ResetSession(context.Context) error {
	var reset func() error
	c.f.set(func(f *fakeEngine) { reset = f.reset })
	if reset != nil {
		return reset()
	}
	return nil
}

func (c *fakeConn) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	var ask func() (int64, bool, error)
	lacks := false
	c.f.set(func(f *fakeEngine) { ask, lacks = f.ask, f.lacks == c.address })
	if lacks {
		return &fakeRows{}, nil
	}
	if ask == nil || !strings.Contains(query, "local_mappings") {
		return &fakeRows{values: []driver.Value{int64(1)}}, nil
	}
	status, found, err := ask()
	if err != nil {
		return nil, err
	}
	if !found {
		return &fakeRows{}, nil
	}
	return &fakeRows{values: []driver.Value{status}}, nil
}

type fakeRows struct{ values []driver.Value }

func (r *fakeRows) Columns() []string { return []string{"status"} }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if r.values == nil {
		return io.EOF
	}
	copy(dest, r.values)
	r.values = nil
	return nil
}

// fakeSource is a map of int64 ranges of ten keys each, one after the other
// on shard 0, 1, 2…
type fakeSource struct {
	shards  int
	mu      sync.Mutex // guards the fields below
	lookups int
	servers []shardway.Server // of every shard; nil is one
	version int64             // of every shard; 0 is 1
}

// serve has the shards on other servers from now on.
func (s *fakeSource) serve(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.servers = nil
	for _, a := range addresses {
		s.servers = append(s.servers, shardway.Server{Address: a})
	}
}

func (s *fakeSource) ShardMap(context.Context, string) (shardway.ShardMap, error) {
	return shardway.ShardMap{ID: 1, Name: "customers", Kind: shardway.RangeMap, KeyKind: shardway.KindInt64, Generation: 1}, nil
}

func (s *fakeSource) shard(i int64) shardway.Shard {
	name := "s" + string(rune('a'+i))
	servers := s.servers
	if servers == nil {
		servers = []shardway.Server{{Address: "server"}}
	}
	return shardway.Shard{ID: shardway.ShardID(i + 1), MapID: 1, Name: name, Version: max(s.version, 1), Location: shardway.Location{
		Engine: "sqlite", Database: name, Servers: servers,
	}}
}

func (s *fakeSource) Lookup(_ context.Context, _ shardway.ShardMap, key shardway.Key) (shardway.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	i := int64(key.Uint64()^1<<63) / 10
	if i < 0 || i >= int64(s.shards) {
		return shardway.Answer{Generation: max(s.version, 1)}, nil
	}
	return shardway.Answer{Found: true, Generation: max(s.version, 1), Shard: s.shard(i), Mapping: shardway.Mapping{
		ID: shardway.MappingID(i + 1), MapID: 1, ShardID: shardway.ShardID(i + 1), Status: shardway.Online,
		Range: shardway.Range{Low: shardway.Int64Key(i * 10), High: shardway.Int64Key(i*10 + 10)},
	}}, nil
}

func (s *fakeSource) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

func (s *fakeSource) Load(context.Context, shardway.ShardMap, shardway.Range, func(shardway.MappingRow) error) (shardway.MapState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := shardway.MapState{Generation: 1}
	for i := range int64(s.shards) {
		state.Shards = append(state.Shards, s.shard(i))
	}
	return state, nil
}

func (s *fakeSource) Changes(context.Context, shardway.ShardMap, int64) (shardway.Changes, error) {
	return shardway.Changes{Generation: 1, Complete: true}, nil
}

// openFake returns a DB over a fake engine and a fake store with some shards,
// all on one server. Both are closed when the test ends; in a synctest bubble
// the caller does that by the function returned.
func openFake(t *testing.T, shards int, cfg sqlshard.Config) (db *sqlshard.DB[int64], f *fakeEngine, s *fakeSource, closeAll func()) {
	t.Helper()
	f, s = &fakeEngine{}, &fakeSource{shards: shards}
	db, closeAll = openFakeEngine(t, f, f, s, cfg)
	return db, f, s, closeAll
}

// openFakeEngine is openFake for an engine that is or wraps f.
func openFakeEngine(t testing.TB, e shardway.Engine, f *fakeEngine, s *fakeSource, cfg sqlshard.Config) (db *sqlshard.DB[int64], closeAll func()) {
	t.Helper()
	router, err := shardway.Open(t.Context(), s, shardway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := shardway.OpenRangeShardMap[int64](t.Context(), router, "customers")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engines = []shardway.Engine{e}
	db, err = sqlshard.New(m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = router.Close()
		if open, _ := f.counts(); open != 0 {
			t.Errorf("%d sessions are open after Close", open)
		}
	}
}

package sqlstore_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/internal/faultconn"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// sqlError is an error of a server, as Microsoft's driver has it.
type sqlError int32

func (e sqlError) Error() string         { return fmt.Sprintf("mssql: error %d", int32(e)) }
func (e sqlError) SQLErrorNumber() int32 { return int32(e) }

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// TestAttempts places faults at every point of an Update: what is run again,
// how often, and what becomes of the error. RTRY-01: a commit is never run
// again when its outcome is unknown.
func TestAttempts(t *testing.T) {
	t.Parallel()
	const deadlock, denied, taken = sqlError(1205), sqlError(229), sqlError(2627)
	for name, c := range map[string]struct {
		at       string
		errs     []error
		want     error // nil: success
		not      error
		attempts int // calls of fn
		commits  int
	}{
		"no fault":                          {"COMMIT", nil, nil, nil, 1, 1},
		"deadlock at begin":                 {"BEGIN", []error{deadlock}, nil, nil, 1, 1},
		"deadlock at a write":               {"INSERT", []error{deadlock, deadlock}, nil, nil, 3, 1},
		"deadlock at the commit":            {"COMMIT", []error{deadlock}, nil, nil, 2, 2},
		"deadlocks without end":             {"INSERT", repeated(deadlock, 1000), deadlock, nil, 25, 0},
		"connection lost at a write":        {"INSERT", []error{io.ErrUnexpectedEOF, driver.ErrBadConn}, nil, nil, 3, 1},
		"connections lost at a write":       {"INSERT", repeated(io.ErrUnexpectedEOF, 10), shardway.ErrUnavailable, store.ErrUnknownOutcome, 3, 0},
		"connection lost at the commit":     {"COMMIT", []error{io.ErrUnexpectedEOF}, store.ErrUnknownOutcome, nil, 1, 1},
		"bad connection at the commit":      {"COMMIT", []error{driver.ErrBadConn}, store.ErrUnknownOutcome, nil, 1, 1},
		"the server refuses at a write":     {"INSERT", []error{denied}, shardway.ErrUnavailable, store.ErrUnknownOutcome, 1, 0},
		"a key is taken":                    {"INSERT", []error{taken}, shardway.ErrExists, shardway.ErrUnavailable, 1, 0},
		"another error at a write":          {"INSERT", []error{sqlError(8134)}, sqlError(8134), shardway.ErrUnavailable, 1, 0},
		"another error at the commit":       {"COMMIT", []error{sqlError(8134)}, store.ErrUnknownOutcome, nil, 1, 1},
		"no tables":                         {"SELECT DATEDIFF", []error{sqlError(208)}, shardway.ErrNoStore, nil, 0, 0},
		"a rollback that fails is no error": {"IF @@TRANCOUNT", []error{io.EOF}, nil, nil, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // the pauses take no time
				s := &script{fail: map[string][]error{c.at: c.errs}}
				g, err := sqlstore.NewGlobal(s.open(t), "sqlserver")
				if err != nil {
					t.Fatal(err)
				}
				attempts := 0
				m := shardway.ShardMap{ID: 1, Name: "m", Kind: 1, KeyKind: 1}
				err = g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) {
					attempts++
					return store.Delta{AddMap: &m}, nil
				})
				if !errors.Is(err, c.want) || c.not != nil && errors.Is(err, c.not) {
					t.Errorf("Update = %v, want %v and not %v", err, c.want, c.not)
				}
				if attempts != c.attempts || s.count("COMMIT") != c.commits {
					t.Errorf("%d attempts and %d commits, want %d and %d", attempts, s.count("COMMIT"), c.attempts, c.commits)
				}
			})
		})
	}
}

// A context that ends before the commit stops it; nothing is committed.
func TestCancelledBeforeCommit(t *testing.T) {
	t.Parallel()
	s := &script{}
	g, err := sqlstore.NewGlobal(s.open(t), "sqlserver")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = g.Update(ctx, 0, func(store.Reader, time.Time) (store.Delta, error) {
		cancel()
		return store.Delta{}, nil
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknownOutcome) || s.count("COMMIT") != 0 {
		t.Errorf("Update = %v with %d commits", err, s.count("COMMIT"))
	}
	if s.count("IF @@TRANCOUNT > 0 ROLLBACK") != 1 {
		t.Errorf("the transaction was not taken back: %q", s.statements)
	}
}

// A panic of the caller's function leaves no transaction on a pooled session.
func TestPanicRollsBack(t *testing.T) {
	t.Parallel()
	s := &script{}
	g, err := sqlstore.NewGlobal(s.open(t), "sqlserver")
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) { panic("bug") })
	}()
	if s.count("IF @@TRANCOUNT > 0 ROLLBACK") != 1 || s.count("COMMIT") != 0 {
		t.Errorf("after a panic: %q", s.statements)
	}
}

// through is p behind a proxy that breaks connections.
func through(t *testing.T, p place) (place, *faultconn.Proxy) {
	proxy := faultconn.New(t, p.location.Servers[0].Address)
	p.location.Servers = []shardway.Server{{Address: proxy.Addr()}}
	return p, proxy
}

// I5: a connection that breaks before the commit changes nothing and is an
// error like any other; one that breaks at the commit says so.
func TestConnectionBreaks(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, e dbtest.Engine) {
		direct := placeOf(t, e.NewDatabase(t))
		direct.deployed(t)
		behind, proxy := through(t, direct)
		g := behind.global(t)
		update := func(d store.Delta) (calls int, err error) {
			err = g.Update(t.Context(), 0, func(store.Reader, time.Time) (store.Delta, error) {
				calls++
				proxy.Cut()
				return d, nil
			})
			proxy.Restore()
			return calls, err
		}
		m := shardway.ShardMap{ID: 1, Name: "m", Kind: 1, KeyKind: 1}
		if calls, err := update(store.Delta{AddMap: &m}); !errors.Is(err, shardway.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) || calls != 1 {
			t.Errorf("a connection cut before the write: %v after %d calls", err, calls)
		}
		if calls, err := update(store.Delta{}); !errors.Is(err, store.ErrUnknownOutcome) || calls != 1 {
			t.Errorf("a connection cut before the commit: %v after %d calls", err, calls)
		}
		if _, err := direct.global(t).ShardMap(t.Context(), "m"); !errors.Is(err, shardway.ErrMapNotFound) {
			t.Errorf("a map was added: %v", err)
		}
		// Sessions that died in the pool are replaced within one call.
		if _, err := g.Describe(t.Context()); err != nil {
			t.Errorf("Describe after the server is back = %v", err)
		}
		proxy.Cut()
		proxy.Restore()
		if _, err := g.Lookup(t.Context(), m, shardway.Int32Key(1)); !errors.Is(err, shardway.ErrMapNotFound) {
			t.Errorf("Lookup on a dead session = %v", err)
		}
	})
}

// UPG-03: statements that were prepared before the tables changed are prepared
// anew within one call.
func TestTablesChange(t *testing.T) {
	t.Parallel()
	db := dbtest.EnginePostgres.NewDatabase(t)
	p := placeOf(t, db)
	g := p.deployed(t)
	m, mapping := changeOnce(t, g, deployedLocal(t, p))
	ask := func() {
		t.Helper()
		if found, err := g.ShardMap(t.Context(), m.Name); err != nil || found.ID != m.ID {
			t.Errorf("ShardMap = %+v, %v", found, err)
		}
		answer, err := g.Lookup(t.Context(), m, shardway.Int64Key(1))
		if err != nil || answer.Mapping.ID != mapping.ID {
			t.Errorf("Lookup = %+v, %v", answer, err)
		}
		if err := tryAddMap(t, g); err != nil {
			t.Errorf("Update = %v", err)
		}
	}
	ask()
	pool := db.Open(t)
	mustExec(t, pool, `ALTER TABLE shardway.shard_maps ALTER COLUMN name TYPE varchar(300) COLLATE "C", ALTER COLUMN generation TYPE numeric`)
	mustExec(t, pool, `ALTER TABLE shardway.shard_maps ALTER COLUMN generation TYPE bigint, ADD COLUMN note text`)
	ask()
	mustExec(t, pool, `ALTER TABLE shardway.mappings ALTER COLUMN status TYPE integer, ADD COLUMN note text`)
	ask()
}

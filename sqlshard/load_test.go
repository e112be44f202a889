package sqlshard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// LAT-05 and the latency window: once a replica was measured to be several
// times slower, it gets less than a tenth of the reads. That it is only slow,
// and not out of service, shows when the other one is gone.
func TestSlowReplica(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	r := newReplicas(t, dbtest.EnginePostgres, set)
	db := r.connect(sqlshard.Config{Servers: sqlshard.ServerConfig{LocalThreshold: 40 * time.Millisecond}}).With(selection.Secondary())
	set.Proxy(2).Delay(60 * time.Millisecond)
	defer set.Proxy(2).Restore()
	known(t, db, "the slow secondary is measured", func(v []selection.Verdict) bool {
		fast, ok := v[1].Server.AverageRTT.Value()
		slow, _ := v[2].Server.AverageRTT.Value()
		return ok && slow > 3*fast && v[2].Step == selection.StepWindow && v[1].InWindow()
	})
	var mu sync.Mutex
	served := map[string]int{}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 25 {
				conn, err := db.OpenConnectionForKey(t.Context(), 7)
				if err != nil {
					t.Error(err)
					return
				}
				if err := conn.PingContext(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				served[conn.Server()]++
				mu.Unlock()
				_ = conn.Close()
			}
		})
	}
	readers.Wait()
	if n := served[set.Addr(2)]; n >= 20 {
		t.Errorf("the slow secondary got %d of 200 reads", n)
	}
	set.Proxy(1).Cut()
	if conn := opened1(t, db); conn.Server() != set.Addr(2) {
		t.Errorf("without the fast secondary %s serves", conn.Server())
	} else {
		_ = conn.Close()
	}
	quiet(t, db)
}

// LAG-01, LAG-03, LAG-07: a secondary whose data stands still is left out by a
// max staleness and by no other criteria; when none is left, mode secondary fails with
// the reason, and secondaryPreferred reads from the primary.
func TestStaleReplica(t *testing.T) {
	t.Parallel()
	eachSet(t, func(t *testing.T, r *replicas) {
		db := r.connect(sqlshard.Config{Servers: sqlshard.ServerConfig{SelectionTimeout: 300 * time.Millisecond}})
		one := selection.Tags{"zone": "z1"}
		fresh := db.With(selection.Secondary(one, selection.MaxStaleness(time.Second)))
		r.alive(fresh)
		r.pause(1)
		id := int64(0)
		known(t, fresh, "the secondary is stale", func(v []selection.Verdict) bool {
			r.written(db, id, id+1, 0)
			id++
			if r.kind == dbtest.EngineMySQL {
				r.beatOn(0)
			}
			return v[1].Step == selection.StepStaleness || v[1].Step == selection.StepDetached
		})
		_, err := fresh.OpenConnectionForKey(t.Context(), 7)
		var none *selection.Error
		if !errors.As(err, &none) || !errors.Is(err, selection.ErrTimeout) || errors.Is(err, shardway.ErrUnavailable) || none.Explanation.Servers[1].Suitable() {
			t.Errorf("a secondary that is too stale: %v", err)
		}
		prefer := db.With(selection.SecondaryPreferred(one, selection.MaxStaleness(time.Second)))
		within(t, "secondary preferred", servedBy(t, prefer, 5), r.addresses(0))
		unbounded := db.With(selection.Secondary(one, selection.AllowDetached(true)))
		within(t, "no bound", servedBy(t, unbounded, 5), r.addresses(1))
		r.resume(1)
		r.set.AwaitReplay(t, 1)
		r.alive(fresh)
		quiet(t, db)
	})
}

// alive waits until the first secondary is chosen by the criteria of db.
func (r *replicas) alive(db *sqlshard.DB[int64]) {
	r.t.Helper()
	known(r.t, db, "the secondary is up to date", func(v []selection.Verdict) bool {
		if r.kind == dbtest.EngineMySQL {
			r.beatOn(0)
		}
		return v[1].InWindow()
	})
}

// OBS-01, OBS-06: an error of selection names map, key, shard and every server
// with its own cause and its age.
func TestSelectionError(t *testing.T) {
	t.Parallel()
	set := dbtest.NewPostgresSet(t, dbtest.PostgresSetOptions{Secondaries: 2, Proxied: true})
	r := newReplicas(t, dbtest.EnginePostgres, set)
	db := r.connect(sqlshard.Config{Servers: sqlshard.ServerConfig{SelectionTimeout: 200 * time.Millisecond}})
	known(t, db, "all servers", func(v []selection.Verdict) bool { return v[0].InWindow() && v[1].Server.Role.Available() })
	for i := range 3 {
		set.Proxy(i).Cut()
	}
	for range 3 {
		_, err := db.OpenConnectionForKey(t.Context(), 7)
		var e *shardway.LookupError
		var none *selection.Error
		if !errors.As(err, &e) || !errors.Is(err, shardway.ErrUnavailable) || e.Map != "customers" || e.Key != "7" || e.Shard != "a" {
			t.Fatalf("got %v", err)
		}
		if !errors.As(err, &none) {
			continue // the first may still have tried a server
		}
		for _, v := range none.Explanation.Servers {
			if v.Step != selection.StepUnknown && v.Step != selection.StepRole || v.Server.LastUpdate.IsZero() {
				t.Errorf("server %s: %s %s", v.Server.Address, v.Step, v.Detail)
			}
		}
		if len(err.Error()) > 4000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	for i := range 3 {
		set.Proxy(i).Restore()
	}
	eventually(t, "the servers are back", func() bool {
		conn, err := db.OpenConnectionForKey(t.Context(), 7)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	invalid := db.With(selection.Secondary(selection.MaxStaleness(-1)))
	if e := refusedWith(t.Context(), t, invalid, 7, shardway.ErrInvalid); e.Shard != "a" {
		t.Errorf("invalid criteria: %v", e.Error())
	}
	panics := db.With(selection.Where(func(selection.ServerInfo) bool { panic("no") }))
	var predicate *selection.PredicateError
	if e := refusedWith(t.Context(), t, panics, 7, shardway.ErrInvalid); !errors.As(e.Err, &predicate) {
		t.Errorf("a predicate that panics: %v", e.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := refusedWith(ctx, t, db.With(selection.Nearest(selection.Tags{"zone": "none"})), 7, context.Canceled); errors.Is(e.Err, shardway.ErrUnavailable) {
		t.Errorf("a caller who gave up: %v", e.Error())
	}
	_, err := db.With(selection.Nearest()).Servers(t.Context(), "unknown")
	if !errors.Is(err, shardway.ErrShardNotFound) {
		t.Errorf("servers of an unknown shard: %v", err)
	}
	quiet(t, db)
}

// Bad configurations are refused by name.
func TestServerConfig(t *testing.T) {
	t.Parallel()
	r := newEmptyRig(t, dbtest.EngineSQLite)
	handle := r.handle()
	for name, cfg := range map[string]sqlshard.Config{
		"Heartbeat":        {Servers: sqlshard.ServerConfig{Heartbeat: 499 * time.Millisecond}},
		"SelectionTimeout": {Servers: sqlshard.ServerConfig{SelectionTimeout: -1}},
		"LocalThreshold":   {Servers: sqlshard.ServerConfig{LocalThreshold: -2}},
		"MaxStaleness":     {Criteria: selection.Secondary(selection.MaxStaleness(-1))},
	} {
		cfg.Engines = []shardway.Engine{r.engine}
		if _, err := sqlshard.New(handle, cfg); !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

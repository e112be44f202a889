package probe_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		db := e.NewDatabase(t).Open(t)
		h, err := probe.NewHeartbeat(string(e), `Beat-"1`)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := db.Exec(h.Create()); err != nil {
				t.Fatal(err)
			}
		}
		read := func() (age, term sql.NullInt64) {
			t.Helper()
			if err := db.QueryRow("SELECT "+h.Age()+", "+h.Term()).Scan(&age, &term); err != nil {
				t.Fatal(err)
			}
			return age, term
		}
		if age, term := read(); probe.Staleness(age).Known() || probe.BeatTerm(term).Known() {
			t.Errorf("without a beat age is %v and term %v", age, term)
		}
		var beats sync.WaitGroup
		for range 4 { // all at once: one inserts, nobody fails
			beats.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if err := h.Beat(ctx, db); err != nil {
					t.Error(err)
				}
			})
		}
		beats.Wait()
		age, term := read()
		if !probe.Staleness(age).Known() || probe.BeatTerm(term) != (topology.Term{Major: 1}) {
			t.Errorf("after the beats age is %v and term %v", age, term)
		}
		// What a beat of another server leaves behind.
		if _, err := db.Exec("UPDATE " + h.Table() + " SET server = 'another', term = 7, beat_at = 0"); err != nil {
			t.Fatal(err)
		}
		if err := h.Beat(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if _, term := read(); term.Int64 != 8 {
			t.Errorf("after a beat of another server term 7 became %d, want 8", term.Int64)
		}
	})
}

func TestNewHeartbeat(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"beat": `"beat"`, `sch"ema.Beat`: `"sch""ema"."Beat"`, "": "",
		"a.b.c": "!", ".b": "!", "a.": "!", "a?": "!", "a\n": "!", "it's": "!", strings.Repeat("x", 64): "!",
	} {
		h, err := probe.NewHeartbeat("postgres", table)
		if got := h.Table(); (err != nil) != (want == "!") || err == nil && got != want {
			t.Errorf("table %q became %q, error %v; want %q", table, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "heartbeat table") {
			t.Errorf("error is %v", err)
		}
	}
	if _, err := probe.NewHeartbeat("oracle", "beat"); err == nil {
		t.Error("an unknown engine is accepted")
	}
	var none probe.Heartbeat
	if err := none.Beat(t.Context(), nil); err != nil || none.Age() != "NULL" {
		t.Errorf("no heartbeat beats with error %v and has age %s", err, none.Age())
	}
}

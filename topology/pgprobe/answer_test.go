package pgprobe

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// streaming is a secondary that has everything.
func streaming(change func(*answer)) answer {
	a := answer{
		Recovery: true, Sees: true, Now: now, Streaming: true, CaughtUp: true,
		Timeline: sql.NullInt64{Int64: 3, Valid: true}, Attached: sql.NullBool{Bool: true, Valid: true},
		Silence: micros(time.Second), Timeout: time.Minute.Microseconds(),
		LastWrite: sql.NullTime{Time: now.Add(-time.Hour), Valid: true},
	}
	change(&a)
	return a
}

func micros(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: d.Microseconds(), Valid: true}
}

func TestStaleness(t *testing.T) {
	t.Parallel()
	unknown, zero := topology.Measurement{}, topology.Measured(0)
	for name, c := range map[string]struct {
		answer answer
		inSync time.Time // before the probe
		want   topology.Measurement
	}{
		"has everything":             {streaming(func(*answer) {}), time.Time{}, zero},
		"idle for half the time-out": {streaming(func(a *answer) { a.Silence = micros(30 * time.Second) }), time.Time{}, zero},
		"silent for longer":          {streaming(func(a *answer) { a.Silence = micros(40 * time.Second) }), time.Time{}, topology.Measured(40 * time.Second)},
		"no time-out, silent":        {streaming(func(a *answer) { a.Timeout, a.Silence = 0, micros(40*time.Second) }), time.Time{}, topology.Measured(40 * time.Second)},
		"silence unknown":            {streaming(func(a *answer) { a.Silence = sql.NullInt64{} }), time.Time{}, topology.Measured(time.Hour)},
		"has yet to replay":          {streaming(func(a *answer) { a.CaughtUp = false }), time.Time{}, topology.Measured(time.Hour)},
		"was in sync before":         {streaming(func(a *answer) { a.CaughtUp = false }), now.Add(-time.Minute), topology.Measured(time.Minute)},
		"replayed since":             {streaming(func(a *answer) { a.CaughtUp, a.LastWrite.Time = false, now.Add(-time.Second) }), now.Add(-time.Minute), topology.Measured(time.Second)},
		"connection lost":            {streaming(func(a *answer) { a.Streaming = false }), time.Time{}, topology.Measured(time.Hour)},
		"nothing replayed yet":       {streaming(func(a *answer) { a.Streaming, a.LastWrite = false, sql.NullTime{} }), time.Time{}, unknown},
		"clock of the primary ahead": {streaming(func(a *answer) { a.CaughtUp, a.LastWrite.Time = false, now.Add(time.Second) }), time.Time{}, unknown},
		"rights missing":             {streaming(func(a *answer) { a.Sees = false }), now.Add(-time.Minute), unknown},
	} {
		s := &probe.Session{InSync: c.inSync}
		if o := c.answer.observe(s, false); o.Staleness != c.want {
			t.Errorf("%s: %v behind, want %v", name, o.Staleness, c.want)
		}
		want := c.inSync
		if c.want == zero {
			want = now
		}
		if !s.InSync.Equal(want) {
			t.Errorf("%s: in sync at %v, want %v", name, s.InSync, want)
		}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	term := topology.Term{Major: 3}
	for name, c := range map[string]struct {
		answer answer
		beats  bool
		want   topology.Observation
	}{
		"primary": {
			answer{Timeline: sql.NullInt64{Int64: 3, Valid: true}},
			true,
			topology.Observation{Role: topology.RolePrimary, Term: term},
		},
		"fenced primary": {
			answer{Timeline: sql.NullInt64{Int64: 3, Valid: true}, Frozen: true},
			true,
			topology.Observation{Role: topology.RoleSecondary, Detached: true, Term: term},
		},
		"follows nobody": {
			streaming(func(a *answer) { a.Streaming, a.Attached.Bool = false, false }), false,
			topology.Observation{Role: topology.RoleSecondary, Detached: true, Term: term, Staleness: topology.Measured(time.Hour)},
		},
		"the followed server is away": {
			streaming(func(a *answer) { a.Streaming = false }), false,
			topology.Observation{Role: topology.RoleSecondary, Term: term, Staleness: topology.Measured(time.Hour)},
		},
		"upstream in capitals and IPv6": {
			streaming(func(a *answer) {
				a.Host, a.Port = sql.NullString{String: "FE80::1", Valid: true}, sql.NullInt64{Int64: 5433, Valid: true}
			}), false,
			topology.Observation{Role: topology.RoleSecondary, Term: term, Upstream: "[fe80::1]:5433", Staleness: topology.Measured(0)},
		},
		"heartbeat says more than the engine": {
			streaming(func(a *answer) { a.Beat = micros(5 * time.Second) }), true,
			topology.Observation{Role: topology.RoleSecondary, Term: term, Staleness: topology.Measured(5 * time.Second)},
		},
		"no beat yet": {
			streaming(func(*answer) {}), true,
			topology.Observation{Role: topology.RoleSecondary, Term: term},
		},
		"beat from the future": {
			streaming(func(a *answer) { a.Beat = micros(-5 * time.Second) }), true,
			topology.Observation{Role: topology.RoleSecondary, Term: term},
		},
	} {
		c.want.Engine, c.want.RTT, c.want.LastWrite = engine, topology.Measured(0), c.answer.LastWrite.Time
		got := c.answer.observe(&probe.Session{}, c.beats)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(topology.Measurement{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

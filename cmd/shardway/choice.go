package main

import (
	"context"
	"fmt"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/topology"
)

// choiceView is the JSON form of a choice among the servers of a shard.
type choiceView struct {
	Criteria       string       `json:"criteria"`
	LocalThreshold float64      `json:"local_threshold_ms"`
	Chosen         string       `json:"chosen,omitempty"`   // address; of a route
	Conflict       string       `json:"conflict,omitempty"` // why a claim to be primary is not believed
	Members        []memberView `json:"servers"`
	none           error        // no server suits
}

// memberView is the JSON form of one server of a choice.
type memberView struct {
	serverView
	Role      string   `json:"role"`
	Detached  bool     `json:"detached"` // a secondary that follows nobody
	RTT       *float64 `json:"rtt_ms,omitempty"`
	Staleness *float64 `json:"staleness_ms,omitempty"` // of a secondary
	InFlight  int64    `json:"in_flight"`              // operations of this process
	InWindow  bool     `json:"in_window"`
	Step      string   `json:"step"` // that dropped it, or: in window, chosen
	Detail    string   `json:"detail,omitempty"`
	Version   string   `json:"version,omitempty"` // of the engine
	verdict   selection.Verdict
}

// viewChoice shows an explanation. With pick one server is the chosen one, as
// in a route; without, all in the window are alike.
func viewChoice(e selection.Explanation, w wanted, pick bool) choiceView {
	e = w.named(e)
	v := choiceView{Criteria: w.text, LocalThreshold: milliseconds(e.LocalThreshold), Members: []memberView{}}
	if e.Conflict != nil {
		v.Conflict = message(e.Conflict)
	}
	chosen, ok := e.Chosen()
	if !ok {
		v.none = &selection.Error{Explanation: e}
	} else if pick {
		v.Chosen = chosen.Server.Address
	}
	for _, verdict := range e.Servers {
		if verdict.Step == selection.StepChosen && !pick {
			verdict.Step = selection.StepInWindow
		}
		v.Members = append(v.Members, viewMember(verdict))
	}
	return v
}

func viewMember(verdict selection.Verdict) memberView {
	s := verdict.Server
	v := memberView{
		serverView: serverView{Address: s.Address, Tags: map[string]string{}},
		Role:       s.Role.String(), Detached: s.Detached, InFlight: verdict.InFlight,
		InWindow: verdict.InWindow(), Step: verdict.Step.String(), Detail: verdict.Detail, Version: s.Version, verdict: verdict,
	}
	for name, value := range s.Tags.All() {
		v.Tags[name] = value
	}
	v.RTT = measured(s.AverageRTT)
	if s.Role == topology.RoleSecondary {
		v.Staleness = measured(s.Staleness)
	}
	return v
}

func measured(m topology.Measurement) *float64 {
	d, known := m.Value()
	if !known {
		return nil
	}
	ms := milliseconds(d)
	return &ms
}

func milliseconds(d time.Duration) float64 {
	return float64(max(d, 0).Round(time.Microsecond)) / float64(time.Millisecond)
}

// role, trip, lag and fate are the view for people.
func (v memberView) role() string {
	if v.Detached {
		return v.Role + ", follows nobody"
	}
	return v.Role
}

func (v memberView) trip() string { return brief(v.verdict.Server.AverageRTT) }

func (v memberView) lag() string {
	if v.verdict.Server.Role != topology.RoleSecondary {
		return "-"
	}
	return brief(v.verdict.Server.Staleness)
}

func (v memberView) fate() string {
	if v.Detail == "" {
		return v.Step
	}
	return v.Step + " (" + oneLine(v.Detail) + ")"
}

func brief(m topology.Measurement) string {
	d, known := m.Value()
	switch {
	case !known:
		return "unknown"
	case d < time.Second:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// member returns the chosen server.
func (v choiceView) member() memberView {
	for _, m := range v.Members {
		if m.Address == v.Chosen {
			return m
		}
	}
	return memberView{}
}

// choice adds a choice to an explained route.
func (p *page) choice(v choiceView) {
	p.line("criteria %s; latency window %vms", v.Criteria, v.LocalThreshold)
	for i, m := range v.Members {
		p.line("%-9s%s, %s, round trip %s, staleness %s, in flight %d: %s",
			[]string{"servers", ""}[min(i, 1)], m, m.role(), m.trip(), m.lag(), m.InFlight, m.fate())
	}
	if v.Conflict != "" {
		p.line("conflict %s", v.Conflict)
	}
}

// textKeys is a shard map whose keys are given as people type them.
type textKeys struct{ m *shardway.Map }

func (t textKeys) Map() *shardway.Map { return t.m }

func (t textKeys) Key(text string) (shardway.Key, error) {
	return shardway.ParseKey(t.m.ShardMap().KeyKind, text)
}

// A server that does not answer within answerWithin is unknown. checkWithin
// bounds a whole look at the servers of a shard.
const (
	answerWithin = 5 * time.Second
	checkWithin  = 10 * time.Second
)

// servers returns what looks at the servers of a map's shards, as an application
// with the login for the shards would.
func (s *session) servers(m *shardway.Map, w wanted, every time.Duration) (*lookout, error) {
	speak, login, err := s.set.shards(s.address)
	if err != nil {
		return nil, err
	}
	db, err := sqlshard.New(textKeys{m}, sqlshard.Config{
		Engines: speak, Credentials: login,
		Servers: sqlshard.ServerConfig{LocalThreshold: w.threshold, Heartbeat: every},
	})
	if err != nil {
		return nil, err
	}
	return s.lookout(m, w, every, db)
}

// lookAt checks the servers of a shard and says which of them suit.
func lookAt(ctx context.Context, db *lookout, shard string) (selection.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	e, err := db.Servers(ctx, shard)
	if err != nil {
		return e, fmt.Errorf("checking servers: %w", err)
	}
	return e, nil
}

// Package pgprobe asks PostgreSQL servers for their role, timeline and lag.
//
//	prober, err := pgprobe.New(func(address string) (driver.Connector, error) {
//		return postgres.Engine{}.Connector(address, "customers", credentials)
//	}, pgprobe.Options{})
//	defer prober.Close()
//	monitor, err := topology.OpenMonitor(topology.MonitorConfig{Set: set, Prober: prober})
//
// One probe is one round trip on a connection of its own. A server in recovery
// is a secondary; one that is not and takes writes is a primary; one that was
// set to default_transaction_read_only, as is done to fence a former primary,
// is a secondary that follows nobody. The term is the timeline.
//
// # Lag
//
// A secondary has a staleness of zero while it receives, has replayed all that
// it received and the primary announced, and heard of the primary within half
// of wal_receiver_timeout, which is when it asks an idle one for a sign of life.
// So an idle primary does not look like lag; and a link that falls silent may go
// unnoticed for that time, 30 s by default: set wal_receiver_timeout lower, or
// use a heartbeat table, if that is too long. Otherwise the staleness is the
// time since the last replayed commit or since it was last zero, whichever is
// less. It is unknown if neither is known.
//
// # Further servers
//
// A secondary tells from whom it receives, host and port. A primary knows the
// address but no port of those that receive from it, so it tells of nobody.
//
// # Rights
//
// The probe of a primary needs a login alone. That of a secondary needs
// pg_monitor, see [Grants], to see whether the server follows another.
package pgprobe

import (
	"context"
	"fmt"
	"strings"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

const engine = "postgres"

// Options shape a Prober. The zero value demands the rights of [Grants] and
// measures lag without a heartbeat table.
type Options struct {
	// Heartbeat is the table that [probe.Heartbeat] describes, in the probed
	// database: "table" or "schema.table". If it is set, it alone says how far a
	// secondary is behind. Empty is none.
	Heartbeat string
	// PlainLogin accepts a login without pg_monitor. Secondaries then have an
	// unknown staleness, unless there is a heartbeat, and one that follows nobody
	// is not told from others.
	PlainLogin bool
}

// Prober asks PostgreSQL servers of any number of sets. All methods may be
// called concurrently. It is a topology.Prober.
type Prober struct {
	sessions *probe.Sessions
	options  Options
	text     string // with the heartbeat
	plain    string // without
	beats    bool
}

var _ topology.Prober = (*Prober)(nil)

// New returns a prober that connects when it is first asked. The error is about
// the name of the heartbeat table.
func New(connect probe.Connect, o Options) (*Prober, error) {
	h, err := probe.NewHeartbeat(engine, o.Heartbeat)
	if err != nil {
		return nil, err
	}
	return &Prober{
		sessions: probe.NewSessions(engine, connect),
		options:  o,
		text:     strings.Replace(query, "{beat}", h.Age(), 1),
		plain:    strings.Replace(query, "{beat}", "NULL", 1),
		beats:    o.Heartbeat != "",
	}, nil
}

// Close closes the prober's connections. It may be called more than once.
func (p *Prober) Close() error { return p.sessions.Close() }

// Probe asks one server. A secondary whose login lacks a right is a
// *probe.RightsError.
func (p *Prober) Probe(ctx context.Context, server topology.Server) (topology.Observation, error) {
	var o topology.Observation
	err := p.sessions.Ask(ctx, server, func(s *probe.Session) (err error) {
		o, err = p.ask(ctx, s)
		return err
	})
	return o, err
}

func (p *Prober) ask(ctx context.Context, s *probe.Session) (topology.Observation, error) {
	a, err := read(ctx, s, p.text)
	if err != nil && p.beats && p.sessions.Refused(err) {
		refused := err
		if a, err = read(ctx, s, p.plain); err == nil && a.Recovery {
			return topology.Observation{}, &probe.RightsError{
				Login: quote(a.Login), Subject: "the heartbeat table", Grants: Grants(a.Login, p.options), Err: refused,
			}
		}
	}
	if err != nil {
		return topology.Observation{}, err
	}
	if a.Recovery && !a.Sees && !p.options.PlainLogin {
		return topology.Observation{}, &probe.RightsError{
			Login: quote(a.Login), Subject: "whether the server follows another", Grants: Grants(a.Login, Options{}),
		}
	}
	return a.observe(s, p.beats), nil
}

// Grants returns the statements that give a login what probes need. They run
// on the primary; that for the heartbeat table in its database.
func Grants(login string, o Options) []string {
	grants := []string{"GRANT pg_monitor TO " + quote(login)}
	if o.PlainLogin {
		grants = nil
	}
	if h, err := probe.NewHeartbeat(engine, o.Heartbeat); err == nil && h.Table() != "" {
		if schema, _, ok := strings.Cut(h.Table(), `"."`); ok {
			grants = append(grants, fmt.Sprintf(`GRANT USAGE ON SCHEMA %s" TO %s`, schema, quote(login)))
		}
		grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s TO %s", h.Table(), quote(login)))
	}
	return grants
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Package sqlserverprobe asks SQL Server and Azure SQL for the role of a
// database and its lag.
//
//	prober, err := sqlserverprobe.New(func(address string) (driver.Connector, error) {
//		return sqlserver.Engine{Options: "ApplicationIntent=ReadOnly"}.Connector(address, "customers", credentials)
//	}, sqlserverprobe.Options{Heartbeat: "shardway.heartbeat"})
//	defer prober.Close()
//
// One probe is one round trip on a connection of its own; a new connection asks
// for the edition first. A database that is online and READ_WRITE claims to be
// primary; one that is READ_ONLY is a secondary, and detached if it belongs to
// no availability group or its data movement is suspended. A secondary that only
// admits read-intent connections needs ApplicationIntent=ReadOnly, as above.
//
// # Terms
//
// They come from the heartbeat table, see [probe.Heartbeat]. Without it, two
// databases that both take writes are a conflict that nothing decides.
//
// # Lag
//
// A secondary in the state SYNCHRONIZED with an empty redo queue is not behind.
// Any other is at most as far behind as its last commit is old, by the clocks
// and in the time zones of both servers: an asynchronous one looks late when
// nothing is written. A heartbeat table has neither fault.
//
// # Further servers
//
// A member of a group tells of the others that have a read-only routing URL,
// which holds host and port, to a login with VIEW ANY DEFINITION. Azure SQL
// Database tells of nobody.
//
// # Rights
//
// A probe of a database that takes writes needs a login alone. That of a member
// of an availability group needs those of [Grants]. VIEW ANY DEFINITION is none
// of them: without it nothing is told.
package sqlserverprobe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

const engine = "sqlserver"

// Options shape a Prober. The zero value demands the rights of Grants, has no
// terms and takes the engine's word for its lag.
type Options struct {
	// Heartbeat is the table that [probe.Heartbeat] describes, in the probed
	// database: "table" or "schema.table". If it is set, it alone says how far a
	// secondary is behind, and gives the terms. Empty is none.
	Heartbeat string
	// PlainLogin accepts a login without the right to see replication.
	// Secondaries then have an unknown staleness, unless there is a heartbeat,
	// and one that follows nobody is not told from others.
	PlainLogin bool
}

// Prober asks SQL Server databases of any number of sets. All methods may be
// called concurrently. It is a topology.Prober.
type Prober struct {
	sessions *probe.Sessions
	options  Options
	beat     probe.Heartbeat
}

var _ topology.Prober = (*Prober)(nil)

// New returns a prober that connects when it is first asked. The error is about
// the name of the heartbeat table.
func New(connect probe.Connect, o Options) (*Prober, error) {
	beat, err := probe.NewHeartbeat(engine, o.Heartbeat)
	if err != nil {
		return nil, err
	}
	return &Prober{sessions: probe.NewSessions(engine, connect), options: o, beat: beat}, nil
}

// Close closes the prober's connections. It may be called more than once.
func (p *Prober) Close() error { return p.sessions.Close() }

// Probe asks one server. A secondary whose login lacks a right is a
// *probe.RightsError.
func (p *Prober) Probe(ctx context.Context, server topology.Server) (topology.Observation, error) {
	var o topology.Observation
	err := p.sessions.Ask(ctx, server, func(s *probe.Session) (err error) {
		if s.Variant == 0 {
			if err := detect(ctx, s); err != nil {
				return err
			}
		}
		o, err = p.ask(ctx, s)
		return err
	})
	return o, err
}

// The variants of a session.
const (
	alone = 1 // no availability groups
	group = 2 // SQL Server with availability groups
	azure = 3 // Azure SQL Database
)

const detectText = `SELECT CAST(SERVERPROPERTY('EngineEdition') AS int), CAST(COALESCE(SERVERPROPERTY('IsHadrEnabled'), 0) AS int)`

// detect asks for the edition, on which it depends what else may be asked.
func detect(ctx context.Context, s *probe.Session) error {
	const azureDatabase = 5
	var edition, groups int
	if _, err := s.Row(ctx, detectText, &edition, &groups); err != nil {
		return err
	}
	switch {
	case edition == azureDatabase:
		s.Variant = azure
	case groups == 1:
		s.Variant = group
	default:
		s.Variant = alone
	}
	return nil
}

func (p *Prober) ask(ctx context.Context, s *probe.Session) (topology.Observation, error) {
	variant := s.Variant
	if p.options.PlainLogin {
		variant = alone
	}
	a, err := read(ctx, s, variant, p.beat)
	var refused error
	if err != nil && (p.sessions.Refused(err) || hidden(err)) {
		refused = err
		a, err = read(ctx, s, alone, probe.Heartbeat{})
	}
	if err != nil {
		return topology.Observation{}, err
	}
	if refused != nil && !a.writable() {
		return topology.Observation{}, p.missing(s.Variant, a.login, refused)
	}
	a.sees = s.Variant == alone || !p.options.PlainLogin && refused == nil
	return a.observe(p.beat.Table() != ""), nil
}

// hidden knows the errors of a missing right to see the state of the server.
func hidden(err error) bool {
	const noPermission, noServerState = 297, 300
	var numbered interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &numbered) {
		return false
	}
	n := numbered.SQLErrorNumber()
	return n == noPermission || n == noServerState
}

func (p *Prober) missing(variant int, login string, refused error) error {
	e := &probe.RightsError{Login: login, Subject: "the state of replication", Grants: Grants(login, p.options), Err: refused}
	if p.beat.Table() != "" {
		e.Subject += " or the heartbeat table " + p.beat.Table()
	}
	if variant == azure {
		e.Grants = GrantsAzure(login, p.options)
	}
	return e
}

// Grants returns the statements that give a login what probes need: the first
// runs in master, that for the heartbeat table in its database.
func Grants(login string, o Options) []string { return grants(login, o, "VIEW SERVER STATE") }

// GrantsAzure is [Grants] for Azure SQL Database, for a user of the database.
func GrantsAzure(user string, o Options) []string { return grants(user, o, "VIEW DATABASE STATE") }

func grants(login string, o Options, rights ...string) []string {
	if o.PlainLogin {
		rights = nil
	}
	if h, err := probe.NewHeartbeat(engine, o.Heartbeat); err == nil && h.Table() != "" {
		rights = append(rights, "SELECT ON "+h.Table())
	}
	var statements []string
	for _, right := range rights {
		statements = append(statements, fmt.Sprintf("GRANT %s TO [%s]", right, strings.ReplaceAll(login, "]", "]]")))
	}
	return statements
}

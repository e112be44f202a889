// Package mysqlprobe asks MariaDB and MySQL servers for their role and lag.
//
//	prober, err := mysqlprobe.New(func(address string) (driver.Connector, error) {
//		return mysql.Engine{}.Connector(address, "customers", credentials)
//	}, mysqlprobe.Options{Heartbeat: "shardway_heartbeat"})
//	defer prober.Close()
//
// One probe is one round trip on a connection of its own; a new connection asks
// for the version first. A server that is not read-only by any of its settings
// claims to be primary, and says whom it follows, if anybody: package topology
// does not believe a claim of a server that follows another. A read-only server
// is a secondary. It is detached if it follows nobody, or if replication was
// stopped on it or broke, so that its data stands still.
//
// # Terms
//
// Neither product has a number that grows with each failover. The heartbeat
// table has one, see [probe.Heartbeat]. Without it, two servers that both take
// writes and follow nobody are a conflict that nothing decides.
//
// # Lag
//
// MariaDB tells whole seconds behind, and nothing unless both replication
// threads run: then the staleness is unknown. MySQL, from 8.0 on, is not behind
// when all received transactions are executed; otherwise it is as far behind as
// the oldest transaction that it applies now, or the last that it has applied,
// and with replication not running or without GTIDs it is unknown. Neither sees
// a silent link before the replica's net timeout (slave_net_timeout, 60 s by
// default). A heartbeat table sees everything.
//
// # Further servers
//
// A replica tells whom it follows. Of MariaDB a login with REPLICATION MASTER
// ADMIN (before 10.5 REPLICATION SLAVE) is also told who has registered as a
// replica: by its report_host and report_port, or, from 10.5 on, else by the
// address it came from. What reads the binary log for other purposes may
// register too. MySQL tells this only in a round trip of its own, which is not
// made.
//
// # Rights
//
// A probe of a server that takes writes needs a login alone. That of a
// secondary needs the rights of [GrantsMariaDB] or [GrantsMySQL]. The right to
// be told of registered replicas is none of them: without it nothing is told.
package mysqlprobe

import (
	"context"
	"fmt"
	"strings"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

const engine = "mysql"

// Options shape a Prober. The zero value demands the rights of GrantsMariaDB
// or GrantsMySQL, has no terms and takes the engine's word for its lag.
type Options struct {
	// Heartbeat is the table that [probe.Heartbeat] describes: "table" in the
	// probed database or "database.table". If it is set, it alone says how far a
	// secondary is behind, and gives the terms. Empty is none.
	Heartbeat string
	// PlainLogin accepts a login without the right to see replication.
	// Secondaries then have an unknown staleness, unless there is a heartbeat;
	// whom a server follows is not known.
	PlainLogin bool
}

// Prober asks MariaDB and MySQL servers of any number of sets. All methods may
// be called concurrently. It is a topology.Prober.
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
	mariaDB      = 1
	mariaDB11    = 2 // from 11.1 on: tx_read_only has a new name
	mysqlVariant = 3
)

// detect asks for the version, on which it depends what else may be asked.
func detect(ctx context.Context, s *probe.Session) error {
	var version string
	if _, err := s.Row(ctx, "SELECT VERSION()", &version); err != nil {
		return err
	}
	s.Variant = variantOf(version)
	return nil
}

func variantOf(version string) int {
	if !strings.Contains(strings.ToLower(version), "mariadb") {
		return mysqlVariant
	}
	var major, minor int
	// Some proxies put a number in front for old replicas.
	_, _ = fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d", &major, &minor)
	if major > 11 || major == 11 && minor >= 1 {
		return mariaDB11
	}
	return mariaDB
}

func (p *Prober) ask(ctx context.Context, s *probe.Session) (topology.Observation, error) {
	a, err := read(ctx, s, text(s.Variant, p.beat, !p.options.PlainLogin))
	var refused error
	if err != nil && p.sessions.Refused(err) {
		refused = err
		a, err = read(ctx, s, text(s.Variant, probe.Heartbeat{}, false))
	}
	if err != nil {
		return topology.Observation{}, err
	}
	if !a.writable() && (refused != nil || !a.sees && !p.options.PlainLogin) {
		return topology.Observation{}, p.missing(s.Variant, a.login, refused)
	}
	return a.observe(p.beat.Table() != ""), nil
}

func (p *Prober) missing(variant int, login string, refused error) error {
	e := &probe.RightsError{Login: login, Subject: "whom the server follows", Grants: GrantsMariaDB(login, p.options), Err: refused}
	if refused != nil && p.beat.Table() != "" {
		e.Subject += " and the heartbeat table " + p.beat.Table()
	}
	if variant == mysqlVariant {
		e.Grants = GrantsMySQL(login, p.options)
	}
	return e
}

// GrantsMariaDB returns the statements that give an account, name or
// name@host, what probes of MariaDB from 10.5 on need; before, the right was
// named REPLICATION CLIENT. That for the heartbeat table runs in its database.
func GrantsMariaDB(account string, o Options) []string {
	return grants(account, o, "SLAVE MONITOR ON *.*")
}

// GrantsMySQL is [GrantsMariaDB] for MySQL.
func GrantsMySQL(account string, o Options) []string {
	var rights []string
	for _, table := range replicationTables {
		rights = append(rights, "SELECT ON performance_schema."+table)
	}
	return grants(account, o, rights...)
}

func grants(account string, o Options, rights ...string) []string {
	if o.PlainLogin {
		rights = nil
	}
	if h, err := probe.NewHeartbeat(engine, o.Heartbeat); err == nil && h.Table() != "" {
		rights = append(rights, "SELECT ON "+h.Table())
	}
	name, host := account, "%"
	if at := strings.LastIndexByte(account, '@'); at > 0 {
		name, host = account[:at], account[at+1:]
	}
	var statements []string
	for _, right := range rights {
		statements = append(statements, fmt.Sprintf("GRANT %s TO %s@%s", right, quote(name), quote(host)))
	}
	return statements
}

func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}

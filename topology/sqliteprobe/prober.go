// Package sqliteprobe asks SQLite files whether they take writes.
//
//	prober, err := sqliteprobe.New(func(address string) (driver.Connector, error) {
//		return sqlite.Engine{}.Connector(address, "", shardway.Credentials{})
//	}, sqliteprobe.Options{})
//	defer prober.Close()
//
// A shard has one file that takes writes, the primary; any others are read-only
// copies of it, kept up by somebody else and opened with mode=ro. SQLite knows
// nothing of copies, so nobody follows anybody here, and the staleness of a copy
// is unknown without a heartbeat table. A copy that takes writes is a conflict
// that nothing decides.
//
// The probe begins to write and takes it back at once: nothing else tells
// whether a write would succeed. It never waits for the write lock, as who holds
// it proves that the file takes writes. No rights are needed but the file's.
package sqliteprobe

import (
	"context"
	"database/sql"
	"errors"

	"github.com/shardway/shardway/topology"
	"github.com/shardway/shardway/topology/probe"
)

const engine = "sqlite"

// Options shape a Prober. The zero value leaves the staleness of copies unknown.
type Options struct {
	// Heartbeat is the table that [probe.Heartbeat] describes. Empty is none.
	Heartbeat string
}

// Prober asks SQLite files. All methods may be called concurrently. It is a
// topology.Prober.
type Prober struct {
	sessions *probe.Sessions
	beat     probe.Heartbeat
}

var _ topology.Prober = (*Prober)(nil)

// New returns a prober that opens files when it is first asked. The error is
// about the name of the heartbeat table.
func New(connect probe.Connect, o Options) (*Prober, error) {
	beat, err := probe.NewHeartbeat(engine, o.Heartbeat)
	if err != nil {
		return nil, err
	}
	return &Prober{sessions: probe.NewSessions(engine, connect), beat: beat}, nil
}

// Close closes the prober's connections. It may be called more than once.
func (p *Prober) Close() error { return p.sessions.Close() }

// Probe asks one file.
func (p *Prober) Probe(ctx context.Context, server topology.Server) (topology.Observation, error) {
	var o topology.Observation
	err := p.sessions.Ask(ctx, server, func(s *probe.Session) (err error) {
		if s.Variant == 0 {
			if err := s.Exec(ctx, "PRAGMA busy_timeout = 0"); err != nil {
				return err
			}
			s.Variant = 1
		}
		o, err = p.ask(ctx, s)
		return err
	})
	return o, err
}

func (p *Prober) ask(ctx context.Context, s *probe.Session) (topology.Observation, error) {
	writable, err := takesWrites(ctx, s)
	if err != nil {
		return topology.Observation{}, err
	}
	o := topology.Observation{Role: topology.RoleSecondary, Engine: engine}
	text, age := "SELECT sqlite_version()", sql.NullInt64{}
	targets := []any{&o.Version}
	if writable {
		o.Role = topology.RolePrimary
	} else {
		text, targets = text+", "+p.beat.Age(), append(targets, &age)
	}
	rtt, err := s.Row(ctx, text, targets...)
	if err != nil {
		return topology.Observation{}, err
	}
	o.RTT = topology.Measured(rtt)
	o.Staleness = probe.Staleness(age)
	return o, nil
}

// takesWrites begins to write and takes it back. Beginning alone is no proof:
// for a file opened for reading, SQLite only begins to read.
func takesWrites(ctx context.Context, s *probe.Session) (bool, error) {
	const busy, locked, readOnly = 5, 6, 8
	err := s.Exec(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		err = s.Exec(ctx, "PRAGMA user_version = 0")
		if rollback := s.Exec(ctx, "ROLLBACK"); rollback != nil {
			return false, errors.Join(err, rollback)
		}
	}
	if err == nil {
		return true, nil
	}
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return false, err
	}
	switch coded.Code() & 0xff {
	case busy, locked:
		return true, nil
	case readOnly:
		return false, nil
	}
	return false, err
}

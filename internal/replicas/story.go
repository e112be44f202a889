// Package replicas tells how Shardway chooses among the servers of a shard, on
// a PostgreSQL primary and its secondaries: a write goes to the primary, a read
// to a secondary chosen by latency, another one where a predicate says, and
// after a failover writes flow to the new primary. The demo tells it on servers
// of its own, examples/replicas on yours.
package replicas

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// Story is one run. Every fact it tells was asked of the servers themselves.
type Story struct {
	Out      io.Writer
	Engine   postgres.Engine
	Location shardway.Location // the first server is the primary
	Login    shardway.Credentials
	Promote  bool          // the last secondary is promoted, in place of asking for it
	Wait     time.Duration // for the failover; above 0

	db      *sqlshard.DB[int64]
	primary string // address of the primary seen last
	rows    int64  // written
}

// reads is how often a chapter reads.
const reads = 20

// patience bounds what needs no failover.
const patience = time.Minute

// Tell runs the story. It is told once.
func (s *Story) Tell(ctx context.Context) (err error) {
	closing, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, chapter := range []func(context.Context) error{s.writes, s.byLatency, s.byPredicate} {
		if err := chapter(short); err != nil {
			return err
		}
	}
	if err := s.failover(ctx); err != nil {
		return err
	}
	s.say("All of this was checked on the servers.")
	return nil
}

func (s *Story) say(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }

// write writes one more row, as an application does, and returns the server
// that took it. A row whose write was broken off is written again, which does no
// harm.
func (s *Story) write(ctx context.Context) (server string, err error) {
	conn, err := s.db.OpenConnectionForKey(ctx, s.rows+1)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	var secondary bool
	err = conn.QueryRowContext(ctx, "INSERT INTO "+Table+" (id, note) VALUES ($1, 'hello') "+
		"ON CONFLICT (id) DO UPDATE SET note = excluded.note RETURNING pg_is_in_recovery()", s.rows+1).Scan(&secondary)
	if err != nil {
		return "", fmt.Errorf("writing on %s: %w", conn.Server(), err)
	}
	s.rows++
	if secondary {
		return "", fmt.Errorf("%s took a write and says that it is a secondary", conn.Server())
	}
	return conn.Server(), nil
}

// look reads the newest row by some criteria and returns the server that served
// it and whether that is a secondary, by its own account.
func (s *Story) look(ctx context.Context, c selection.Criteria) (server string, secondary bool, err error) {
	conn, err := s.db.With(c).OpenConnectionForKey(ctx, s.rows)
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	var note string
	err = conn.QueryRowContext(ctx, "SELECT note, pg_is_in_recovery() FROM "+Table+" WHERE id = $1", s.rows).Scan(&note, &secondary)
	if err != nil {
		return "", false, fmt.Errorf("reading on %s: %w", conn.Server(), err)
	}
	return conn.Server(), secondary, nil
}

func (s *Story) writes(ctx context.Context) error {
	s.say("1. A write goes to the primary")
	server, err := s.write(ctx)
	if err != nil {
		return err
	}
	if want := s.Location.Servers[0].Address; server != want {
		return fmt.Errorf("the write went to %s, and the primary is %s", server, want)
	}
	s.primary = server
	s.say("   %s took it: it is no secondary, as it says itself", server)
	return s.replicated(ctx, s.rows)
}

func (s *Story) byLatency(ctx context.Context) error {
	s.say("2. A read goes to a secondary, chosen by latency")
	criteria := selection.Secondary(selection.MaxStaleness(patience))
	e, err := s.servers(ctx, criteria)
	if err != nil {
		return err
	}
	for _, v := range e.Servers {
		trip, _ := v.Server.AverageRTT.Value()
		s.say("   %s is %s, round trip %v: %s", v.Server.Address, v.Server.Role, trip.Round(time.Microsecond), fate(v))
	}
	served, err := s.reads(ctx, criteria, func(server string, secondary bool) error {
		if !secondary {
			return fmt.Errorf("%s served a read for secondaries and is none", server)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("   %d reads were served by %s", reads, served)
	return nil
}

// fate says what a verdict means for reads.
func fate(v selection.Verdict) string {
	switch {
	case v.InWindow():
		return "near enough to serve"
	case v.Detail != "":
		return "out, by " + v.Step.String() + " (" + v.Detail + ")"
	}
	return "out, by " + v.Step.String()
}

func (s *Story) byPredicate(ctx context.Context) error {
	s.say("3. A read goes where a predicate says")
	e, err := s.servers(ctx, selection.Nearest())
	if err != nil {
		return err
	}
	host := e.Servers[len(e.Servers)-1].Server.Host
	byHost := selection.Where(func(server selection.ServerInfo) bool { return server.Host == host })
	served, err := s.reads(ctx, byHost, func(server string, _ bool) error {
		for _, v := range e.Servers {
			if v.Server.Address == server && v.Server.Host != host {
				return fmt.Errorf("%s served a read that was for host %q", server, host)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("   %d reads where host == %q were served by %s", reads, host, served)
	return nil
}

// reads reads often and says who served how many.
func (s *Story) reads(ctx context.Context, c selection.Criteria, check func(server string, secondary bool) error) (string, error) {
	count := map[string]int{}
	for range reads {
		server, secondary, err := s.look(ctx, c)
		if err == nil {
			err = check(server, secondary)
		}
		if err != nil {
			return "", err
		}
		count[server]++
	}
	var parts []string
	for _, server := range s.Location.Servers {
		if n := count[server.Address]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s (%d)", server.Address, n))
		}
	}
	return strings.Join(parts, " and "), nil
}

func (s *Story) failover(ctx context.Context) error {
	s.say("4. A failover: writes flow to the new primary")
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	former, next := s.primary, s.Location.Servers[len(s.Location.Servers)-1].Address
	if s.Promote {
		err := s.on(next, func(db *sql.DB) error {
			var done bool
			err := db.QueryRowContext(ctx, "SELECT pg_promote(true, 60)").Scan(&done)
			if err == nil && !done {
				err = errors.New("the promotion has not ended within a minute")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("promoting a secondary: %w", err)
		}
		s.say("   %s is promoted, and %s has not been told", next, former)
	} else {
		s.say("   stop %s now and promote a secondary: SELECT pg_promote()", former)
	}
	lost, err := s.until(ctx, former)
	if err != nil {
		return err
	}
	s.say("   %s takes the writes now; while it was not yet known, %d were refused", s.primary, lost)
	first := s.rows
	for range reads {
		server, err := s.write(ctx)
		if err != nil {
			return err
		}
		if server != s.primary {
			return fmt.Errorf("a write went to %s after %s was known to be primary", server, s.primary)
		}
	}
	for id := first + 1; id <= s.rows; id++ {
		if found, err := s.row(ctx, s.primary, id); err != nil || !found {
			return errors.Join(fmt.Errorf("row %d is not on %s", id, s.primary), err)
		}
		if found, err := s.row(ctx, former, id); err == nil && found && s.Promote {
			return fmt.Errorf("row %d is on the former primary %s", id, former)
		}
	}
	s.say("   %d more writes went there, and none to %s", s.rows-first, former)
	return nil
}

// until writes until another server than the former primary takes it, and
// returns how many attempts failed before.
func (s *Story) until(ctx context.Context, former string) (failed int, err error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		server, err := s.write(ctx)
		if err == nil && server != former {
			s.primary = server
			return failed, nil
		}
		if ctx.Err() != nil {
			return failed, errors.Join(fmt.Errorf("no other server has become primary: %w", context.Cause(ctx)), err)
		}
		if err != nil {
			failed++
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

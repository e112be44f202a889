package sqlshard

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// HoldConnectionForKey is [DB.OpenConnectionForKey] for a connection that keeps
// the key's mapping where it is, online, until it is closed: changes of the
// mapping wait for it, as long as their drain limit allows, and then end the
// session. It is for work that is not one transaction, on the primary alone.
//
// PostgreSQL and SQL Server have the lock of a session that this takes. Other
// engines are refused with a [*shardway.ArgumentError], and so is PostgreSQL
// behind a pooler such as PgBouncer: a pooler may give the session that has the
// lock to others. Handles for reads are refused too. Whatever releases all
// locks of a session ends the hold: pg_advisory_unlock_all, DISCARD ALL.
func (d *DB[K]) HoldConnectionForKey(ctx context.Context, k K) (*Conn, error) {
	key, err := d.keys.Key(k)
	if err != nil {
		return nil, &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	if !d.want.writes {
		return nil, &shardway.ArgumentError{Argument: "criteria", Reason: "are for reads: only the primary can hold a mapping"}
	}
	return d.opener.open(ctx, key, opening{want: d.want, holds: true})
}

// checkHold refuses engines without locks of sessions.
func checkHold(engine string) error {
	d, err := dialect.For(engine)
	if err == nil && d.LockHold() == "" {
		return &shardway.ArgumentError{Argument: "engine", Value: engine, Reason: "cannot hold a mapping: use InTx"}
	}
	return nil
}

// pidTeller is an optional ability of an engine's driver: it tells the number
// of the server's process as it was told when the connection was made.
type pidTeller interface {
	BackendPID(conn any) (pid int64, ok bool)
}

// hold takes the lock of the session on the mapping, then validates it: what
// the shard says before the lock is there counts for nothing.
func (c *Conn) hold(ctx context.Context) error {
	s, d := c.session, c.session.pool.engine.dialect
	fail := func(err error) error {
		s.dirty = true
		return s.pool.lockFailed(ctx, err, s.reused)
	}
	direct, err := s.direct(ctx)
	switch {
	case err != nil:
		return fail(err)
	case !direct:
		return &shardway.ArgumentError{Argument: "server", Value: s.pool.address, Reason: "is behind a pooler, which cannot hold a mapping: use InTx"}
	}
	mapping := int64(c.route.MappingID)
	if _, err = s.ask(ctx, s.pool.takeHold, key(d, mapping), nil); err != nil {
		return fail(err)
	}
	s.held = mapping
	return c.validate(ctx)
}

func key(d *dialect.Dialect, mapping int64) []driver.NamedValue {
	return []driver.NamedValue{{Ordinal: 1, Value: d.HoldKey(mapping)}}
}

// direct reports whether the session is one of the server, not of a pooler. It
// asks once.
func (s *session) direct(ctx context.Context) (bool, error) {
	teller, ok := s.pool.db.Driver().(pidTeller)
	if !ok || s.isDirect {
		return true, nil
	}
	told, ok := teller.BackendPID(s.Conn)
	if !ok {
		return false, fmt.Errorf("asking for the server's process: connection is a %T", s.Conn)
	}
	var pid [1]int64
	if _, err := s.ask(ctx, "SELECT pg_backend_pid()", nil, pid[:]); err != nil {
		return false, err
	}
	s.isDirect = pid[0] == told
	return s.isDirect, nil
}

// releaseLimit bounds the wait for the release of a hold.
const releaseLimit = 5 * time.Second

// letGo releases the mapping that the session holds. When it is false the
// session must be closed, which releases it too.
func (s *session) letGo() bool {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	_, err := s.ask(ctx, s.pool.releaseHold, key(s.pool.engine.dialect, s.held), nil)
	s.held = 0
	return err == nil
}

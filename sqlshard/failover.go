package sqlshard

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/topology"
)

// seat is the place of a session in a replica set while a Conn has it. The zero
// value is a session of a shard whose servers are not watched.
type seat struct {
	set       *replicaset.Set[pool]
	position  int    // of the server in the set
	demotions uint64 // of the server when it was chosen
	reads     bool   // the Conn is for reads
	unit      *replicaset.Unit
}

// now describes the server as it is known now.
func (a *seat) now() topology.Server {
	return a.set.Now().Server(a.position)
}

// primary reports whether the server is primary still.
func (a *seat) primary() bool {
	s := a.now()
	return s.Role == topology.RolePrimary && s.Demotions == a.demotions
}

// sending is called before a statement is sent. It refuses what a former
// primary must not get, and what a unit sends after its transaction, and returns
// the time where it is needed later.
func (s *session) sending() (began time.Time, err error) {
	if err := s.fence.lost(); err != nil {
		return time.Time{}, err
	}
	if s.seat.set == nil {
		return time.Time{}, nil
	}
	if !s.seat.reads && s.seat.now().Demotions != s.seat.demotions {
		s.dirty = true
		return time.Time{}, &shardway.DemotedError{Server: s.pool.address}
	}
	return time.Now(), nil
}

// failed learns from the error of a statement that was sent.
func (s *session) failed(ctx context.Context, began time.Time, err error) {
	if err != nil && s.fence != nil && s.pool.engine.dialect.TookBack(err) {
		s.fence.lose(err)
	}
	switch {
	case err == nil || errors.Is(err, driver.ErrSkip):
	case s.pool.engine.dialect.ReadOnly(err):
		s.refusedWrite(began, err)
	case s.seat.set != nil && !replicaset.Over(ctx) && s.pool.classify(err) == dialect.Lost:
		s.seat.set.Broke(s.seat.unit, s.seat.now(), began, err)
	}
}

// refusedWrite learns from a server that says it takes no writes. A secondary
// may, and so may a transaction that its user wants to be read-only.
func (s *session) refusedWrite(began time.Time, err error) {
	if s.seat.reads || s.inReadOnly {
		return
	}
	if !s.dirty {
		s.pool.suspect()
	}
	if s.seat.set == nil {
		return
	}
	if s.dirty { // it may be the user's own setting: see what the server says
		s.seat.set.Check()
		return
	}
	s.seat.set.RefusedWrite(s.seat.unit, s.seat.now(), began, err)
}

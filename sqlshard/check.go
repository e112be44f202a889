package sqlshard

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
)

// errNotHere is a shard that does not have the mapping, or is another shard
// than the route says.
var errNotHere = errors.New("the shard does not have the mapping")

// errBroken is a session that was dead when it was to be handed out.
var errBroken = errors.New("session is broken")

// admit validates the connection and gives its session back if that fails.
func (c *Conn) admit(ctx context.Context) (err error) {
	answered := false
	defer func() {
		if !answered || err != nil { // the driver may have panicked
			c.session.dirty = c.session.dirty || !answered || errors.Is(err, errBroken)
			c.session.pool.checkin(c.session, false)
		}
	}()
	err = c.enters(ctx)
	answered = true
	return err
}

// enters makes sure of the mapping in the way that the connection is for.
func (c *Conn) enters(ctx context.Context) error {
	switch {
	case c.fence != nil:
		return c.begins(ctx)
	case c.holds:
		return c.hold(ctx)
	case c.opener.cfg.Validation == None && !c.asks:
		return c.session.untagged(ctx)
	}
	return c.validate(ctx)
}

// validate asks the shard whether the route still stands.
func (c *Conn) validate(ctx context.Context) error {
	s, p := c.session, c.session.pool
	if c.route.MappingID == 0 {
		return c.validateShard(ctx)
	}
	question, args := s.validating(int64(c.route.MappingID))
	var answer [1]int64
	found, err := s.ask(ctx, question, args, answer[:])
	if err != nil {
		s.dirty = true
		return p.checkFailed(ctx, err, s.reused)
	}
	s.tagged(int64(c.route.MappingID), found, false)
	return p.judge(found, answer[0])
}

// validateShard asks the database whether it still is the shard that was read.
func (c *Conn) validateShard(ctx context.Context) error {
	s, p := c.session, c.session.pool
	if err := s.untagged(ctx); err != nil {
		return err
	}
	args := []driver.NamedValue{{Ordinal: 1, Value: int64(c.route.Shard.MapID)}, {Ordinal: 2, Value: int64(c.route.Shard.ID)}}
	var answer [2]int64
	found, err := s.ask(ctx, p.shard, args, answer[:])
	switch {
	case err != nil:
		s.dirty = true
		return p.checkFailed(ctx, err, s.reused)
	case !found:
		err = errNotHere
	case answer[0] != c.route.Shard.Version:
		err = fmt.Errorf("the shard has changed since it was read: %w", shardway.ErrStale)
	}
	if err != nil {
		p.failedChecks.Add(1)
	}
	return err
}

// checkFailed gives an error of asking its meaning.
func (p *pool) checkFailed(ctx context.Context, err error, reused bool) error {
	const doing = "validating the connection"
	if replicaset.Over(ctx) {
		return replicaset.Ended(ctx, doing, err)
	}
	switch p.classify(err) {
	case dialect.Lost, dialect.Transient, dialect.Outdated:
		if reused {
			return fmt.Errorf("%s: %w: %w: %w", doing, errBroken, shardway.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
	case dialect.NoTable:
		return fmt.Errorf("%s: the database has no local store: %w: %w", doing, shardway.ErrNoStore, err)
	case dialect.Unavailable:
		return fmt.Errorf("%s: %w: %w", doing, shardway.ErrUnavailable, err)
	case dialect.Other, dialect.Duplicate:
	}
	return fmt.Errorf("%s: %w", doing, err)
}

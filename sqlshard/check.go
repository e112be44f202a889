package sqlshard

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
)

// check is a question to the local store of a shard, asked on the session that
// is about to be handed out.
type check struct {
	text    string
	answers int // numbers in the answer
}

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
	err = c.validate(ctx)
	answered = true
	return err
}

// validate asks the shard whether the route still stands.
func (c *Conn) validate(ctx context.Context) error {
	p := c.session.pool
	question, args := p.mapping, [2]driver.NamedValue{{Ordinal: 1, Value: int64(c.route.MappingID)}}
	n := 1
	if c.route.MappingID == 0 {
		question, n = p.shard, 2
		args[0].Value = int64(c.route.Shard.MapID)
		args[1] = driver.NamedValue{Ordinal: 2, Value: int64(c.route.Shard.ID)}
	}
	var answer [2]int64
	found, err := c.session.ask(ctx, question.text, args[:n], answer[:question.answers])
	if err != nil {
		c.session.dirty = true
		return p.checkFailed(ctx, err, c.session.reused)
	}
	switch {
	case !found:
		err = errNotHere
	case c.route.MappingID == 0:
		if answer[0] != c.route.Shard.Version {
			err = fmt.Errorf("the shard has changed since it was read: %w", shardway.ErrStale)
		}
	case shardway.MappingStatus(answer[0]) != shardway.Online:
		err = shardway.ErrMappingOffline
	}
	if err != nil {
		p.failedChecks.Add(1)
	}
	return err
}

// checkFailed gives an error of asking its meaning.
func (p *pool) checkFailed(ctx context.Context, err error, reused bool) error {
	const doing = "validating the connection"
	if over(ctx) {
		return ended(ctx, doing, err)
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

// over reports whether ctx has ended. Drivers notice that its deadline has
// passed a moment before ctx itself does.
func over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// ended is the error of something that the end of ctx broke off. Time that ran
// out means that the server did not answer in time; a caller who gave up does
// not say anything about it.
func ended(ctx context.Context, doing string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w: %w", doing, context.Cause(ctx), err)
	}
	return fmt.Errorf("%s: %w: %w: %w", doing, shardway.ErrUnavailable, cmp.Or(context.Cause(ctx), context.DeadlineExceeded), err)
}

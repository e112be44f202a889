package sqlshard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardway/shardway"
)

// MovedError is the error of work whose session was ended by the server because
// the key's mapping is being changed: it goes offline, or to another shard. It
// matches [shardway.ErrStale].
//
// A session that was ended does not say why. The shard is asked once more, on
// another session: if it does not have the mapping online any more, that is why.
type MovedError struct {
	Map   string // name of the shard map
	Shard string // name of the shard that had the mapping
	Err   error  // what the driver said

	undone bool // nothing of the work was kept
}

// Error names shard map and shard, then the cause.
func (e *MovedError) Error() string {
	return fmt.Sprintf("shard map %q: the mapping on shard %q was changed meanwhile and the session ended: %v", e.Map, e.Shard, e.Err)
}

// Is reports whether target is [shardway.ErrStale].
func (e *MovedError) Is(target error) bool { return target == shardway.ErrStale }

// Unwrap returns the cause.
func (e *MovedError) Unwrap() error { return e.Err }

// SafeToRetry is true when nothing of the work was kept: it was done in a
// transaction that had not begun to commit.
func (e *MovedError) SafeToRetry() bool { return e.undone }

// askLimit bounds the time to find out why a session was ended.
const askLimit = 2 * time.Second

// told returns err, or a MovedError around it if the server has ended the
// session because of a change of the mapping.
func (o *opener) told(ctx context.Context, c *Conn, undone bool, err error) error {
	if err == nil || c.route.MappingID == 0 || over(ctx) || !c.session.pool.engine.dialect.EndedByServer(err) {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	again, reason := o.connect(limited, c.route, &opening{want: wantOf(o.cfg.Criteria), asks: true})
	if reason == nil {
		_ = again.Close()
	}
	if !errors.Is(reason, errNotHere) && !errors.Is(reason, shardway.ErrMappingOffline) {
		return err
	}
	return &MovedError{Map: o.m.ShardMap().Name, Shard: c.Shard(), Err: err, undone: undone}
}

// explain is told for a statement of the connection.
func (c *Conn) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return c.opener.told(ctx, c, false, err)
}

// movedBefore adds to the error of a unit that its session was ended by a change
// of the mapping, when that was in an earlier attempt and the mapping is away.
func movedBefore(moved bool, err error) error {
	if !moved || err == nil || !errors.Is(err, shardway.ErrMappingOffline) && !errors.Is(err, shardway.ErrStale) {
		return err
	}
	var lookup *shardway.LookupError
	if !errors.As(err, &lookup) {
		return err
	}
	return &MovedError{Map: lookup.Map, Shard: lookup.Shard, Err: err, undone: true}
}

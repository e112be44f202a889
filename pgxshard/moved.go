package pgxshard

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
	Err   error  // what the driver said, or why the unit was not done again

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
func (v *visit) told(ctx context.Context, err error, undone bool) error {
	if err == nil || over(ctx) || !postgres.EndedByServer(err) {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	w := opening{want: wantOf(v.o.cfg.Criteria)}
	reason := v.o.connect(limited, v.route, &w, func(_, opening context.Context, again *visit) error {
		reason := again.ask(opening, askPlain)
		if reason == nil {
			again.release()
		}
		return reason
	})
	if !errors.Is(reason, errNotHere) && !errors.Is(reason, shardway.ErrMappingOffline) {
		return err
	}
	return &MovedError{Map: v.o.m.ShardMap().Name, Shard: v.route.Shard.Name, Err: err, undone: undone}
}

// movedBefore adds to the error of a transaction that its session was ended by a
// change of the mapping, when that was in an earlier attempt and the mapping is
// away.
func (t *transaction) movedBefore(err error) error {
	var lookup *shardway.LookupError
	switch {
	case !t.moved || err == nil || errors.As(err, new(*MovedError)):
		return err
	case !errors.Is(err, shardway.ErrMappingOffline) && !errors.Is(err, shardway.ErrStale), !errors.As(err, &lookup):
		return err
	}
	return &MovedError{Map: lookup.Map, Shard: lookup.Shard, Err: err, undone: true}
}

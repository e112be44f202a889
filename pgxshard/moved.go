package pgxshard

import (
	"context"
	"errors"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
)

// askLimit bounds the time to find out why a session was ended.
const askLimit = 2 * time.Second

// told returns err, or a [shardway.MovedError] around it if the server has ended the
// session because of a change of the mapping.
func (v *visit) told(ctx context.Context, err error, undone bool) error {
	if err == nil || replicaset.Over(ctx) || !postgres.EndedByServer(err) {
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
	return &shardway.MovedError{Map: v.o.m.ShardMap().Name, Shard: v.route.Shard.Name, Err: err, Undone: undone}
}

package sqlshard

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
func (o *opener) told(ctx context.Context, c *Conn, undone bool, err error) error {
	if err == nil || c.route.MappingID == 0 || replicaset.Over(ctx) || !c.session.pool.engine.dialect.EndedByServer(err) {
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
	return &shardway.MovedError{Map: o.m.ShardMap().Name, Shard: c.Shard(), Err: err, Undone: undone}
}

// explain is told for a statement of the connection.
func (c *Conn) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return c.opener.told(ctx, c, false, err)
}

package sqlshard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/retry"
)

// TxOptions shape a transaction of [DB.InTx]. The zero value is a transaction
// that can write, in the isolation level that the database has by default.
type TxOptions struct {
	// Isolation is the level; the guarantee of InTx is the same in all. One that
	// the engine does not have is refused with a [*shardway.ArgumentError].
	Isolation sql.IsolationLevel
	// ReadOnly is a transaction that only reads: it takes no lock, may run on the
	// secondaries that the handle's criteria choose, and holds up no change of a
	// mapping. The shard had the key when the transaction began.
	ReadOnly bool
	// Applied finds out, after a commit whose acknowledgement was lost, whether
	// it took place: see [retry.Policy.Applied]. Nil leaves the outcome open.
	Applied func(ctx context.Context) (bool, error)
}

// InTx runs fn in a transaction on the shard that has the key, on the session's
// own connection, and commits if fn returns nil. If it commits, the shard
// owned the key at that moment: the transaction begins by locking the key's
// mapping on the shard, so that changes of the mapping wait for it, and it for
// them. Options may be nil.
//
// After a transient fault the whole unit is run again, as the handle's policy
// says ([DB.WithRetry]): routed, opened, begun, fn called anew, with
// [retry.AttemptNumber] in its context. So fn must do nothing outside the
// transaction that may not be done twice. A commit whose outcome is unknown is
// not repeated, and matches [retry.ErrCommitUnknown], unless options.Applied
// finds out.
//
// Errors of fn are returned as they are, wrapped; those of opening are the ones
// of [DB.OpenConnectionForKey]. fn ends the transaction by what it returns: if
// it ends it by itself, or sends a statement that would (COMMIT; on MySQL and
// MariaDB also CREATE TABLE and the like), the work is rolled back and the error
// is a [*shardway.ArgumentError]. A panic of fn rolls back and passes through.
// After the end of ctx nothing is committed.
//
// A handle made by [DB.With] for reads takes options that are ReadOnly only.
func (d *DB[K]) InTx(ctx context.Context, k K, options *TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	key, err := d.keys.Key(k)
	if err != nil {
		return &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	return d.opener.inTx(ctx, key, d.want, options, fn)
}

// InTx is [DB.InTx] for the key that ctx carries.
func (d *ContextDB) InTx(ctx context.Context, options *TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	key, ok := shardway.KeyFromContext(ctx)
	if !ok {
		return &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: shardway.ErrKeyRequired}
	}
	return d.opener.inTx(ctx, key, d.want, options, fn)
}

// WithRetry returns a DB whose transactions are repeated by another policy. Its
// Applied gives way to that of a call's options, its Shard to that of the key.
// The policy of [New] is the zero policy of package retry with a
// [retry.Budget], so that repeating adds at most a tenth to the load of a shard
// that is in trouble; retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}
// repeats nothing. All else is shared with d.
func (d *DB[K]) WithRetry(p retry.Policy) *DB[K] {
	want := d.want
	want.retry = &p
	return &DB[K]{keys: d.keys, opener: d.opener, want: want}
}

// errWrites is a body that writes in a transaction that only reads: no other
// server would take it.
var errWrites = &shardway.ArgumentError{Argument: "options.ReadOnly", Reason: "does not go with statements that write"}

// inTx repeats a unit while its faults are transient.
func (o *opener) inTx(ctx context.Context, key shardway.Key, want want, options *TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if options == nil {
		options = &TxOptions{}
	}
	switch {
	case fn == nil:
		return &shardway.ArgumentError{Argument: "fn", Reason: "is missing"}
	case !want.writes && !options.ReadOnly:
		return &shardway.ArgumentError{Argument: "options", Reason: "are for writes, the handle's criteria for reads: set ReadOnly, or use a handle for the primary"}
	}
	policy := retry.Policy{Budget: &o.budget}
	if want.retry != nil {
		policy = *want.retry
	}
	if options.Applied != nil {
		policy.Applied = options.Applied
	}
	w := opening{want: want}
	if route, err := o.m.Lookup(ctx, key, shardway.CacheOnly); err == nil {
		policy.Shard, w.route = route.Shard.ID, &route
	}
	if unitOf(ctx) == nil {
		ctx = WithUnit(ctx)
	}
	moved := false
	return retry.Do(ctx, policy, func(ctx context.Context, _ int) error {
		err := o.once(ctx, key, w, *options, fn)
		w.route = nil // it was for the first attempt
		if moved && err != nil {
			err = replicaset.MovedBefore(err)
		}
		moved = moved || errors.As(err, new(*shardway.MovedError))
		return err
	})
}

// once runs a unit once.
func (o *opener) once(ctx context.Context, key shardway.Key, w opening, options TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	f := &fence{ctx: ctx, options: options}
	w.fence = f
	conn, err := o.open(ctx, key, w)
	if err != nil {
		return retry.Uncommitted(err)
	}
	defer conn.Close() // also rolls back, when fn panics
	if err = fn(ctx, f.tx); err != nil {
		_ = f.tx.Rollback() // what fn says is more
		if misuse := f.finish(false); misuse != nil {
			return misuse
		}
		if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if options.ReadOnly && conn.session.pool.engine.dialect.ReadOnly(err) {
			return &retry.StoppedError{Attempts: retry.AttemptNumber(ctx), Cause: errWrites, Err: err}
		}
		return retry.Uncommitted(o.told(ctx, conn, true, err))
	}
	if err = f.finish(true); err != nil {
		_ = f.tx.Rollback()
		return err
	}
	if ctx.Err() != nil {
		_ = f.tx.Rollback()
		return retry.Uncommitted(fmt.Errorf("the transaction was rolled back: %w", context.Cause(ctx)))
	}
	err = f.tx.Commit()
	switch {
	case err == nil:
		return nil
	case !f.sent(), options.ReadOnly && refusesWrites[conn.route.Shard.Location.Engine]: // nothing to keep
		return retry.Uncommitted(o.told(ctx, conn, true, err))
	}
	return o.failure(key, conn.route, &opening{Attempt: replicaset.Attempt{Server: conn.Server()}}, retry.Committing(o.told(ctx, conn, false, err)))
}

// refusesWrites are the engines that refuse to write in a transaction that only
// reads.
var refusesWrites = map[string]bool{"postgres": true, "mysql": true}

// checkOptions refuses what the engine of a route does not have.
func (f *fence) checkOptions(engine string) error {
	d, err := dialect.For(engine)
	if err == nil && !d.HasIsolation(int(f.options.Isolation)) {
		return &shardway.ArgumentError{Argument: "options.Isolation", Value: f.options.Isolation.String(), Reason: "is no isolation level of " + engine}
	}
	return nil
}

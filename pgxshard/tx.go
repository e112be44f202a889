package pgxshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
	"github.com/shardway/shardway/retry"
)

// MisuseError is a transaction that was not committed because its body did what
// it must not do. The session is closed unless it is clean.
type MisuseError struct {
	Reason string // what the body did
}

// Error says what the body did.
func (e *MisuseError) Error() string { return "the body of a transaction " + e.Reason }

// Is reports whether target is [shardway.ErrInvalid].
func (e *MisuseError) Is(target error) bool { return target == shardway.ErrInvalid }

// InTx runs a body in a transaction on the shard of a key and commits it. If it
// commits, the shard owned the key online at that moment, in every isolation
// level: begin and validation are one round trip, and the validation locks the
// mapping until the end. The server shows the session as one in use for the
// mapping.
//
// The body must do its work through tx with the context that it is given, close
// its rows, and neither end the transaction nor use it later: then InTx fails
// with a [*MisuseError]. When it returns an error or panics, the transaction is
// rolled back. A context that has ended when the body returns is not committed.
//
// When a fault is transient everything is done again as Config.Retry says: the
// key is routed, the transaction begun and the body run, which learns by
// [retry.AttemptNumber] how often that was. A commit whose answer was lost is
// not repeated: the error matches [retry.ErrCommitUnknown], unless Config.Retry
// has a function that finds out.
//
// Read-only transactions lock nothing. On a DB for reads, see [DB.With],
// transactions are read-only and a secondary may run them.
//
// Errors are those of [DB.Exec] on the way to the shard, those of the body, a
// [*shardway.MovedError] if the session was ended because the mapping goes elsewhere, a
// [*retry.StoppedError] around the last one, and ErrInvalid for options that are
// none: an unknown isolation level, or texts for begin and commit.
func (d *DB[K]) InTx(ctx context.Context, k K, options pgx.TxOptions, body func(ctx context.Context, tx pgx.Tx) error) error {
	t := transaction{want: d.want, options: options, body: body}
	var err error
	if t.key, err = d.keys.Key(k); err == nil {
		err = t.check()
	}
	if err != nil {
		return &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	policy := d.opener.cfg.Retry
	if policy.Budget != nil && policy.Shard == nil {
		if route, err := d.opener.m.Lookup(ctx, t.key, shardway.CacheOnly); err == nil {
			policy.Shard, t.route = route.Shard.ID, &route
		}
	}
	t.unit = &replicaset.Unit{}
	err = retry.Do(ctx, policy, func(ctx context.Context, _ int) error { return d.opener.inTx(ctx, &t) })
	if err != nil && t.moved {
		err = replicaset.MovedBefore(err)
	}
	return err
}

// transaction is a unit of work.
type transaction struct {
	key     shardway.Key
	want    want
	options pgx.TxOptions
	body    func(ctx context.Context, tx pgx.Tx) error
	unit    *replicaset.Unit
	route   *shardway.Route // for the first attempt, when it was looked up already
	moved   bool            // a session was ended by a change of the mapping
}

// check refuses options that cannot be meant.
func (t *transaction) check() error {
	o := &t.options
	if t.body == nil {
		return &shardway.ArgumentError{Argument: "body", Reason: "is missing"}
	}
	if o.BeginQuery != "" || o.CommitQuery != "" {
		return &shardway.ArgumentError{Argument: "options", Value: o.BeginQuery + o.CommitQuery, Reason: "has a text in place of begin or commit"}
	}
	if !slices.Contains([]pgx.TxIsoLevel{"", pgx.ReadUncommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}, o.IsoLevel) {
		return &shardway.ArgumentError{Argument: "options.IsoLevel", Value: string(o.IsoLevel), Reason: "is no isolation level"}
	}
	if !slices.Contains([]pgx.TxAccessMode{"", pgx.ReadOnly, pgx.ReadWrite}, o.AccessMode) {
		return &shardway.ArgumentError{Argument: "options.AccessMode", Value: string(o.AccessMode), Reason: "is no access mode"}
	}
	if !slices.Contains([]pgx.TxDeferrableMode{"", pgx.Deferrable, pgx.NotDeferrable}, o.DeferrableMode) {
		return &shardway.ArgumentError{Argument: "options.DeferrableMode", Value: string(o.DeferrableMode), Reason: "is no mode"}
	}
	if !t.want.writes && o.AccessMode == pgx.ReadWrite {
		return &shardway.ArgumentError{Argument: "options.AccessMode", Value: string(o.AccessMode), Reason: "is not for a DB for reads"}
	}
	if !t.want.writes {
		o.AccessMode = pgx.ReadOnly
	}
	return nil
}

// inTx runs a transaction once.
func (o *opener) inTx(ctx context.Context, t *transaction) error {
	var v *visit
	var inner pgx.Tx
	w := opening{want: t.want, Attempt: replicaset.Attempt{Unit: t.unit}, route: t.route}
	t.route = nil
	err := o.forKey(ctx, t.key, &w, func(_, opening context.Context, at *visit) (err error) {
		inner, err = at.begin(opening, &t.options)
		v = at
		return err
	})
	if err != nil {
		return retry.Uncommitted(err)
	}
	err = v.transact(ctx, &tx{inner: inner}, t.body)
	t.moved = t.moved || errors.As(err, new(*shardway.MovedError))
	return err
}

// begin begins a transaction and validates the route in it, in one round trip.
func (v *visit) begin(ctx context.Context, options *pgx.TxOptions) (pgx.Tx, error) {
	v.reads = v.reads || options.AccessMode == pgx.ReadOnly
	b := &pgx.Batch{}
	b.BeginTx(*options)
	if v.o.cfg.Validation == Validate {
		v.queueQuestion(b, !v.reads)
	}
	br := v.conn.SendBatch(ctx, b)
	_, err := br.Exec()
	status := int16(shardway.Online)
	if err == nil && b.Len() > 1 {
		status = 0
		err = br.QueryRow().Scan(v.answer(&status)...)
	}
	if closeErr := br.Close(); err == nil {
		err = closeErr
	}
	if err = v.answered(ctx, status, err); err != nil {
		if !v.rollback(ctx, br.Tx()) {
			v.dirty = true
		}
		return nil, err
	}
	return br.Tx(), nil
}

// queueQuestion queues the validation of a transaction.
func (v *visit) queueQuestion(b *pgx.Batch, lock bool) {
	id := int64(v.route.MappingID)
	switch {
	case v.o.cfg.Pooler && lock:
		b.Queue(askLocked, id)
	case v.o.cfg.Pooler:
		b.Queue(askPlain, id)
	case lock:
		b.Queue(tagLocked, dialect.Tag(id), id)
	default:
		b.Queue(tagReadOnly, dialect.Tag(id), id)
	}
}

// answer are the destinations of a validation's row.
func (v *visit) answer(status *int16) []any {
	if v.o.cfg.Pooler {
		return []any{status}
	}
	return []any{status, nil}
}

// rollback takes a transaction back and reports whether the session is clean.
func (v *visit) rollback(ctx context.Context, tx pgx.Tx) bool {
	conn := v.conn.Conn()
	if conn.IsClosed() || conn.PgConn().IsBusy() {
		return false
	}
	if conn.PgConn().TxStatus() == 'I' {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	return tx.Rollback(ctx) == nil
}

// rollbackLimit bounds the wait for the answer to a rollback. A session that
// gives none in time is closed, which takes the transaction back too.
const rollbackLimit = 5 * time.Second

// transact runs the body and commits, or takes the transaction back.
func (v *visit) transact(ctx context.Context, t *tx, body func(ctx context.Context, tx pgx.Tx) error) error {
	v.dirty = true // until the session is known to be clean
	defer v.release()
	err := t.run(ctx, body)
	conn := v.conn.Conn()
	v.learn(ctx, err)
	misuse := t.misuse
	switch {
	case misuse != nil:
	case !conn.IsClosed() && conn.PgConn().TxStatus() == 'I':
		misuse = &MisuseError{"ended the transaction by itself"}
	case err == nil && conn.PgConn().IsBusy() && !conn.IsClosed():
		misuse = &MisuseError{"left rows or results open"}
	}
	if misuse != nil {
		v.dirty = !v.rollback(ctx, t.inner)
		return errors.Join(misuse, err)
	}
	if err == nil {
		err = v.demoted()
	}
	if err == nil && replicaset.Over(ctx) {
		err = fmt.Errorf("the context ended before the commit: %w", replicaset.Ended(ctx, "committing", context.Cause(ctx)))
	}
	if err != nil {
		v.dirty = !v.rollback(ctx, t.inner)
		return retry.Uncommitted(v.told(ctx, err, true))
	}
	err = t.inner.Commit(ctx)
	v.dirty = err != nil && conn.PgConn().TxStatus() != 'I'
	v.learn(ctx, err)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return &MisuseError{"passed over the error of a statement, after which nothing can be committed"}
	}
	return retry.Committing(err)
}

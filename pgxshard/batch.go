package pgxshard

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
)

// SendBatch sends a batch for a key: one round trip for all queries and their
// validation, and one transaction, so that all of them run or none. It does what
// [DB.Exec] does otherwise; the results must be closed, and keep their session
// until then.
//
// A batch tracer sees the validation as the first query. [pgx.Batch.BeginTx] is
// refused: use [DB.InTx] and send the batch there.
func (d *DB[K]) SendBatch(ctx context.Context, k K, b *pgx.Batch) pgx.BatchResults {
	if b == nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, &shardway.ArgumentError{Argument: "b", Reason: "is missing"})
	}
	all, err := readBatch(b)
	var got pgx.BatchResults
	err = d.at(ctx, k, err, func(ctx, _ context.Context, v *visit) error {
		ahead := &pgx.Batch{}
		n := v.queueAhead(ahead, v.locks(all))
		for _, q := range b.QueuedQueries { // copies: a query remembers the session it was sent on
			ahead.QueuedQueries = append(ahead.QueuedQueries, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn})
		}
		br := v.conn.Conn().SendBatch(ctx, ahead)
		if err := v.readAhead(ctx, br, n); err != nil {
			return err
		}
		got = &batchResults{BatchResults: br, v: v, ctx: ctx, stays: all.stays}
		return nil
	})
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return got
}

// readBatch reads the texts of a batch.
func readBatch(b *pgx.Batch) (all text, err error) {
	if pgx.FailedBatchResults(b, replicaset.ErrRetired).Tx() != nil {
		return all, &shardway.ArgumentError{Argument: "b", Reason: "begins a transaction: use InTx"}
	}
	for _, q := range b.QueuedQueries {
		t := read(q.SQL)
		all.ride, all.stays = max(all.ride, t.ride), all.stays || t.stays
	}
	c := call{text: all}
	return all, c.check()
}

// batchResults are results that keep their session until they are closed.
type batchResults struct {
	pgx.BatchResults

	v      *visit
	ctx    context.Context //nolint:containedctx // of the batch
	stays  bool
	closed bool
	err    error
}

// Close reads what is left and gives the session back. It is idempotent.
func (r *batchResults) Close() error {
	if r.closed {
		return r.err
	}
	r.closed = true
	returned := false
	defer func() {
		r.v.dirty = r.v.dirty || !returned // a function of the caller may have panicked
		r.v.release()
	}()
	r.err = r.BatchResults.Close()
	r.v.settle(r.ctx, &call{text: text{stays: r.stays}}, own(r.err))
	returned = true
	return r.err
}

// CopyFrom copies rows into a table of the shard of a key, in a transaction that
// holds the mapping where it is: begin and validation are one round trip, COPY
// and commit as many as they are. Unlike [DB.InTx] it is not repeated, for rows
// can be read once; errors are those of InTx.
func (d *DB[K]) CopyFrom(ctx context.Context, k K, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (n int64, err error) {
	key, err := d.keys.Key(k)
	switch {
	case err != nil:
	case source == nil:
		err = &shardway.ArgumentError{Argument: "source", Reason: "is missing"}
	case !d.want.writes:
		err = &shardway.ArgumentError{Argument: "criteria", Value: d.want.criteria.String(), Reason: "are for reads"}
	}
	if err != nil {
		return 0, &shardway.LookupError{Map: d.opener.m.ShardMap().Name, Err: err}
	}
	t := transaction{key: key, want: d.want, body: func(ctx context.Context, tx pgx.Tx) (err error) {
		n, err = tx.CopyFrom(ctx, table, columns, source)
		return err
	}}
	if err = d.opener.inTx(ctx, &t); err != nil {
		return 0, err
	}
	return n, nil
}

package pgxshard

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/shardway/shardway"
)

// exec runs a call on a visited shard.
func (v *visit) exec(ctx context.Context, c call) (tag pgconn.CommandTag, err error) {
	if err = c.prepare(ctx, v); err != nil {
		return tag, &statementError{err}
	}
	if c.text.ride == rideAlone {
		return v.execAlone(ctx, c)
	}
	ctx = v.traceStart(ctx, &c)
	defer func() { v.traceEnd(ctx, tag, err) }()
	switch {
	case len(c.args) == 0 && (c.text.several || c.mode == pgx.QueryExecModeSimpleProtocol):
		tag, err = v.execText(ctx, &c)
	case c.mode == pgx.QueryExecModeSimpleProtocol:
		tag, err = v.execSimple(ctx, &c)
	default:
		if len(c.args) == 0 {
			c.mode = pgx.QueryExecModeExec // nothing is prepared for it, as in pgx
		}
		tag, err = v.execPipelined(ctx, &c)
	}
	if e := fromServer(err); e != nil && e.Code == notInPipeline && !c.text.several && errors.As(err, new(*statementError)) {
		return v.execAlone(ctx, c)
	}
	v.settle(ctx, &c, err)
	return tag, err
}

// notInPipeline is the code of statements that want to be alone.
const notInPipeline = "25001"

func (v *visit) execPipelined(ctx context.Context, c *call) (tag pgconn.CommandTag, err error) {
	p, err := v.pipelined(ctx, c)
	if err != nil {
		return tag, err
	}
	results, err := p.GetResults()
	if r, ok := results.(*pgconn.ResultReader); ok && err == nil {
		tag, err = r.Close()
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	return tag, own(err)
}

// own marks an error as that of the caller's statement; nil stays nil.
func own(err error) error {
	if err == nil {
		return nil
	}
	return &statementError{err}
}

// execAlone validates by a round trip of its own and runs a call as it is.
func (v *visit) execAlone(ctx context.Context, c call) (tag pgconn.CommandTag, err error) {
	if err = v.ask(ctx, askPlain); err != nil {
		return tag, err
	}
	tag, err = v.conn.Conn().Exec(ctx, c.sql, c.args...)
	err = own(err)
	v.untags = false
	v.settle(ctx, &c, err)
	return tag, err
}

// execText sends the texts of validation and statements as one: PostgreSQL runs
// them in one transaction.
func (v *visit) execText(ctx context.Context, c *call) (tag pgconn.CommandTag, err error) {
	prefix, ahead := v.textAhead(v.locks(c.text))
	m := v.conn.Conn().PgConn().Exec(ctx, prefix+c.sql)
	passed := 0
	for m.NextResult() {
		if t, err := m.ResultReader().Close(); err == nil {
			tag, passed = t, passed+1
		}
	}
	switch err = m.Close(); {
	case err == nil:
		return tag, nil
	case passed >= ahead: // the validation was among them
		return tag, &statementError{err}
	}
	return tag, v.blameText(ctx, err)
}

// textAhead is sendAhead as text, and the number of its statements.
func (v *visit) textAhead(lock bool) (text string, n int) {
	var b strings.Builder
	if v.untags = v.state.tagged; v.untags {
		b.WriteString(untag + ";")
		n++
	}
	if v.o.cfg.Validation == Validate {
		fence := fencePlain
		if lock {
			fence = fenceLocked
		}
		b.WriteString(inlined(fence, v.route.MappingID) + ";\n")
		n++
	}
	return b.String(), n
}

// blameText tells the validation's error from those of the caller's statements,
// whose syntax is checked before anything runs.
func (v *visit) blameText(ctx context.Context, err error) error {
	e := fromServer(err)
	switch {
	case refused(err) != nil, e == nil, e.Severity == "FATAL":
		return v.unanswered(ctx, err)
	case strings.HasPrefix(e.Code, "42"):
		return v.blame(ctx, err)
	}
	return &statementError{err}
}

// execSimple is execPipelined in the simple protocol.
func (v *visit) execSimple(ctx context.Context, c *call) (tag pgconn.CommandTag, err error) {
	br, err := v.sendSimple(ctx, c)
	if err != nil {
		return tag, err
	}
	tag, err = br.Exec()
	if closeErr := br.Close(); err == nil {
		err = closeErr
	}
	return tag, own(err)
}

// sendSimple sends a call behind its validation in the simple protocol, for
// which package pgx writes the arguments into the text.
func (v *visit) sendSimple(ctx context.Context, c *call) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	n := v.queueAhead(b, v.locks(c.text))
	b.Queue(c.sql, c.args...)
	br := v.conn.Conn().SendBatch(ctx, b)
	if err := v.readAhead(ctx, br, n); err != nil {
		return nil, err
	}
	return br, nil
}

// queueAhead is sendAhead for a batch. It returns the number of queries.
func (v *visit) queueAhead(b *pgx.Batch, lock bool) int {
	if v.untags = v.state.tagged; v.untags {
		b.Queue(untag)
	}
	if v.o.cfg.Validation == Validate {
		fence := fencePlain
		if lock {
			fence = fenceLocked
		}
		b.Queue(fence, int64(v.route.MappingID))
	}
	return b.Len()
}

// readAhead reads the results of queueAhead. When it fails, the batch is closed.
func (v *visit) readAhead(ctx context.Context, br pgx.BatchResults, n int) error {
	for range n {
		if _, err := br.Exec(); err != nil {
			_ = br.Close()
			var unsent pgx.ErrPreprocessingBatch
			switch {
			case errors.As(err, &unsent):
				return v.blame(ctx, unsent.Unwrap())
			case v.pool.mode == pgx.QueryExecModeSimpleProtocol:
				return v.blameText(ctx, err)
			}
			return v.unanswered(ctx, err)
		}
	}
	return nil
}

// settle learns from how a call ended.
func (v *visit) settle(ctx context.Context, c *call, err error) {
	if err != nil {
		v.state.invalidate(c.sql)
		var said *statementError
		if errors.As(err, &said) {
			v.learn(ctx, said.err)
		}
	} else if v.untags {
		v.state.tagged = false
	}
	v.dirty = v.dirty || c.text.stays
}

func (v *visit) traceStart(ctx context.Context, c *call) context.Context {
	if t := v.pool.tracer; t != nil {
		return t.TraceQueryStart(ctx, v.conn.Conn(), c.given)
	}
	return ctx
}

func (v *visit) traceEnd(ctx context.Context, tag pgconn.CommandTag, err error) {
	if t := v.pool.tracer; t != nil {
		t.TraceQueryEnd(ctx, v.conn.Conn(), pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// query runs a call that returns rows. The visit belongs to the rows.
func (v *visit) query(ctx context.Context, c call) (r *rows, err error) {
	if err = c.prepare(ctx, v); err != nil {
		return nil, &statementError{err}
	}
	if c.text.ride == rideAlone {
		return v.queryAlone(ctx, c)
	}
	ctx = v.traceStart(ctx, &c)
	r = &rows{v: v, call: c, ctx: ctx, traced: true}
	defer func() {
		if err != nil {
			v.traceEnd(ctx, pgconn.CommandTag{}, err)
			v.settle(ctx, &c, err)
		}
	}()
	if c.mode == pgx.QueryExecModeSimpleProtocol {
		br, err := v.sendSimple(ctx, &c)
		if err != nil {
			return nil, err
		}
		r.Rows, err = br.Query() // its error is that of the rows too
		r.end = br.Close
		_, ofBatches := v.pool.tracer.(pgx.BatchTracer)
		r.traced = ofBatches || err != nil // else these rows tell the end themselves
		return r, nil
	}
	p, err := v.pipelined(ctx, &c)
	if err != nil {
		return nil, err
	}
	results, err := p.GetResults()
	reader, ok := results.(*pgconn.ResultReader)
	if err != nil || !ok {
		_ = p.Close()
		if e := fromServer(err); e != nil && e.Code == notInPipeline {
			v.traceEnd(ctx, pgconn.CommandTag{}, err)
			return v.queryAlone(ctx, c)
		}
		return nil, &statementError{err}
	}
	r.Rows = pgx.RowsFromResultReader(v.conn.Conn().TypeMap(), reader)
	r.end = p.Close
	return r, nil
}

func (v *visit) queryAlone(ctx context.Context, c call) (*rows, error) {
	if err := v.ask(ctx, askPlain); err != nil {
		return nil, err
	}
	v.untags = false
	inner, err := v.conn.Conn().Query(ctx, c.sql, c.args...)
	if err != nil {
		inner.Close()
		err = &statementError{err}
		v.settle(ctx, &c, err)
		return nil, err
	}
	return &rows{Rows: inner, v: v, call: c, ctx: ctx}, nil
}

// check refuses statements that cannot be run by themselves.
func (c *call) check() error {
	if c.text.ride == rideRefused {
		return &shardway.ArgumentError{Argument: "sql", Reason: "begins or ends a transaction: use InTx"}
	}
	return nil
}

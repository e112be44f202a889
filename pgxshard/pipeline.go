package pgxshard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/replicaset"
)

// call is a statement of the caller, with the options that pgx takes from its
// first arguments.
type call struct {
	sql     string
	args    []any
	given   pgx.TraceQueryStartData // for tracers: sql and args before they were read
	text    text
	mode    pgx.QueryExecMode
	formats pgx.QueryResultFormats
	byOID   pgx.QueryResultFormatsByOID
	rewrite pgx.QueryRewriter
}

// newCall reads the options as pgx does.
func newCall(sql string, args []any) call {
	c := call{sql: sql, args: args, given: pgx.TraceQueryStartData{SQL: sql, Args: args}}
	for len(c.args) > 0 {
		switch option := c.args[0].(type) {
		case pgx.QueryExecMode:
			c.mode = option
		case pgx.QueryResultFormats:
			c.formats = option
		case pgx.QueryResultFormatsByOID:
			c.byOID = option
		case pgx.QueryRewriter:
			c.rewrite = option
		default:
			c.text = read(sql)
			return c
		}
		c.args = c.args[1:]
	}
	c.text = read(sql)
	return c
}

// prepare makes a call ready for a session.
func (c *call) prepare(ctx context.Context, v *visit) error {
	if c.rewrite != nil {
		sql, args, err := c.rewrite.RewriteQuery(ctx, v.conn.Conn(), c.sql, c.args)
		if err != nil {
			return fmt.Errorf("rewriting the query: %w", err)
		}
		c.sql, c.args, c.rewrite = sql, args, nil
		c.text = read(sql)
	}
	if c.mode == 0 {
		c.mode = v.pool.mode
	}
	if c.mode == pgx.QueryExecModeSimpleProtocol && v.pool.mode != c.mode {
		c.mode = pgx.QueryExecModeExec // reads and writes values in the same way
	}
	return nil
}

// locks reports whether the validation of a call must hold the mapping.
func (v *visit) locks(t text) bool { return t.ride != rideRead && !v.reads }

// pipelined sends a call behind its validation. When it returns without an
// error the validation has passed, the caller's statement is the next result of
// the pipeline, and the pipeline is the caller's to close.
func (v *visit) pipelined(ctx context.Context, c *call) (*pgconn.Pipeline, error) {
	sd, err := v.describe(ctx, c)
	if err != nil {
		return nil, v.blame(ctx, err)
	}
	s := v.state
	if err := s.builder.Build(v.conn.Conn().TypeMap(), sd, c.args); err != nil {
		return nil, &statementError{err}
	}
	p := v.conn.Conn().PgConn().StartPipeline(ctx)
	ahead := v.sendAhead(p, v.locks(c.text))
	switch {
	case sd == nil:
		p.SendQueryParams(c.sql, s.builder.ParamValues, nil, s.builder.ParamFormats, s.builder.ResultFormats)
	case sd.Name == "":
		p.SendQueryParams(c.sql, s.builder.ParamValues, sd.ParamOIDs, s.builder.ParamFormats, c.resultFormats(sd, s))
	default:
		p.SendQueryStatement(sd, s.builder.ParamValues, s.builder.ParamFormats, c.resultFormats(sd, s))
	}
	if err := p.Sync(); err != nil {
		_ = p.Close()
		return nil, v.unanswered(ctx, err)
	}
	if err := ahead.read(p); err != nil {
		_ = p.Close()
		return nil, v.unanswered(ctx, err)
	}
	return p, nil
}

// resultFormats are those that the caller asks for, or those of the types.
func (c *call) resultFormats(sd *pgconn.StatementDescription, s *state) []int16 {
	switch {
	case c.byOID != nil:
		formats := make([]int16, len(sd.Fields))
		for i := range formats {
			formats[i] = c.byOID[sd.Fields[i].DataTypeOID]
		}
		return formats
	case c.formats != nil:
		return c.formats
	}
	return s.builder.ResultFormats
}

// describe returns the description of a call in the modes that need one. The
// first time that a session sees a statement this takes a round trip, as it
// does in pgx.
func (v *visit) describe(ctx context.Context, c *call) (sd *pgconn.StatementDescription, err error) {
	s, conn := v.state, v.conn.Conn().PgConn()
	switch c.mode {
	case pgx.QueryExecModeCacheStatement:
		if sd = s.prepared.get(c.sql); sd != nil {
			return sd, nil
		}
		if sd, err = conn.Prepare(ctx, s.name(), c.sql, nil); err == nil {
			s.remember(sd, v.pool.statements)
		}
	case pgx.QueryExecModeCacheDescribe:
		if sd = s.shapes.get(c.sql); sd != nil {
			return sd, nil
		}
		if sd, err = conn.Prepare(ctx, "", c.sql, nil); err == nil {
			s.shapes.put(sd, v.pool.descriptions)
		}
	case pgx.QueryExecModeDescribeExec:
		sd, err = conn.Prepare(ctx, "", c.sql, nil)
	case pgx.QueryExecModeExec:
	default:
		return nil, &shardway.ArgumentError{Argument: "mode", Value: c.mode.String(), Reason: "is no exec mode"}
	}
	if err != nil {
		return nil, err
	}
	return sd, nil
}

// ahead is what was sent before the caller's statement, in order.
type ahead struct {
	state    *state
	gone     int         // statements to forget
	untag    bool        // the session's tag
	fence    *fenceState // nil without validation
	prepares bool        // the fence
}

// sendAhead sends what comes before the caller's statement: the validation
// last.
func (v *visit) sendAhead(p *pgconn.Pipeline, lock bool) ahead {
	s := v.state
	a := ahead{state: s, gone: len(s.gone), untag: s.tagged}
	v.untags = a.untag
	for _, name := range s.gone {
		p.SendDeallocate(name)
	}
	if a.untag {
		p.SendQueryParams(untag, nil, nil, nil, nil)
	}
	if v.o.cfg.Validation == None {
		return a
	}
	values := s.mapping(v.route.MappingID)
	i := 0
	if lock {
		i = 1
	}
	a.fence = &s.fences[i]
	if v.pool.mode != pgx.QueryExecModeCacheStatement { // names may lead nowhere here
		p.SendQueryParams(a.fence.statement.SQL, values, a.fence.statement.ParamOIDs, binaryFormat, binaryFormat)
		return a
	}
	if a.prepares = !a.fence.prepared; a.prepares {
		p.SendPrepare(a.fence.statement.Name, a.fence.statement.SQL, a.fence.statement.ParamOIDs)
	}
	p.SendQueryStatement(&a.fence.statement, values, binaryFormat, binaryFormat)
	return a
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

// mapping returns a mapping's id as the one parameter of a validation.
func (s *state) mapping(id shardway.MappingID) [][]byte {
	binary.BigEndian.PutUint64(s.id[:], uint64(id))
	s.idValues[0] = s.id[:]
	return s.idValues[:]
}

// read reads the answers. The first error is that of the validation.
func (a *ahead) read(p *pgconn.Pipeline) error {
	for range a.gone {
		if _, err := p.GetResults(); err != nil {
			return err
		}
	}
	a.state.gone = a.state.gone[:0]
	if a.untag {
		if err := finish(p); err != nil {
			return err
		}
	}
	if a.prepares {
		if _, err := p.GetResults(); err != nil {
			return err
		}
		a.fence.prepared = true
	}
	if a.fence != nil {
		if err := finish(p); err != nil {
			return err
		}
	}
	return nil
}

// finish reads the next result of a pipeline to its end.
func finish(p *pgconn.Pipeline) error {
	results, err := p.GetResults()
	if err != nil {
		return err
	}
	r, ok := results.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("unexpected result %T in a pipeline", results)
	}
	_, err = r.Close()
	return err
}

// unanswered gives the error of a validation that was sent with a statement its
// meaning. When the connection broke without a word, nobody knows what became
// of the statement.
func (v *visit) unanswered(ctx context.Context, err error) error {
	switch {
	case pgconn.SafeToRetry(err) && !replicaset.Over(ctx):
		return fmt.Errorf("sending a statement: %w: %w: %w", errBroken, shardway.ErrUnavailable, err)
	case fromServer(err) == nil && !v.reads:
		v.learn(ctx, err)
		return &statementError{err}
	case pooled(err) && !v.reads: // a pooler's own words: the server may have done it
		return &statementError{err}
	}
	return v.checkFailed(ctx, err)
}

// pooled reports whether an error comes from a pooler that lost its server.
func pooled(err error) bool {
	e := fromServer(err)
	return e != nil && len(e.Code) == 5 && e.Code[:2] == "08"
}

// blame tells whether a statement failed to be prepared because its shard has
// moved, tables and all, or by its own fault. Nothing was done yet.
func (v *visit) blame(ctx context.Context, err error) error {
	if fromServer(err) == nil {
		if errors.Is(err, shardway.ErrInvalid) || replicaset.Over(ctx) {
			return &statementError{err}
		}
		return v.checkFailed(ctx, err)
	}
	if checked := v.ask(ctx, askPlain); checked != nil {
		return checked
	}
	return &statementError{err}
}

// ask validates the route by a question of its own, which takes a round trip.
func (v *visit) ask(ctx context.Context, question string) error {
	if v.o.cfg.Validation == None {
		return nil
	}
	conn := v.conn.Conn()
	var status int16
	var err error
	var answer []*pgconn.Result
	if pg := conn.PgConn(); v.pool.mode == pgx.QueryExecModeSimpleProtocol {
		answer, err = pg.Exec(ctx, inlined(question, v.route.MappingID)).ReadAll()
	} else {
		r := pg.ExecParams(ctx, question, v.state.mapping(v.route.MappingID), []uint32{pgtype.Int8OID}, binaryFormat, nil).Read()
		answer, err = []*pgconn.Result{r}, r.Err
	}
	switch {
	case err != nil:
	case len(answer[0].Rows) == 0:
		err = pgx.ErrNoRows
	default:
		err = conn.TypeMap().Scan(pgtype.Int2OID, pgtype.TextFormatCode, answer[0].Rows[0][0], &status)
	}
	return v.answered(ctx, status, err)
}

// inlined writes a mapping's id into a question.
func inlined(question string, id shardway.MappingID) string {
	return strings.ReplaceAll(question, "$1", strconv.FormatInt(int64(id), 10))
}

// answered gives the answer of the local map its meaning.
func (v *visit) answered(ctx context.Context, status int16, err error) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = errNotHere
	case err != nil:
		return v.checkFailed(ctx, err)
	case shardway.MappingStatus(status) == shardway.Online:
		return nil
	default:
		err = shardway.ErrMappingOffline
	}
	v.pool.failedChecks.Add(1)
	return err
}

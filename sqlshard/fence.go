package sqlshard

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/internal/replicaset"
)

// fence is a transaction of [DB.InTx] on its way: how it is to be begun and
// what has become of it.
type fence struct {
	ctx     context.Context //nolint:containedctx // of the transaction
	options TxOptions
	mapping int64   // id; of the route that is tried now
	tx      *sql.Tx // set once it has begun

	mu        sync.Mutex // guards the fields below
	finishing bool       // InTx is ending the transaction
	asked     bool       // a commit was sent
	ended     bool       // the transaction is over
	misuse    error      // what the body did that it must not
	undone    error      // by which the server took the transaction back
}

type fenceKey struct{}

func fenceOf(ctx context.Context) *fence {
	f, _ := ctx.Value(fenceKey{}).(*fence)
	return f
}

// beginAsker is an optional ability of an engine's driver: it begins a
// transaction on a connection and asks it a question, in one round trip. The
// answer is the first column of the first row. After an error the transaction
// is not nil if it has to be rolled back.
type beginAsker interface {
	BeginAsking(ctx context.Context, conn any, opts driver.TxOptions, question string, args []any) (tx driver.Tx, answer int64, found bool, err error)
}

// begins begins the transaction on the connection's session and checks in it
// that the mapping stands. The time for that is bounded by limited, that of the
// transaction by the fence's own context.
func (c *Conn) begins(limited context.Context) error {
	f := c.fence
	s := c.begin(f.ctx, nil)
	stop := context.AfterFunc(limited, s.cancel)
	f.mapping = int64(c.route.MappingID)
	tx, err := c.sc.BeginTx(context.WithValue(s, fenceKey{}, f), &sql.TxOptions{Isolation: f.options.Isolation, ReadOnly: f.options.ReadOnly})
	switch {
	case err != nil:
		stop()
		s.end()
		return err
	case !stop():
		_ = tx.Rollback() // what has to be rolled back is, or the session is closed
		return replicaset.Ended(limited, "beginning the transaction", context.Cause(limited))
	}
	f.tx = tx
	return nil
}

// beginFenced begins a transaction for whoever holds the fence.
func (s *session) beginFenced(ctx context.Context, f *fence, opts driver.TxOptions) (driver.Tx, error) {
	if opts.Isolation != 0 && keepsIsolation[s.pool.engine.Name()] {
		s.dirty = true
	}
	readOnly := opts.ReadOnly
	if cannotReadOnly[s.pool.engine.Name()] {
		opts.ReadOnly = false
	}
	question, args := s.fencing(f.mapping, opts.ReadOnly)
	tx, status, found, err := s.beginAsking(ctx, opts, question, args)
	if err != nil {
		err = s.pool.lockFailed(ctx, err, s.reused)
	} else {
		s.tagged(f.mapping, found, s.pool.engine.dialect.TagsTransaction())
		err = s.pool.judge(found, status)
	}
	if err != nil {
		s.dirty = s.dirty || tx == nil || tx.Rollback() != nil
		return nil, err
	}
	s.inTx, s.inReadOnly, s.fence = true, readOnly, f
	return &transaction{Tx: tx, session: s, ctx: ctx, scope: scopeOf(ctx), fence: f}, nil
}

// cannotReadOnly are the engines whose driver has no read-only transactions.
// There the mapping is locked for reads too.
var cannotReadOnly = map[string]bool{"sqlserver": true}

// beginAsking begins a transaction and asks a question in it, by the shortest
// way that the engine has.
func (s *session) beginAsking(ctx context.Context, opts driver.TxOptions, question string, args []driver.NamedValue) (driver.Tx, int64, bool, error) {
	if s.pool.asker != nil {
		values := make([]any, len(args))
		for i, a := range args {
			values[i] = a.Value
		}
		return s.pool.asker.BeginAsking(ctx, s.Conn, opts, question, values)
	}
	if text, err := s.compound(ctx, opts, question, args); text != "" || err != nil {
		return s.beginBy(ctx, text, err)
	}
	tx, err := s.beginAlone(ctx, opts)
	if err != nil {
		return nil, 0, false, err
	}
	var answer [1]int64
	found, err := s.ask(ctx, question, args, answer[:])
	return tx, answer[0], found, err
}

// compound returns the one statement that does both, where the engine has such
// a thing.
func (s *session) compound(ctx context.Context, opts driver.TxOptions, question string, args []driver.NamedValue) (string, error) {
	d := s.pool.engine.dialect
	if d.Name() != "mysql" {
		return "", nil
	}
	version, err := s.version(ctx)
	if err != nil {
		return "", err
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return d.Compound(version, int(opts.Isolation), opts.ReadOnly, question, values...), nil
}

// beginBy begins a transaction by a statement that asks too.
func (s *session) beginBy(ctx context.Context, text string, err error) (driver.Tx, int64, bool, error) {
	e, ok := s.Conn.(driver.ExecerContext)
	if err != nil || !ok {
		return nil, 0, false, cmp.Or(err, errNoTransactions)
	}
	var answer [1]int64
	found, err := s.ask(ctx, text, nil, answer[:])
	return &written{conn: e, ctx: ctx, d: s.pool.engine.dialect}, answer[0], found, err
}

// errNoTransactions is a driver that is too old.
var errNoTransactions = errors.New("the driver cannot begin transactions with options")

// beginAlone begins a transaction. One that writes takes the place of the
// single writer at once, where there is only one.
func (s *session) beginAlone(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	d := s.pool.engine.dialect
	e, ok := s.Conn.(driver.ExecerContext)
	if !d.SingleWriter || opts.ReadOnly || !ok {
		b, ok := s.Conn.(driver.ConnBeginTx)
		if !ok {
			return nil, errNoTransactions
		}
		return b.BeginTx(ctx, opts)
	}
	for _, text := range d.Begin(dialect.Write) {
		if _, err := e.ExecContext(ctx, text, nil); err != nil {
			return nil, err
		}
	}
	return &written{conn: e, ctx: ctx, d: d}, nil
}

// written is a transaction that is begun and ended by the text of statements.
type written struct {
	conn driver.ExecerContext
	ctx  context.Context //nolint:containedctx // of the transaction
	d    *dialect.Dialect
}

// Commit commits; when that fails, the transaction is taken back.
func (w *written) Commit() error {
	_, err := w.conn.ExecContext(w.ctx, w.d.Commit(), nil)
	if err != nil {
		return errors.Join(err, w.Rollback())
	}
	return nil
}

// Rollback takes the transaction back.
func (w *written) Rollback() error {
	_, err := w.conn.ExecContext(context.WithoutCancel(w.ctx), w.d.Rollback(), nil)
	return err
}

// lockFailed gives an error of beginning its meaning. A conflict is left as it
// is: a change of the mapping has got in between.
func (p *pool) lockFailed(ctx context.Context, err error, reused bool) error {
	if !replicaset.Over(ctx) && p.classify(err) == dialect.Transient {
		return fmt.Errorf("locking the mapping: %w", err)
	}
	return p.checkFailed(ctx, err, reused)
}

// judge says what the answer of a shard means for a mapping.
func (p *pool) judge(found bool, status int64) error {
	switch {
	case !found:
		p.failedChecks.Add(1)
		return errNotHere
	case shardway.MappingStatus(status) != shardway.Online:
		p.failedChecks.Add(1)
		return shardway.ErrMappingOffline
	}
	return nil
}

// commits is called before a commit is sent. It refuses what the body of a unit
// does by itself.
func (f *fence) commits() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.finishing {
		return f.misused("has called Commit: the transaction was rolled back")
	}
	f.asked = true
	return nil
}

// lose notes that the server has taken the whole transaction back, and the lock
// with it: what the body sends then would be kept at once, wherever the key is.
func (f *fence) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.undone == nil {
		f.undone = fmt.Errorf("the server has rolled the transaction back: %w", err)
	}
}

// lost is the error of whatever is sent after that.
func (f *fence) lost() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.undone
}

// over notes that the transaction is over.
func (f *fence) over() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// finish begins the end of the transaction, after its body has succeeded or
// not. Its error is what the body did that it must not.
func (f *fence) finish(succeeded bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishing = true
	if succeeded && f.misuse == nil && f.ended && f.ctx.Err() == nil {
		_ = f.misused("has called Rollback and returned no error")
	}
	return f.misuse
}

func (f *fence) sent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// misused notes a misuse, the first one. f.mu is held.
func (f *fence) misused(reason string) error {
	if f.misuse == nil {
		f.misuse = &shardway.ArgumentError{Argument: "fn", Reason: reason}
	}
	return f.misuse
}

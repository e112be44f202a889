package customers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/sqlshard"
)

const (
	writers  = 2
	pause    = 2 * time.Millisecond // between two units of a worker, and before a refused one is tried again
	patience = time.Minute          // for one unit, and for what await waits for
)

// phase is a part of the time in which the traffic runs.
type phase int

const (
	before phase = iota
	during
	after
	phases
)

// counts are what the traffic did in one phase.
type counts struct {
	writes, reads int // that succeeded
	moved         int // those of them that concerned customers who move
	offline       int // refusals because the mapping was offline
	changing      int // refusals because a change of the map was just being made
	retried       int // units that were refused and have succeeded in the end
}

func (c counts) plus(o counts) counts {
	return counts{c.writes + o.writes, c.reads + o.reads, c.moved + o.moved, c.offline + o.offline, c.changing + o.changing, c.retried + o.retried}
}

// traffic is two writers and a reader at work. What they do for one customer,
// from asking for a connection to its end, is a unit.
type traffic struct {
	s       *story
	db      *sqlshard.DB[int64]
	once    *sqlshard.DB[int64] // db that repeats nothing: that is told here
	cancel  context.CancelCauseFunc
	workers sync.WaitGroup
	ending  atomic.Bool // no new units

	mu    sync.Mutex // guards the fields below
	phase phase
	count [phases]counts
	units map[*unit]bool // under way
	news  chan struct{}  // closed when the counts have changed
}

// unit is one attempt at a unit of work.
type unit struct {
	customer int64
	ended    chan struct{}
}

// startTraffic sets the workers to work. The context it returns ends when one
// of them fails.
func (s *story) startTraffic(ctx context.Context, app *program) (context.Context, *traffic) {
	t := &traffic{s: s, db: app.db, once: app.db.WithRetry(retry.Policy{Backoff: retry.Backoff{Schedule: retry.Off}}), units: map[*unit]bool{}, news: make(chan struct{})}
	ctx, t.cancel = context.WithCancelCause(ctx)
	for w := range writers {
		t.work(ctx, w, t.write)
	}
	t.work(ctx, writers, t.read)
	return ctx, t
}

// work repeats a unit until the traffic ends.
func (t *traffic) work(ctx context.Context, worker int, do func(context.Context, int, int, *rand.Rand) error) {
	t.workers.Go(func() {
		random := rand.New(rand.NewPCG(uint64(worker), population))
		for n := 0; !t.ending.Load(); n++ {
			err := do(ctx, worker, n, random)
			if err == nil {
				err = rest(ctx)
			}
			if err != nil {
				t.cancel(err)
				return
			}
		}
	})
}

// stop waits until the units under way have ended, refused ones included: when
// there is no error, all of them have succeeded. failed is the error of what
// went on beside the traffic; then the workers break off.
func (t *traffic) stop(ctx context.Context, failed error) error {
	t.ending.Store(true)
	if failed != nil {
		t.cancel(failed)
	}
	t.workers.Wait()
	cause := context.Cause(ctx) // the first error, whoever had it
	t.cancel(nil)
	return cause
}

// write adds an order. Each writer has customers of its own, so that the book
// knows the numbers of the orders.
func (t *traffic) write(ctx context.Context, worker, n int, random *rand.Rand) error {
	from, size := pick(n)
	id := from + writers*random.Int64N(size/writers) + int64(worker)
	cents := amount(random)
	return t.unit(ctx, id, func(ctx context.Context) error {
		err := t.once.InTx(ctx, id, nil, func(ctx context.Context, tx *sql.Tx) error { return t.s.addOrder(ctx, tx, id, cents) })
		if err == nil {
			t.s.book.add(id, cents)
		}
		return err
	}, func(c *counts) { c.writes++ })
}

// read reads a customer and checks that every order acknowledged before is there.
func (t *traffic) read(ctx context.Context, _, n int, random *rand.Rand) error {
	from, size := pick(n)
	id := from + random.Int64N(size)
	return t.unit(ctx, id, func(ctx context.Context) error {
		conn, err := t.db.OpenConnectionForKey(ctx, id)
		if err != nil {
			return err
		}
		defer conn.Close()
		known := t.s.book.customer(id).orders
		found, err := t.s.read(ctx, conn, one(id))
		if err != nil && retry.Classify(retry.Uncommitted(err)) == retry.Transient {
			// A session that only reads is ended when its mapping leaves.
			return fmt.Errorf("%w: %w", shardway.ErrStale, err)
		}
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("customer %d is not on shard %s", id, conn.Shard())
		}
		if got := found[0].orders; len(got) < len(known) || !slices.Equal(got[:len(known)], known) {
			return fmt.Errorf("customer %d has the orders %d on shard %s; acknowledged were %d", id, got, conn.Shard(), known)
		}
		return nil
	}, func(c *counts) { c.reads++ })
}

// pick chooses the customers that the nth unit is about: every fourth time
// those who move.
func pick(n int) (from, size int64) {
	if n%4 == 3 {
		return splitAt, moveEnd - splitAt
	}
	return 1, population
}

// unit does a unit of work. While the mapping of its customer is offline, or is
// just being changed, it is refused and tried again.
func (t *traffic) unit(ctx context.Context, id int64, do func(context.Context) error, success func(*counts)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	refused := false
	for {
		err := t.attempt(ctx, id, do)
		offline := errors.Is(err, shardway.ErrMappingOffline)
		switch {
		case err == nil:
			t.note(func(c *counts) {
				success(c)
				if id >= splitAt && id < moveEnd {
					c.moved++
				}
				if refused {
					c.retried++
				}
			})
			return nil
		case !offline && !errors.Is(err, shardway.ErrStale):
			return err
		}
		refused = true
		t.note(func(c *counts) {
			if offline {
				c.offline++
			} else {
				c.changing++
			}
		})
		if end := rest(ctx); end != nil {
			return fmt.Errorf("waiting for customer %d: %w: %w", id, end, err)
		}
	}
}

func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// attempt is under way from before the mapping is validated until after the
// commit, so that drain misses nobody.
func (t *traffic) attempt(ctx context.Context, id int64, do func(context.Context) error) error {
	u := &unit{customer: id, ended: make(chan struct{})}
	t.mu.Lock()
	t.units[u] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.units, u)
		t.mu.Unlock()
		close(u.ended)
	}()
	return do(ctx)
}

// drain waits until the units under way for customers of a span have ended, and
// returns how many there were.
func (t *traffic) drain(ctx context.Context, sp span) (int, error) {
	var waitFor []*unit
	t.mu.Lock()
	for u := range t.units {
		if sp.contains(u.customer) {
			waitFor = append(waitFor, u)
		}
	}
	t.mu.Unlock()
	for _, u := range waitFor {
		select {
		case <-u.ended:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return len(waitFor), nil
}

func (t *traffic) note(change func(*counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.count[t.phase])
	close(t.news)
	t.news = make(chan struct{})
}

func (t *traffic) enter(p phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = p
}

// await waits until the counts of the present phase are as wanted.
func (t *traffic) await(ctx context.Context, wanted func(counts) bool) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		t.mu.Lock()
		done, news := t.count[t.phase], t.news
		t.mu.Unlock()
		if wanted(done) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return fmt.Errorf("the traffic has not done in %s what it should: %+v", patience, done)
		}
	}
}

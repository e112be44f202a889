package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// Tables are on every shard: register has the value written last to a key,
// applied each write that was made. Nothing keeps a write from being there
// twice: that is for the judge to see. The index lets MariaDB's replicas find the
// rows to delete.
var Tables = []string{
	"CREATE TABLE register (k bigint PRIMARY KEY, value varchar(64) NOT NULL)",
	"CREATE TABLE applied (id varchar(64) NOT NULL, k bigint NOT NULL)",
	"CREATE INDEX applied_rows ON applied (k, id)",
}

// hands are the operations a worker does at once.
const hands = 4

// work writes and reads until ctx ends.
func (c *client) work(ctx context.Context) error {
	j, err := openJournal(c.cfg.Journal)
	if err != nil {
		return err
	}
	defer j.file.Close()
	w := &worker{client: c, journal: j}
	var running sync.WaitGroup
	for hand := range hands {
		running.Go(func() {
			for n := 0; pause(ctx, time.Duration(5+w.number(10))*time.Millisecond); n++ {
				w.operate(ctx, fmt.Sprintf("%s-%d-%d", c.cfg.ID, hand, n))
			}
		})
	}
	running.Wait()
	return nil
}

type worker struct {
	*client
	journal *journal
	mu      sync.Mutex // guards client.random
}

func (w *worker) number(below int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(below)
}

// operationTime bounds one operation.
const operationTime = 8 * time.Second

// operate writes or reads once. It goes on to its end when the client is told
// to end, so that few outcomes stay unknown.
func (w *worker) operate(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operationTime)
	defer cancel()
	key := int64(w.number(Keys))
	read := w.number(10) < 4
	w.journal.append(Event{ID: id, Key: key, Read: read})
	e := Event{ID: id, Outcome: OK}
	var reached atomic.Bool // the end of the body: a commit may follow
	var err error
	if read {
		e.Value, err = w.read(ctx, key)
	} else {
		err = w.write(ctx, key, id, &reached)
	}
	switch {
	case err == nil:
	case read || !reached.Load():
		e.Outcome = Failed
	default:
		e.Outcome = Unknown
	}
	if err != nil {
		e.Error = err.Error()
	}
	w.journal.append(e)
}

// write makes one write in a fenced transaction. The texts have no parameters,
// whose form the engines do not share; id has letters, digits and hyphens.
func (w *worker) write(ctx context.Context, key int64, id string, reached *atomic.Bool) error {
	body := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO applied (id, k) VALUES ('%s', %d)", id, key)); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE register SET value = '%s' WHERE k = %d", id, key))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO register (k, value) VALUES (%d, '%s')", key, id)); err != nil {
				return err
			}
		}
		reached.Store(true)
		return nil
	}
	if w.cfg.Fault == PlainCheck {
		return w.unfenced(ctx, key, body)
	}
	err := w.db.InTx(ctx, key, nil, body)
	for w.cfg.Fault == BlindRepeat && err != nil && reached.Load() && ctx.Err() == nil {
		err = w.db.InTx(ctx, key, nil, body)
	}
	return err
}

// unfenced is what a transaction without the fence is: validated when it begins.
func (w *worker) unfenced(ctx context.Context, key int64, body func(context.Context, *sql.Tx) error) error {
	conn, err := w.db.OpenConnectionForKey(ctx, key)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := body(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// read reads a key's value: in a fenced transaction, or in one that only reads
// and sees one state, that of its validation.
func (w *worker) read(ctx context.Context, key int64) (value string, err error) {
	opts := &sqlshard.TxOptions{}
	db := w.db
	if w.number(2) == 0 {
		opts = &sqlshard.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		if w.cfg.Fault == StaleReads {
			db = db.With(selection.SecondaryPreferred())
		}
	}
	err = db.InTx(ctx, key, opts, func(ctx context.Context, tx *sql.Tx) error {
		value = ""
		err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM register WHERE k = %d", key)).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, err
}

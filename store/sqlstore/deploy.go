package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

// Deploy creates the tables of the global store. Where an engine cannot create
// them in one transaction, the row that makes them a store comes last: what
// was interrupted can be deployed again.
func (g *Global) Deploy(ctx context.Context, replace bool) (store.Description, error) {
	d, err := g.deploy(ctx, replace)
	if err != nil {
		return store.Description{}, fmt.Errorf("deploying global store: %w", err)
	}
	g.checked.Store(true)
	return d, nil
}

func (g *Global) deploy(ctx context.Context, replace bool) (store.Description, error) {
	if err := g.b.create(); err != nil {
		return store.Description{}, err
	}
	switch d, err := g.Describe(ctx); {
	case err == nil && !replace:
		return store.Description{}, fmt.Errorf("store %s: %w", d.ID, shardway.ErrExists)
	case err != nil && !errors.Is(err, shardway.ErrNoStore):
		return store.Description{}, err
	}
	g.checked.Store(false)
	d := store.Description{ID: rand.Text(), Version: store.Current}
	err := g.b.deploy(ctx, func(t *transaction) error { return deployGlobal(ctx, t, d, replace) })
	return d, err
}

// deployGlobal creates the tables. A transaction takes back what it created
// where a store turns up, so it may look afterwards, when looking cannot fail
// for want of tables. Without one it looks before, and what is there without
// being a store was left by an interrupted deployment: it may hold rows of a
// store that was about to be replaced.
func deployGlobal(ctx context.Context, t *transaction, d store.Description, replace bool) error {
	look := func() error {
		there, err := describe(ctx, t, "global", "store")
		switch {
		case err == nil:
			return fmt.Errorf("store %s: %w", there.ID, shardway.ErrExists)
		case !errors.Is(err, shardway.ErrNoStore):
			return err
		}
		return nil
	}
	before, rest := !replace && !t.b.d.TransactionalDDL, replace
	if before {
		if err := look(); err != nil {
			return err
		}
		var err error
		if rest, err = leftover(ctx, t); err != nil {
			return err
		}
	}
	if rest {
		if err := t.each(ctx, t.b.d.Drop(dialect.Global)); err != nil {
			return err
		}
	}
	if err := t.each(ctx, t.b.d.Create(dialect.Global)); err != nil {
		return err
	}
	if !replace && !before {
		if err := look(); err != nil {
			return err
		}
	}
	return createGlobal(ctx, t, d)
}

// leftover reports whether there are tables of an interrupted deployment.
// Where there are none, nobody needs the right to drop them.
func leftover(ctx context.Context, t *transaction) (bool, error) {
	var seq int64
	_, err := t.one(ctx, `SELECT operation_seq FROM {counters} WHERE one_row = 1`, nil, &seq)
	if isClass(err, dialect.NoTable) {
		return false, nil
	}
	return true, err
}

// createGlobal adds the rows that a new global store has.
func createGlobal(ctx context.Context, t *transaction, d store.Description) error {
	// A deployment that was interrupted may have left the counter.
	if _, err := t.exec(ctx, `DELETE FROM {counters}`); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `INSERT INTO {counters} (one_row, operation_seq) VALUES (1, 0)`); err != nil {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO {store} (one_row, store_id, major, minor, created) VALUES (1, ?, ?, ?, {now})`,
		d.ID, d.Version.Major, d.Version.Minor)
	return err
}

// deploy runs fn while no other program creates tables in this database.
func (b *database) deploy(ctx context.Context, fn func(t *transaction) error) error {
	take, release := b.d.DeployLock()
	locked := func(t *transaction) error {
		if take != "" {
			if _, err := t.conn.ExecContext(ctx, take); err != nil {
				return b.fault(ctx, err)
			}
		}
		return fn(t)
	}
	if b.d.TransactionalDDL {
		return b.write(ctx, locked)
	}
	return b.session(ctx, func(t *transaction) error {
		err := locked(t)
		if release != "" {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
			defer cancel()
			if _, e := t.conn.ExecContext(limited, release); e != nil {
				t.drop() // and the lock with it
			}
		}
		return err
	})
}

// each runs statements that are in the engine's own text.
func (t *transaction) each(ctx context.Context, statements []string) error {
	for _, s := range statements {
		if _, err := t.conn.ExecContext(ctx, s); err != nil {
			return t.b.fault(ctx, err)
		}
	}
	return nil
}

package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/store"
)

var (
	_ store.Upgrader = (*Global)(nil)
	_ store.Upgrader = (*Local)(nil)
)

// checkVersion is for stores about to be changed.
func checkVersion(kind string, major, minor int) error {
	return store.Version{Major: major, Minor: minor}.CheckWrite(kind)
}

// Upgrade brings the tables to the current version, one minor version after the
// other. Where an engine cannot change tables in a transaction, the number
// follows each version's statements, which can be run again. It takes the right
// to change the tables: that of the user who created them.
func (g *Global) Upgrade(ctx context.Context) (from, to store.Version, err error) {
	from, to, err = g.b.upgrade(ctx, dialect.Global, "store")
	if err != nil {
		err = fmt.Errorf("upgrading global store: %w", err)
	}
	return from, to, err
}

// Upgrade brings the tables to the current version, as [Global.Upgrade] does.
func (l *Local) Upgrade(ctx context.Context) (from, to store.Version, err error) {
	from, to, err = l.b.upgrade(ctx, dialect.Local, "local_store")
	if err != nil {
		err = fmt.Errorf("upgrading local store: %w", err)
	}
	return from, to, err
}

func (b *database) upgrade(ctx context.Context, part dialect.Part, table string) (from, to store.Version, err error) {
	attempt := func() error {
		return b.deploy(ctx, func(t *transaction) error {
			found, now, err := upgradeTables(ctx, t, part, table)
			if err != nil {
				t.drop() // it may have settings of an upgrade
				return err
			}
			if to == (store.Version{}) { // another try finds what this one has left
				from = found
			}
			to = now
			return nil
		})
	}
	run := attempt // a transaction is tried again by itself
	if !b.d.TransactionalDDL {
		run = func() error { return b.again(ctx, attempt) }
	}
	for range maxLost { // what a lost acknowledgement leaves open, the next run finds out
		if err = run(); !errors.Is(err, store.ErrUnknownOutcome) {
			break
		}
	}
	return from, to, err
}

func upgradeTables(ctx context.Context, t *transaction, part dialect.Part, table string) (from, to store.Version, err error) {
	d, err := describe(ctx, t, string(part), table)
	if err != nil {
		return from, to, err
	}
	from, to = d.Version, d.Version
	for to.Minor < store.Current.Minor {
		if err := t.each(ctx, t.b.d.Upgrade(part, to.Minor+1)); err != nil {
			return from, to, fmt.Errorf("from %s to %d.%d: %w", to, to.Major, to.Minor+1, err)
		}
		to.Minor++
		if _, err := t.exec(ctx, `UPDATE {`+table+`} SET minor = ? WHERE one_row = 1`, to.Minor); err != nil {
			return from, to, err
		}
	}
	return from, to, nil
}

// finish makes tables that an interrupted deployment of an older program has
// left what a new deployment makes. Where tables are created in transactions
// there are none.
func (t *transaction) finish(ctx context.Context, part dialect.Part) error {
	if t.b.d.TransactionalDDL {
		return nil
	}
	for minor := range store.Current.Minor {
		if err := t.each(ctx, t.b.d.Upgrade(part, minor+1)); err != nil {
			t.drop() // it may have settings of an upgrade
			return err
		}
	}
	return nil
}

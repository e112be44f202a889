package customers

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/sqlshard"
)

// rebalance gives a part of the crowded shard s2 to s3 while the traffic goes on.
func (s *story) rebalance(ctx context.Context, app *program) error {
	s.out.title(fmt.Sprintf("Split and move, while %d writers and a reader work", writers))
	running, t := s.startTraffic(ctx, app)
	if err := t.stop(running, s.splitAndMove(running, app, t)); err != nil {
		return err
	}
	var all counts
	for p, name := range [phases]string{"before", "during", "after"} {
		c := t.count[p]
		all = all.plus(c)
		s.out.line("   %-7s %4d writes %4d reads, %4d of them for customers who move", name, c.writes, c.reads, c.moved)
	}
	s.out.line("   refused: %s because the mapping was offline, %s because the map was just being changed;", count(all.offline, "time"), count(all.changing, "time"))
	s.out.line("   %s tried again until they succeeded", count(all.retried, "unit"))
	if all.retried == 0 {
		return fmt.Errorf("no unit was refused and tried again, although the mapping was offline")
	}
	return equal("acknowledged writes", s.book.acknowledged(), all.writes+1) // and the one request
}

func (s *story) splitAndMove(ctx context.Context, app *program, t *traffic) error {
	busy := func(c counts) bool { return c.writes >= 60 && c.reads >= 60 && c.moved >= 20 }
	if err := t.await(ctx, busy); err != nil {
		return err
	}
	t.enter(during)
	upper, err := s.split(ctx)
	if err != nil {
		return fmt.Errorf("splitting: %w", err)
	}
	if err := s.move(ctx, app, t, upper); err != nil {
		return fmt.Errorf("moving %s from s2 to s3: %w", upper.Range, err)
	}
	t.enter(after)
	return t.await(ctx, busy)
}

// split cuts the range of s2 in two and returns the upper part. Both stay online.
func (s *story) split(ctx context.Context) (shardway.Mapping, error) {
	at := shardway.Int64Key(splitAt)
	whole, err := s.catalog.MappingForKey(ctx, s.m, at)
	if err != nil {
		return shardway.Mapping{}, err
	}
	r, err := s.catalog.Do(ctx, catalog.SplitMapping{Mapping: whole, At: at, Reason: "s2 is crowded"})
	if err != nil {
		return shardway.Mapping{}, err
	}
	s.out.line("   split %s into %s and %s, both online on s2", whole.Range, r.Mappings[0].Range, r.Mappings[1].Range)
	return r.Mappings[1], nil
}

// move gives a mapping and its rows to s3. Whatever breaks it off, the rows are
// whole where the map says: those on s2 are deleted last, and those on s3 do not
// count before the mapping has moved.
func (s *story) move(ctx context.Context, app *program, t *traffic, m shardway.Mapping) error {
	target, err := s.catalog.Shard(ctx, s.m, "s3")
	if err != nil {
		return err
	}
	offline, online := shardway.Offline, shardway.Online
	r, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: m, Status: &offline, Reason: "moving to s3"})
	if err != nil {
		return err
	}
	s.out.line("   %s is offline: from now on nobody gets a connection for it", m.Range)
	// A unit that was validated before may still commit on s2.
	n, err := t.drain(ctx, spanOf(m.Range))
	if err != nil {
		return err
	}
	s.out.line("   waited for the %s that had begun before", count(n, "unit"))
	if err := t.await(ctx, func(c counts) bool { return c.offline > 0 }); err != nil { // so that it is seen
		return err
	}
	moved, err := s.copy(ctx, app, spanOf(m.Range))
	if err != nil {
		return err
	}
	if _, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: r.Mappings[0], ShardID: &target.ID, Status: &online, Reason: "rows are copied"}); err != nil {
		return err
	}
	s.out.line("   %s is online on s3", m.Range)
	err = app.onShard(ctx, "s2", func(conn *sqlshard.Conn) error {
		return inTx(ctx, conn, func(tx *sql.Tx) error { return s.remove(ctx, tx, moved) })
	})
	if err != nil {
		return err
	}
	s.out.line("   deleted %s with their orders on s2", count(len(moved), "customer"))
	return nil
}

// copy copies the rows of a span from s2 to s3 in one transaction and returns
// the customers. It commits when what arrived is what was read.
func (s *story) copy(ctx context.Context, app *program, sp span) (moved []customer, err error) {
	err = app.onShard(ctx, "s2", func(conn *sqlshard.Conn) error {
		moved, err = s.readWhole(ctx, conn, sp)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := equal("customers to move", len(moved), moveEnd-splitAt); err != nil {
		return nil, err
	}
	err = app.onShard(ctx, "s3", func(conn *sqlshard.Conn) error {
		return inTx(ctx, conn, func(tx *sql.Tx) error {
			if err := s.write(ctx, tx, moved); err != nil {
				return err
			}
			arrived, err := s.readWhole(ctx, tx, sp)
			if err != nil {
				return err
			}
			return equal("checksum of the copy", checksum(arrived), checksum(moved))
		})
	})
	if err != nil {
		return nil, err
	}
	s.out.line("   copied %s to s3 in one transaction: count and checksum agree", count(len(moved), "customer"))
	return moved, nil
}

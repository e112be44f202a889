package customers

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store"
)

// earlier puts in order what an earlier run has left, checks it, and removes it.
func (s *story) earlier(ctx context.Context) error {
	m, err := s.catalog.ShardMap(ctx, mapName)
	if errors.Is(err, shardway.ErrMapNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.m = m
	s.out.title("An earlier run")
	if err := s.settle(ctx); err != nil {
		return err
	}
	shards, err := s.catalog.Shards(ctx, m)
	if err != nil {
		return err
	}
	if err := s.ours(shards); err != nil {
		return err
	}
	app, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer app.close()
	mappings, err := s.mappings(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(mappings) == 0:
		s.out.line("   there are no mappings, so there is nothing to look after")
	case !complete(mappings):
		s.out.line("   it was just being removed")
	default:
		if err := s.repair(ctx, app, mappings); err != nil {
			return err
		}
	}
	if err := s.wipe(ctx, app, shards); err != nil {
		return err
	}
	s.out.line("   it is removed: the story begins again")
	return nil
}

// settle brings the operation of a run that was killed to an end. Its lease
// may have to run out first.
func (s *story) settle(ctx context.Context) error {
	for deadline := time.Now().Add(2 * lease); ; {
		all, err := s.catalog.Recover(ctx, false)
		if err != nil {
			return err
		}
		var alive error
		for _, r := range all {
			if r.Operation.Map.ID != s.m.ID {
				continue
			}
			if r.Outcome == store.Pending {
				alive = fmt.Errorf("%s (%s) has not ended: %w", r.Operation.Kind, r.Operation.Summary, cmp.Or(r.Err, shardway.ErrPending))
				continue
			}
			s.out.line("   a change was left half made: %s, now %s", r.Operation.Kind, r.Outcome)
		}
		if alive == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return alive
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lease / 50):
		}
	}
}

// ours refuses a map of our name whose shards are elsewhere.
func (s *story) ours(shards []shardway.Shard) error {
	for _, sh := range shards {
		if !slices.ContainsFunc(s.shards[:], func(d Database) bool { return d.Location.Overlaps(sh.Location) }) {
			return fmt.Errorf("shard map %q has shard %q at %s, which is none of the databases given: %w", mapName, sh.Name, sh.Location, shardway.ErrExists)
		}
	}
	return nil
}

func (s *story) mappings(ctx context.Context) (all []shardway.Mapping, err error) {
	for m, err := range s.catalog.Mappings(ctx, store.MappingQuery{Map: s.m}) {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// complete reports whether the mappings hold all customers. They are added all
// at once, so that those that do not are what a removal has left.
func complete(mappings []shardway.Mapping) bool {
	next := int64(1)
	for _, m := range mappings {
		sp := spanOf(m.Range)
		if sp.low != next {
			return false
		}
		next = sp.high
	}
	return next == everybody.high
}

// repair ends a move that was broken off. The rows are whole where the map
// says, so the mapping goes online there and other copies are deleted.
func (s *story) repair(ctx context.Context, app *program, mappings []shardway.Mapping) error {
	online := shardway.Online
	for _, m := range mappings {
		if m.Status == online {
			continue
		}
		if _, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: m, Status: &online, Reason: "the run that took it offline has ended"}); err != nil {
			return err
		}
		s.out.line("   left %s offline: it is online again", m.Range)
	}
	holdings, err := s.survey(ctx, app)
	if err != nil {
		return err
	}
	for i := range holdings {
		if err := s.sweep(ctx, app, holdings, &holdings[i]); err != nil {
			return err
		}
	}
	found, err := gather(holdings)
	if err != nil {
		return err
	}
	return s.review(found)
}

// sweep deletes the customers that a shard holds and does not own, once it is
// sure that their owner has them with every order.
func (s *story) sweep(ctx context.Context, app *program, holdings []holding, h *holding) error {
	var strangers, own []customer
	for _, c := range h.customers {
		if h.owns(c.id) {
			own = append(own, c)
			continue
		}
		if !slices.ContainsFunc(holdings, func(o holding) bool { return o.owns(c.id) && o.has(c) }) {
			return fmt.Errorf("customer %d is on shard %s, which does not own it, and is not whole where it belongs", c.id, h.shard)
		}
		strangers = append(strangers, c)
	}
	if len(strangers) == 0 {
		return nil
	}
	err := app.onShard(ctx, h.shard, func(conn *sqlshard.Conn) error {
		return inTx(ctx, conn, func(tx *sql.Tx) error { return s.remove(ctx, tx, strangers) })
	})
	if err != nil {
		return err
	}
	h.customers = own
	s.out.line("   left %s on %s that are whole elsewhere: deleted there", count(len(strangers), "customer"), h.shard)
	return nil
}

// has reports whether the shard has a customer with at least the given orders.
func (h holding) has(c customer) bool {
	return slices.ContainsFunc(h.customers, func(o customer) bool {
		return o.id == c.id && len(o.orders) >= len(c.orders) && slices.Equal(o.orders[:len(c.orders)], c.orders)
	})
}

// review checks the customers of the earlier run: each shard was loaded wholly
// or not at all, and nobody has lost an order.
func (s *story) review(found map[int64]customer) error {
	for _, sp := range []span{{1, secondFrom}, {secondFrom, thirdFrom}, {thirdFrom, population + 1}} {
		n := 0
		for id := sp.low; id < sp.high; id++ {
			got, ok := found[id]
			if !ok {
				continue
			}
			n++
			want := generated(id)
			if len(got.orders) < len(want.orders) || !slices.Equal(got.orders[:len(want.orders)], want.orders) || got.name != want.name {
				return fmt.Errorf("customer %d is %q with the orders %d; loaded was %q with %d", id, got.name, got.orders, want.name, want.orders)
			}
		}
		if n != 0 && int64(n) != sp.high-sp.low {
			return fmt.Errorf("of customers %d to %d only %d are there", sp.low, sp.high-1, n)
		}
	}
	orders, loaded := 0, 0
	for id, c := range found {
		orders += len(c.orders)
		loaded += len(generated(id).orders)
	}
	s.out.line("   its data is whole: %s, each on one shard, with %s loaded and %d written since", count(len(found), "customer"), count(loaded, "order"), orders-loaded)
	return nil
}

// wipe removes everything, the mappings first: what has no mapping may lack
// its tables.
func (s *story) wipe(ctx context.Context, app *program, shards []shardway.Shard) error {
	mappings, err := s.mappings(ctx)
	if err != nil {
		return err
	}
	const reason = "removing an earlier run"
	offline := shardway.Offline
	for _, m := range mappings {
		r, err := s.catalog.Do(ctx, catalog.UpdateMapping{Mapping: m, Status: &offline, Reason: reason})
		if err != nil {
			return err
		}
		if _, err := s.catalog.Do(ctx, catalog.DeleteMapping{Mapping: r.Mappings[0], Reason: reason}); err != nil {
			return err
		}
	}
	for _, sh := range shards {
		err := app.onShard(ctx, sh.Name, func(conn *sqlshard.Conn) error {
			_, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+customerTable)
			if err == nil {
				_, err = conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+orderTable)
			}
			return err
		})
		if err != nil {
			return err
		}
		if _, err := s.catalog.Do(ctx, catalog.DeleteShard{Shard: sh, Reason: reason}); err != nil {
			return err
		}
	}
	_, err = s.catalog.Do(ctx, catalog.DeleteShardMap{Map: s.m, Reason: reason})
	return err
}

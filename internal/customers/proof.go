package customers

import (
	"context"
	"fmt"
	"slices"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/sqlshard"
	"github.com/shardway/shardway/store"
)

// holding is what the map and the database say of one shard.
type holding struct {
	shard     string
	mappings  []shardway.Mapping
	customers []customer
}

func (h holding) owns(id int64) bool {
	return slices.ContainsFunc(h.mappings, func(m shardway.Mapping) bool { return spanOf(m.Range).contains(id) })
}

// survey reads the map and all shards.
func (s *story) survey(ctx context.Context, app *program) ([]holding, error) {
	shards, err := s.catalog.Shards(ctx, s.m)
	if err != nil {
		return nil, err
	}
	all := make([]holding, len(shards))
	for i, sh := range shards {
		h := &all[i]
		h.shard = sh.Name
		for m, err := range s.catalog.Mappings(ctx, store.MappingQuery{Map: s.m, ShardID: sh.ID}) {
			if err != nil {
				return nil, err
			}
			h.mappings = append(h.mappings, m)
		}
		err := app.onShard(ctx, sh.Name, func(conn *sqlshard.Conn) (err error) {
			h.customers, err = s.readWhole(ctx, conn, everybody)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// gather returns the customers of all shards. One that is on two shards, or on
// another than the map says, is an error.
func gather(holdings []holding) (map[int64]customer, error) {
	all := map[int64]customer{}
	at := map[int64]string{} // customer → shard
	for _, h := range holdings {
		for _, c := range h.customers {
			if other, twice := at[c.id]; twice {
				return nil, fmt.Errorf("customer %d is on two shards, %s and %s", c.id, other, h.shard)
			}
			if !h.owns(c.id) {
				return nil, fmt.Errorf("customer %d is on shard %s, which does not own it", c.id, h.shard)
			}
			all[c.id], at[c.id] = c, h.shard
		}
	}
	return all, nil
}

// prove compares every row on every shard with what must be there.
func (s *story) prove(ctx context.Context, app *program) error {
	s.out.title("The proof")
	holdings, err := s.survey(ctx, app)
	if err != nil {
		return err
	}
	for i, h := range holdings {
		var ranges string
		for j, m := range h.mappings {
			if j > 0 {
				ranges += " "
			}
			ranges += m.Range.String()
		}
		s.out.line("   %s  %-28s %4d customers %5d orders  checksum %s", h.shard, ranges, len(h.customers), countOrders(h.customers), checksum(h.customers))
		want := [...]int{secondFrom - 1, splitAt - secondFrom, population - splitAt + 1}
		if err := equal("customers on shard "+h.shard, len(h.customers), want[i]); err != nil {
			return err
		}
	}
	found, err := gather(holdings)
	if err != nil {
		return err
	}
	if err := s.compare(found); err != nil {
		return err
	}
	s.out.line("   %d customers, each on the shard that owns it, none on two", len(found))
	s.out.line("   %d writes acknowledged, none lost, none twice", s.book.acknowledged())
	s.out.line("   checksum over all shards %s, as it must be", checksum(byID(found)))
	return nil
}

// compare holds what was found against the book.
func (s *story) compare(found map[int64]customer) error {
	for _, want := range s.book.all() {
		got, ok := found[want.id]
		if !ok {
			return fmt.Errorf("customer %d is lost", want.id)
		}
		if !slices.Equal(got.orders, want.orders) || got.name != want.name {
			return fmt.Errorf("customer %d is %q with the orders %d, want %q with %d", want.id, got.name, got.orders, want.name, want.orders)
		}
	}
	if err := equal("customers on all shards", len(found), population); err != nil {
		return err
	}
	if err := equal("orders on all shards", countOrders(byID(found)), loadedOrders+s.book.acknowledged()); err != nil {
		return err
	}
	return equal("checksum over all shards", checksum(byID(found)), checksum(s.book.all()))
}

// loadedOrders is how many orders the customers have when they are loaded:
// every four of them have 0, 1, 2 and 3.
const loadedOrders = population / 4 * (0 + 1 + 2 + 3)

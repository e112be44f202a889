package customers

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
)

// witness is the customer whose way is shown. It moves.
const witness = 1502

// request reads and updates one customer by id. Another program looks the
// customer up as well, and will not hear of the move.
func (s *story) request(ctx context.Context, app, other *program) error {
	s.out.title("One request")
	conn, err := app.db.OpenConnectionForKey(ctx, witness)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := equal("the shard of the customer", conn.Shard(), "s2"); err != nil {
		return err
	}
	for range 2 {
		found, err := s.read(ctx, conn, one(witness))
		if err != nil {
			return err
		}
		if err := equal("the customer", checksum(found), checksum([]customer{s.book.customer(witness)})); err != nil {
			return err
		}
		s.out.line("   customer %d → shard %s: %s, %s, %s spent", witness, conn.Shard(), found[0].name, count(len(found[0].orders), "order"), euros(found[0].spent()))
		if s.book.acknowledged() > 0 {
			break
		}
		const cents = 4200
		if err := s.order(ctx, conn, witness, cents); err != nil {
			return err
		}
		s.book.add(witness, cents)
		s.out.line("   an order of %s on the same connection", euros(cents))
	}
	route, err := other.keys.Lookup(ctx, witness)
	if err != nil {
		return err
	}
	s.out.line("   another program looks customer %d up and keeps the answer: %s", witness, route.Shard.Name)
	return nil
}

// stale shows that a cache that has missed a move does no harm.
func (s *story) stale(ctx context.Context, other *program) error {
	s.out.title("A stale cache")
	route, err := other.keys.LookupIn(ctx, witness, shardway.CacheOnly)
	if err != nil {
		return err
	}
	if err := equal("what the other program's cache says", route.Shard.Name, "s2"); err != nil {
		return err
	}
	asked := other.keys.Map().Stats().StoreLookups
	s.out.line("   the other program's cache still says: customer %d → shard %s", witness, route.Shard.Name)
	conn, err := other.db.OpenConnectionForKey(ctx, witness)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := equal("the shard of its connection", conn.Shard(), "s3"); err != nil {
		return err
	}
	var refusals uint64
	for _, p := range other.db.Stats().Pools {
		if p.Shard == "s2" {
			refusals += p.ValidationFailures
		}
	}
	if err := equal("refusals by the local map of s2", refusals, 1); err != nil {
		return err
	}
	if err := equal("questions to the global map", other.keys.Map().Stats().StoreLookups-asked, 1); err != nil {
		return err
	}
	s.out.line("   it asks for a connection: the local map on s2 refuses it, the global map is asked once,")
	s.out.line("   and the connection it gets is on shard %s", conn.Shard())
	found, err := s.read(ctx, conn, one(witness))
	if err != nil {
		return err
	}
	return equal("the customer found there", checksum(found), checksum([]customer{s.book.customer(witness)}))
}

// equal returns an error unless two values that are shown or counted agree.
func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

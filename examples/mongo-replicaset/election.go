package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway/mongoshard"
)

// errNoElection ends the wait for another primary.
var errNoElection = errors.New("no other member became primary in time")

// election writes on and on until another member is primary. Every write that
// was acknowledged must be there afterwards, once.
func (s *story) election(ctx context.Context) error {
	s.say("5. An election: writes flow to the new primary")
	set, err := mongoshard.Servers(s.client)
	if err != nil {
		return err
	}
	old, known := set.Primary()
	if !known {
		return errors.New("the set has no primary")
	}
	if s.stepDown {
		err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "replSetStepDown", Value: 60}}).Err()
		if err != nil && !mongo.IsNetworkError(err) { // older servers end the connection
			return fmt.Errorf("stepping down: %w", err)
		}
	} else {
		s.say("   Now let %s step down, by rs.stepDown() there, or stop it", old.Address)
	}
	refused, next, err := s.writeUntil(ctx, old.Address)
	if err != nil {
		return err
	}
	s.say("   %s takes the writes now; %d were refused meanwhile", next, refused)
	s.tally.Take()
	for range writes {
		if err := s.write(ctx); err != nil {
			return err
		}
	}
	counts := s.tally.Take()
	s.say("   %d more writes went to %v", writes, counts)
	if !counts.Only(is(next)) {
		return fmt.Errorf("writes went to others than the new primary %s", next)
	}
	n, err := s.things.CountDocuments(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("counting: %w", err)
	}
	acknowledged := s.tried - refused
	s.say("   %d documents are there, of %d acknowledged writes", n, acknowledged)
	if int(n) < acknowledged || int(n) > s.tried {
		return errors.New("acknowledged writes are lost, or done twice")
	}
	return nil
}

// writeUntil writes until another member than old has taken a write.
func (s *story) writeUntil(ctx context.Context, old string) (refused int, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.wait, errNoElection)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		s.tally.Take()
		switch err := s.write(ctx); {
		case ctx.Err() != nil:
			return refused, "", context.Cause(ctx)
		case err != nil:
			refused++
		}
		for address := range s.tally.Take() {
			if address != old {
				return refused, address, nil
			}
		}
		select {
		case <-ctx.Done():
			return refused, "", context.Cause(ctx)
		case <-tick.C:
		}
	}
}

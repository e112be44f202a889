package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/shardway/shardway/internal/served"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/topology"
)

const (
	reads    = 20
	writes   = 20
	maxStale = 90 * time.Second      // the least that MongoDB's estimate allows
	checked  = 10 * time.Second      // a check of a member takes no longer
	pause    = 20 * time.Millisecond // between two writes, or looks, while something is awaited
)

// story is one run on a replica set.
type story struct {
	client   *mongo.Client
	tally    *served.Tally
	things   *mongo.Collection
	out      io.Writer
	stepDown bool
	wait     time.Duration
	tried    int // writes, each with the next _id: one that is refused may be done all the same
}

func newStory(client *mongo.Client, tally *served.Tally, out io.Writer) *story {
	things := client.Database("shardway_example").Collection("things_" + bson.NewObjectID().Hex())
	return &story{client: client, tally: tally, things: things, out: out}
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// tell is the four chapters. What does not hold is an error.
func (s *story) tell(ctx context.Context) (err error) {
	defer func() {
		if dropped := s.things.Drop(context.WithoutCancel(ctx)); err == nil {
			err = dropped
		}
	}()
	for _, chapter := range []func(context.Context) error{s.writesToPrimary, s.readsByTags, s.readsByLatency, s.readsByPredicate, s.election} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	s.say("All of this was told by the driver's own command events.")
	return nil
}

// write inserts one document. A retry of the driver does not insert it twice.
func (s *story) write(ctx context.Context) error {
	s.tried++
	if _, err := s.things.InsertOne(ctx, bson.D{{Key: "_id", Value: s.tried}}); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func (s *story) writesToPrimary(ctx context.Context) error {
	s.say("1. Writes go to the primary")
	s.tally.Take()
	for range writes {
		if err := s.write(ctx); err != nil {
			return err
		}
	}
	counts := s.tally.Take()
	set, err := mongoshard.Servers(s.client)
	if err != nil {
		return err
	}
	if set.Kind() != topology.KindReplicaSetWithPrimary {
		return fmt.Errorf("%v is no replica set with a primary", set.Kind())
	}
	primary, _ := set.Primary()
	s.say("   %d writes went to %v", writes, counts)
	if !counts.Only(is(primary.Address)) {
		return fmt.Errorf("writes went to others than the primary %s", primary.Address)
	}
	return nil
}

func (s *story) readsByTags(ctx context.Context) error {
	set, err := mongoshard.Servers(s.client)
	if err != nil {
		return err
	}
	for _, member := range set.Servers() {
		for name, value := range member.Tags.All() {
			if member.Role != topology.RoleSecondary {
				continue
			}
			s.say("2. Reads go to secondaries with the tag %s=%s", name, value)
			criteria := selection.Secondary(selection.Tags{name: value}, selection.MaxStaleness(maxStale))
			return s.read(ctx, criteria, func(m topology.Server) bool {
				got, _ := m.Tags.Get(name)
				return got == value && m.Role == topology.RoleSecondary
			})
		}
	}
	s.say("2. No secondary has tags, so nothing is read by them")
	return nil
}

// settle waits until every member was checked, for as long as a check may take.
func (s *story) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checked)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		set, err := mongoshard.Servers(s.client)
		if err != nil {
			return err
		}
		unchecked := func(m topology.Server) bool { return !m.Role.Available() && m.Err == nil }
		if !slices.ContainsFunc(set.Servers(), unchecked) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // the table shows who has not answered
		case <-tick.C:
		}
	}
}

func (s *story) readsByLatency(ctx context.Context) error {
	s.say("3. Reads go to the nearest members")
	if err := s.settle(ctx); err != nil {
		return err
	}
	criteria := selection.Nearest()
	if err := s.explain(criteria); err != nil {
		return err
	}
	return s.read(ctx, criteria, func(m topology.Server) bool { return m.Role.Readable() })
}

func (s *story) readsByPredicate(ctx context.Context) error {
	s.say("4. Reads go where a predicate says: secondaries that are not behind")
	fresh := func(m selection.ServerInfo) bool {
		return m.Role == topology.RoleSecondary && m.Staleness.AtMost(maxStale)
	}
	return s.read(ctx, selection.Where(fresh), func(m topology.Server) bool {
		return fresh(selection.ServerInfo{Server: m})
	})
}

// explain shows what a read of these criteria would do now.
func (s *story) explain(criteria selection.Criteria) error {
	set, err := mongoshard.Servers(s.client)
	if err != nil {
		return err
	}
	e, err := selection.Explain(set, selection.Request{Criteria: criteria})
	if err != nil {
		return err
	}
	for _, v := range e.Servers {
		fate := "near enough to serve"
		if !v.InWindow() {
			fate = fmt.Sprintf("out, by %v (%s)", v.Step, v.Detail)
		}
		s.say("   %s is %v, round trip %v: %s", v.Server.Address, v.Server.Role, v.Server.AverageRTT, fate)
	}
	return nil
}

// read reads by criteria, and demands that every member that served fits.
func (s *story) read(ctx context.Context, criteria selection.Criteria, fits func(topology.Server) bool) error {
	s.tally.Take()
	for range reads {
		if err := s.things.FindOne(mongoshard.WithCriteria(ctx, criteria), bson.D{}).Err(); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
	counts := s.tally.Take()
	s.say("   %d reads were served by %v", reads, counts)
	set, err := mongoshard.Servers(s.client)
	if err != nil {
		return err
	}
	suits := func(address string) bool {
		member, known := set.Find(address)
		return known && fits(member)
	}
	if !counts.Only(suits) {
		return errors.New("a read was served by a member that does not suit")
	}
	return nil
}

func is(address string) func(string) bool { return func(other string) bool { return other == address } }

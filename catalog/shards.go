package catalog

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// AddShard registers a database as a shard of a map and deploys the local
// store in it. The same database may be a shard of several maps. A name, or a
// database on a server, that the map has already is [shardway.ErrExists]; a
// database that belongs to another global store is [shardway.ErrForeignStore].
type AddShard struct {
	Map      shardway.ShardMap
	Name     string
	Location shardway.Location
	Status   shardway.ShardStatus
	Reason   string // for the history; may be empty
}

func (ch AddShard) target() shardway.MapID { return ch.Map.ID }

func (ch AddShard) plan(ctx context.Context, s *state) (*plan, error) {
	m, err := s.shardMap(ctx, ch.Map)
	if err != nil {
		return nil, err
	}
	shard := shardway.Shard{
		ID: shardway.ShardID(store.NewID()), MapID: m.ID, Name: ch.Name,
		Location: ch.Location, Status: ch.Status, Version: store.NewID(),
	}
	if err := s.checkShard(ctx, m, &shard); err != nil {
		return nil, fmt.Errorf("adding shard %q to shard map %q: %w", ch.Name, m.Name, err)
	}
	return &plan{
		kind: "add shard", reason: ch.Reason, summary: fmt.Sprintf("shard %q at %s", shard.Name, shard.Location), m: m,
		steps:  []store.Step{{Shard: shard, After: &shard}},
		result: Result{Map: m, Shards: []shardway.Shard{shard}},
	}, nil
}

// checkShard normalises the location of a shard about to be written and
// refuses a name or location that another shard of the map has.
func (s *state) checkShard(ctx context.Context, m shardway.ShardMap, shard *shardway.Shard) error {
	if err := shardway.CheckName("shard name", shard.Name); err != nil {
		return err
	}
	if shard.Status > shardway.ShardOffline {
		return &shardway.ArgumentError{Argument: "shard status", Value: fmt.Sprint(uint8(shard.Status)), Reason: "is not a shard status"}
	}
	if err := checkServers(shard.Location); err != nil {
		return err
	}
	l, err := s.normalize(shard.Location)
	if err != nil {
		return err
	}
	if err := checkServers(l); err != nil { // two spellings of one address
		return err
	}
	shard.Location = l
	rows, err := s.tx.Shards(ctx, m.ID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.ID == shard.ID {
			continue
		}
		taken := ""
		if row.Name == shard.Name {
			taken = fmt.Sprintf("name %q", row.Name)
		} else if row.Location.Overlaps(l) {
			taken = fmt.Sprintf("location %s of shard %q", row.Location, row.Name)
		}
		if taken != "" && row.Operation != 0 {
			return &PendingError{Operation: row.Operation, Object: taken}
		}
		if taken != "" {
			return fmt.Errorf("%s: %w", taken, shardway.ErrExists)
		}
	}
	return nil
}

func checkServers(l shardway.Location) error {
	if len(l.Servers) == 0 {
		return &shardway.ArgumentError{Argument: "location", Value: l.String(), Reason: "has no server"}
	}
	if err := checkText("engine", l.Engine); err != nil {
		return err
	}
	if err := checkText("database", l.Database); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, srv := range l.Servers {
		if err := checkText("server", srv.Address); err != nil {
			return err
		}
		for name, value := range srv.Tags {
			if err := checkText("tag of server "+srv.Address, name+"="+value); err != nil {
				return err
			}
		}
		if seen[srv.Address] {
			return &shardway.ArgumentError{Argument: "server", Value: srv.Address, Reason: "is listed twice"}
		}
		seen[srv.Address] = true
	}
	return nil
}

// notText is why a text is refused that an operation could not keep as it is.
const notText = "is not valid UTF-8"

func checkText(argument, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return &shardway.ArgumentError{Argument: argument, Value: strings.ToValidUTF8(text, "?"), Reason: notText}
}

// UpdateShard changes name, location or status of a shard in place. Fields
// left nil stay as they are. It is how to follow a renamed database, a moved
// host, or a changed set of servers and tags.
//
// A location with none of the servers before must hold this shard's database
// all the same: one whose local store does not have exactly the mappings of the
// shard is [store.ErrMapsDiffer]. When it is a copy, the database at the old
// location loses the shard's mappings in the same change, so that programs with
// an old route cannot go on there; it must be reachable for that, unless
// OldGone says that nobody can reach it any more.
type UpdateShard struct {
	Shard    shardway.Shard // as read; [shardway.ErrStale] when it has changed since
	Name     *string
	Location *shardway.Location
	Status   *shardway.ShardStatus
	// OldGone promises that the database at the old location is gone for good.
	// It is not asked any more, and operations of dead clients that wait for it
	// do not keep the shard from moving.
	OldGone bool
	Drain   store.Drain // what becomes of those who use the database at the old location; zero: as Config says
	Reason  string      // for the history; may be empty

	move relocation // found out before planning
}

func (ch UpdateShard) target() shardway.MapID { return ch.Shard.MapID }

func (ch UpdateShard) plan(ctx context.Context, s *state) (*plan, error) {
	if err := ch.Drain.Check(); err != nil {
		return nil, err
	}
	m, before, err := s.currentShard(ctx, ch.Shard)
	if err != nil {
		return nil, err
	}
	after := before
	if ch.Name != nil {
		after.Name = *ch.Name
	}
	if ch.Location != nil {
		after.Location = *ch.Location
	}
	if ch.Status != nil {
		after.Status = *ch.Status
	}
	if ch.Name == nil && ch.Location == nil && ch.Status == nil {
		return &plan{kind: "update shard", reason: ch.Reason, m: m, nothing: true, result: Result{Map: m, Shards: []shardway.Shard{before}}}, nil
	}
	after.Version = store.NewID()
	if err := s.checkShard(ctx, m, &after); err != nil {
		return nil, fmt.Errorf("updating shard %q of shard map %q: %w", before.Name, m.Name, err)
	}
	if !after.Location.Overlaps(before.Location) {
		if err := s.checkIdle(ctx, m, before, ch.move.claimed); err != nil {
			return nil, err
		}
	}
	summary := fmt.Sprintf("shard %q at %s, %s", before.Name, before.Location, before.Status)
	if ch.Name != nil || ch.Location != nil {
		summary += fmt.Sprintf(" → %q at %s", after.Name, after.Location)
	}
	if ch.Status != nil {
		summary += fmt.Sprintf(" → %s", after.Status)
	}
	p := &plan{
		kind: "update shard", reason: ch.Reason, summary: summary, m: m, drain: ch.Drain,
		steps:  []store.Step{{Shard: after, Before: &before, After: &after}},
		result: Result{Map: m, Shards: []shardway.Shard{after}},
	}
	if !ch.move.copied {
		return p, nil
	}
	return p, s.emptyOld(ctx, p)
}

// DeleteShard takes a shard out of its map. One with mappings, offline ones
// included, is [shardway.ErrInUse]. The database itself is left alone.
type DeleteShard struct {
	Shard  shardway.Shard // as read; [shardway.ErrStale] when it has changed since
	Reason string         // for the history; may be empty
}

func (ch DeleteShard) target() shardway.MapID { return ch.Shard.MapID }

func (ch DeleteShard) plan(ctx context.Context, s *state) (*plan, error) {
	m, shard, err := s.currentShard(ctx, ch.Shard)
	if err != nil {
		return nil, err
	}
	rows, err := collect(s.tx.Mappings(ctx, store.MappingQuery{Map: m, ShardID: shard.ID, Limit: 1}))
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		row := rows[0]
		if row.Operation != 0 {
			return nil, &PendingError{Operation: row.Operation, Object: "mapping " + row.Format(m.Kind)}
		}
		return nil, fmt.Errorf("deleting shard %q of shard map %q: it has mappings, the first is %s: %w",
			shard.Name, m.Name, row.Format(m.Kind), shardway.ErrInUse)
	}
	return &plan{
		kind: "delete shard", reason: ch.Reason, summary: fmt.Sprintf("shard %q at %s", shard.Name, shard.Location), m: m,
		steps:  []store.Step{{Shard: shard, Before: &shard}},
		result: Result{Map: m},
	}, nil
}

// currentShard returns the row of a shard given by value, checked for being
// current and not in another operation's hands.
func (s *state) currentShard(ctx context.Context, given shardway.Shard) (shardway.ShardMap, shardway.Shard, error) {
	m, err := s.mapByID(ctx, given.MapID, "of shard "+given.Name)
	if err != nil {
		return m, given, err
	}
	row, err := s.shard(ctx, m, given.ID)
	if err != nil {
		return m, given, err
	}
	if row.Version != given.Version {
		return m, given, fmt.Errorf("shard %q of shard map %q: %w", given.Name, m.Name, shardway.ErrStale)
	}
	return m, row.Shard, nil
}

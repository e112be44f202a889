package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// NewLockToken returns a random token.
func NewLockToken() shardway.LockToken { return shardway.LockToken(rand.Text()) }

// LockMapping keeps others from changing a mapping. A mapping that is locked,
// even with the same token, is [shardway.ErrMappingLocked]. The lock survives
// changes of the mapping; its id does not change.
type LockMapping struct {
	Mapping shardway.Mapping // as read; [shardway.ErrStale] when it has changed since
	Lock    shardway.Lock    // with a token in UTF-8, an owner, and an expiry that lies ahead or is zero
	Reason  string           // for the history; may be empty: Lock.Reason then
}

func (ch LockMapping) target() shardway.MapID { return ch.Mapping.MapID }

func (ch LockMapping) plan(ctx context.Context, s *state) (*plan, error) {
	switch {
	case strings.TrimSpace(string(ch.Lock.Token)) == "" || len(ch.Lock.Token) > shardway.MaxNameBytes:
		return nil, &shardway.ArgumentError{Argument: "lock token", Reason: fmt.Sprintf("must have 1 to %d bytes", shardway.MaxNameBytes)}
	case !utf8.ValidString(string(ch.Lock.Token)):
		return nil, &shardway.ArgumentError{Argument: "lock token", Reason: notText}
	case !ch.Lock.Expires.IsZero() && !s.held(ch.Lock):
		return nil, &shardway.ArgumentError{Argument: "lock expiry", Value: ch.Lock.Expires.String(), Reason: "has passed"}
	}
	if err := shardway.CheckName("lock owner", ch.Lock.Owner); err != nil {
		return nil, err
	}
	m, err := s.mapByID(ctx, ch.Mapping.MapID, "of mapping "+ch.Mapping.ID.String())
	if err != nil {
		return nil, err
	}
	row, err := s.unlockedOrNot(ctx, m, ch.Mapping)
	if err != nil {
		return nil, err
	}
	if s.held(row.Lock) {
		return nil, fmt.Errorf("locking mapping %s of shard map %q: %s: %w",
			row.Format(m.Kind), m.Name, lockedBy(row.Lock), shardway.ErrMappingLocked)
	}
	row.Lock = ch.Lock
	row.Lock.Expires = ch.Lock.Expires.UTC().Truncate(time.Microsecond) // as stores keep it
	summary := fmt.Sprintf("%s for %q", row.Format(m.Kind), ch.Lock.Owner)
	if ch.Lock.Reason != "" {
		summary += ": " + ch.Lock.Reason
	}
	return lockPlan(m, "lock mapping", cmp.Or(ch.Reason, ch.Lock.Reason), summary, row), nil
}

// lockedBy says who has locked a mapping, and why if that is known.
func lockedBy(l shardway.Lock) string {
	if l.Reason == "" {
		return fmt.Sprintf("locked by %q", l.Owner)
	}
	return fmt.Sprintf("locked by %q (%s)", l.Owner, l.Reason)
}

func lockPlan(m shardway.ShardMap, kind, reason, summary string, rows ...shardway.Mapping) *plan {
	return &plan{kind: kind, reason: reason, summary: summary, m: m, locks: rows, nothing: len(rows) == 0, result: Result{Map: m, Mappings: rows}}
}

// UnlockMapping frees a mapping. A token that does not own the lock, and a
// mapping that is not locked, are [shardway.ErrMappingLocked]; Force frees any
// lock, whoever has it.
type UnlockMapping struct {
	Mapping shardway.Mapping // as read; [shardway.ErrStale] when it has changed since
	Token   shardway.LockToken
	Force   bool
	Reason  string // for the history; may be empty
}

func (ch UnlockMapping) target() shardway.MapID { return ch.Mapping.MapID }

func (ch UnlockMapping) plan(ctx context.Context, s *state) (*plan, error) {
	m, err := s.mapByID(ctx, ch.Mapping.MapID, "of mapping "+ch.Mapping.ID.String())
	if err != nil {
		return nil, err
	}
	row, err := s.unlockedOrNot(ctx, m, ch.Mapping)
	if err != nil {
		return nil, err
	}
	if !ch.Force && (ch.Token == "" || row.Lock.Token != ch.Token) {
		return nil, fmt.Errorf("unlocking mapping %s of shard map %q: the token does not own its lock: %w",
			row.Format(m.Kind), m.Name, shardway.ErrMappingLocked)
	}
	owner := row.Lock.Owner
	row.Lock = shardway.Lock{}
	return lockPlan(m, "unlock mapping", ch.Reason, fmt.Sprintf("%s, locked by %q", row.Format(m.Kind), owner), row), nil
}

// UnlockOwner frees every mapping of a map that is locked with a token, and no other.
type UnlockOwner struct {
	Map    shardway.ShardMap
	Token  shardway.LockToken
	Reason string // for the history; may be empty
}

func (ch UnlockOwner) target() shardway.MapID { return ch.Map.ID }

func (ch UnlockOwner) plan(ctx context.Context, s *state) (*plan, error) {
	if ch.Token == "" {
		return nil, &shardway.ArgumentError{Argument: "lock token", Reason: "is missing"}
	}
	m, err := s.shardMap(ctx, ch.Map)
	if err != nil {
		return nil, err
	}
	var rows []shardway.Mapping
	for row, err := range s.tx.Mappings(ctx, store.MappingQuery{Map: m, Token: ch.Token}) {
		if err != nil {
			return nil, err
		}
		if row.Operation != 0 {
			return nil, &PendingError{Operation: row.Operation, Object: "mapping " + row.Format(m.Kind)}
		}
		row.Lock = shardway.Lock{}
		rows = append(rows, row.Mapping)
	}
	return lockPlan(m, "unlock mappings", ch.Reason, fmt.Sprintf("%d mappings of one owner", len(rows)), rows...), nil
}

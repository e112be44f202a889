package sqlshard

import (
	"context"
	"database/sql/driver"

	"github.com/shardway/shardway/internal/dialect"
)

// unknownTag is the tag of a session that may have one or not.
const unknownTag = -1

// questions are those of a pool to its shard about a mapping, with the tag of
// the session where the engine has tags.
type questions struct {
	plain, tagged string // validation
	taggedTx      string // validation in a transaction
	lock, lockTag string // with the lock
	untag         string // empty: no tags
}

func questionsOf(d *dialect.Dialect) questions {
	return questions{
		plain: d.ValidateMapping(), tagged: d.ValidateTagged(), taggedTx: d.ValidateTaggedTx(),
		lock: d.LockMapping(), lockTag: d.LockTagged(), untag: d.Untag(),
	}
}

// asking returns a question about a mapping and its arguments: plain when the
// session has the mapping's tag already.
func (s *session) asking(plain, tagged string, mapping int64) (string, []driver.NamedValue) {
	id := driver.NamedValue{Ordinal: 1, Value: mapping}
	if s.pool.ask.untag == "" || s.tag == mapping {
		return plain, []driver.NamedValue{id}
	}
	id.Ordinal = 2
	return tagged, []driver.NamedValue{{Ordinal: 1, Value: dialect.Tag(mapping)}, id}
}

// validating returns the question of a checkout.
func (s *session) validating(mapping int64) (string, []driver.NamedValue) {
	return s.asking(s.pool.ask.plain, s.pool.ask.tagged, mapping)
}

// fencing returns the question of a transaction.
func (s *session) fencing(mapping int64, readOnly bool) (string, []driver.NamedValue) {
	if readOnly {
		return s.asking(s.pool.ask.plain, s.pool.ask.taggedTx, mapping)
	}
	return s.asking(s.pool.ask.lock, s.pool.ask.lockTag, mapping)
}

// tagged notes what a question that was answered has made of the session's tag.
func (s *session) tagged(mapping int64, found, passing bool) {
	switch {
	case s.pool.ask.untag == "" || passing || s.tag == mapping:
	case found:
		s.tag = mapping
	default: // an engine tags before it looks, or after
		s.tag = unknownTag
	}
}

// untagged takes the tag of a session away that is handed out for no mapping.
func (s *session) untagged(ctx context.Context) error {
	if s.tag == 0 {
		return nil
	}
	if _, err := s.ask(ctx, s.pool.ask.untag, nil, nil); err != nil {
		s.dirty = true
		return s.pool.checkFailed(ctx, err, s.reused)
	}
	s.tag = 0
	return nil
}

// resetsTag are the engines whose driver takes the tag away when a session is
// used again.
var resetsTag = map[string]bool{"sqlserver": true}

package sqlshard_test

import (
	"errors"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/retry"
	"github.com/shardway/shardway/sqlshard"
)

// movedAway checks that the session of a connection was ended because its
// mapping was changed, and that its next statement says so.
func movedAway(t *testing.T, conn *sqlshard.Conn) {
	t.Helper()
	_, err := conn.ExecContext(t.Context(), "INSERT INTO item (id, name) VALUES (-1, 'too late')")
	var moved *shardway.MovedError
	if !errors.As(err, &moved) || moved.Shard != conn.Shard() || moved.Map != "customers" || !errors.Is(err, shardway.ErrStale) {
		t.Errorf("a statement after the mapping went away: %v", err)
	}
	if retry.Classify(err) != retry.CommitUnknown || moved.SafeToRetry() {
		t.Errorf("a statement of its own is %v", retry.Classify(err))
	}
	if retry.Classify(retry.Uncommitted(err)) != retry.Transient {
		t.Errorf("in a transaction it is %v", retry.Classify(retry.Uncommitted(err)))
	}
}

package pgxshard_test

import (
	"testing"

	"github.com/shardway/shardway/pgxshard"
)

// Several statements in a text are fenced together, also when one of them would
// have to be validated by itself if it stood alone: what is written next to it
// must hold the mapping. The lock that is looked for is the one that a change
// waits for.
func TestSeveralAreFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	db := r.open(pgxshard.Config{})
	held := "INSERT INTO item (id, n) SELECT 99, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
	if err := second(db.Exec(t.Context(), 7, "LOCK TABLE item; "+held)); err != nil {
		t.Fatal(err)
	}
	if n := r.one("a", "SELECT n FROM item WHERE id = 99"); n != 1 {
		t.Errorf("the text was run with %d locks on the mapping", n)
	}
	r.exec("a", "DELETE FROM item WHERE id = 99")
	if err := second(db.Exec(t.Context(), 7, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; "+held)); err == nil {
		t.Error("a level that comes too late was not refused")
	}
	if n := r.one("a", "SELECT count(*) FROM item WHERE id = 99"); n != 0 {
		t.Error("what was refused was run without the fence")
	}
}

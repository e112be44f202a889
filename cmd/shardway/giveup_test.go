package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestGiveUp meets an operation that cannot be taken back, because the shard
// was restored to a moment after which the key had come back to it under
// another mapping: recover leaves it, give-up ends it, and what differs is then
// resolved with the command that it names.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	s.signal(os.Interrupt)
	s.hear("note: interrupted")
	s.proxy.Cut()
	if code, said := s.end(); code != exitPending {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	s.unlock()
	id := regexp.MustCompile(`[0-9a-f]{16}`).FindString(s.p.must("operations").out)
	want := func(code int, text string, args ...string) {
		t.Helper()
		r := s.p.run(args...)
		if r.code != code || !strings.Contains(r.out+r.errs, text) {
			t.Errorf("shardway %s: exit code %d, want %d with %q\n%s%s", strings.Join(args, " "), r.code, code, text, r.out, r.errs)
		}
	}
	want(exitUnavailable, "opening local store of shard \"s2\"", "recovery", "give-up", id, "--yes")
	s.proxy.Restore()
	_, err := s.s1.Open(t).ExecContext(t.Context(), `INSERT INTO shardway.local_mappings (mapping_id, map_id, low_key, high_key, shard_id, status)
		SELECT 1, map_id, '\x8000000000000000', '\x8000000000000007', shard_id, 1 FROM shardway.local_shards`)
	if err != nil {
		t.Fatal(err)
	}
	want(exitPending, "to add is there already", "recover")
	want(exitNotFound, "was never written to this store", "recovery", "give-up", "00000000000000ff", "--yes")
	want(exitUsage, "--yes is missing", "recovery", "give-up", id, "--output", "json")
	want(exitUsage, "operation", "recovery", "give-up", "x", "--yes")
	want(exitOK, "would give up", "recovery", "give-up", id, "--dry-run")
	want(exitPending, "to add is there already", "recover")
	want(exitOK, "shardway recovery detect --map customers", "recovery", "give-up", id, "--yes", "--reason", "restored")
	want(exitConflict, "has ended, it is undone", "recovery", "give-up", id, "--yes")
	want(exitOK, "no operation is pending", "recover")
	want(exitOK, "given up, local maps stay as they are; restored", "history", "--limit", "1")
	want(exitDiffer, "differs", "recovery", "detect")
	want(exitOK, "[7, 10)  global only", "recovery", "show", "s1")
	want(exitOK, "", "recovery", "resolve", "s1", "--keep", "local", "--yes")
	want(exitOK, "", "recovery", "detect")
	want(exitOK, "s1", "route", "5", "--explain")
}

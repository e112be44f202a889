package customers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/catalog"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/store"
)

// breakOff runs the story until it has said a line.
func breakOff(t *testing.T, dbs Databases, line string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &at{line: line, do: cancel}
	if err := Run(ctx, out, dbs); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the end of the context, after\n%s", err, out.String())
	}
	return out.String()
}

const clean = "it is removed: the story begins again"

// again runs the story until the earlier run is put in order, or to its end.
func again(t *testing.T, dbs Databases, toTheEnd bool) string {
	t.Helper()
	if !toTheEnd {
		return breakOff(t, dbs, clean)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), &out, dbs); err != nil {
		t.Fatalf("the second run: %v, after\n%s", err, out.String())
	}
	return out.String()
}

// TestRun_interrupted breaks the story off at a line. The next run must put in
// order what is left, find every acknowledged write, and end well.
func TestRun_interrupted(t *testing.T) {
	t.Parallel()
	const online = "left [1301, 1601) offline: it is online again"
	for _, cut := range []struct {
		name, line string
		engine     dbtest.Engine
		says       []string // in the second story
		toTheEnd   bool
	}{
		{"map created", `shard map "demo_customers"`, dbtest.EngineSQLite, []string{"there are no mappings"}, false},
		{"first shard loaded", "s1: loaded", dbtest.EngineSQLite, []string{"its data is whole: 600 customers"}, false},
		{"split", "split [601, 1601) into", dbtest.EngineSQLite, []string{"its data is whole: 2000 customers"}, false},
		{"offline", "is offline: from now on", dbtest.EngineSQLite, []string{online, "its data is whole: 2000 customers"}, false},
		{"copied", "copied 300 customers", dbtest.EngineSQLite, []string{online, "left 300 customers on s3 that are whole elsewhere"}, false},
		{"copied", "copied 300 customers", dbtest.EnginePostgres, []string{online, "left 300 customers on s3 that are whole elsewhere"}, true},
		{"copied", "copied 300 customers", dbtest.EngineMySQL, []string{online, "left 300 customers on s3 that are whole elsewhere"}, true},
		{"moved", "is online on s3", dbtest.EngineSQLite, []string{"left 300 customers on s2 that are whole elsewhere"}, true},
	} {
		t.Run(cut.name+"/"+string(cut.engine), func(t *testing.T) {
			t.Parallel()
			dbs := databases(t, cut.engine)
			first := breakOff(t, dbs, cut.line)
			second := again(t, dbs, cut.toTheEnd)
			says(t, second, append(cut.says, clean)...)
			if cut.toTheEnd {
				says(t, second, "All counts are right.")
			}
			if !strings.Contains(second, "whole: 2000 customers") {
				return // it had not got to any writes
			}
			// What was under way may have been committed without an answer.
			acknowledged := number(t, first, `Interrupted\. (\d+) writes? had been acknowledged`)
			found := number(t, second, `3000 orders loaded and (\d+) written since`)
			if found < acknowledged || found > acknowledged+writers {
				t.Errorf("%d writes were acknowledged, %d found", acknowledged, found)
			}
		})
	}
}

const childVariable = "SHARDWAY_TEST_CUSTOMERS_DEMO"

// TestDemo_killed ends the process itself, wherever it is by then.
func TestDemo_killed(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"while shards are added": "shard map ",
		"while it is offline":    "is offline",
		"after the copy":         "copied 300 customers",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childVariable+"="+dir)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			seen := false
			for lines := bufio.NewScanner(out); !seen && lines.Scan(); {
				seen = strings.Contains(lines.Text(), line)
			}
			_ = child.Process.Kill()
			_ = child.Wait() // it was killed: that is its error
			if !seen {
				t.Fatalf("the demo ended before it said %q", line)
			}
			says(t, again(t, files(dir), false), "An earlier run", clean)
		})
	}
}

// TestRun_changeHalfMade leaves the move of the mapping as a client does that
// dies before it can publish: the next run waits for the lease to end, finishes
// the move, and deletes the rows that are still on the source.
func TestRun_changeHalfMade(t *testing.T) {
	t.Parallel()
	dbs := databases(t, dbtest.EngineSQLite)
	breakOff(t, dbs, "copied 300 customers")
	s := reopened(t, dbs)
	dying, err := catalog.New(&dies{Global: s.global}, s.locals, catalog.Config{Lease: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	m, err := dying.MappingForKey(t.Context(), s.m, shardway.Int64Key(splitAt))
	if err != nil {
		t.Fatal(err)
	}
	target, err := dying.Shard(t.Context(), s.m, "s3")
	if err != nil {
		t.Fatal(err)
	}
	online := shardway.Online
	if _, err := dying.Do(t.Context(), catalog.UpdateMapping{Mapping: m, ShardID: &target.ID, Status: &online}); !errors.Is(err, errDead) {
		t.Fatalf("got %v, want the death of the client", err)
	}
	says(t, again(t, dbs, false), "a change was left half made: move mapping, now done", "left 300 customers on s2 that are whole elsewhere", clean)
}

// reopened is a story on the databases of another one.
func reopened(t *testing.T, dbs Databases) *story {
	t.Helper()
	s, err := begin(&bytes.Buffer{}, dbs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	if s.m, err = s.catalog.ShardMap(t.Context(), mapName); err != nil {
		t.Fatal(err)
	}
	return s
}

var errDead = errors.New("the client is dead")

// dies is a global store that a client reaches until it publishes. It renews its
// lease as often as a busy machine makes it.
type dies struct {
	store.Global
	prepared, dead bool
}

func (d *dies) Update(ctx context.Context, m shardway.MapID, fn func(store.Reader, time.Time) (store.Delta, error)) error {
	if d.dead {
		return errDead
	}
	err := d.Global.Update(ctx, m, func(tx store.Reader, now time.Time) (store.Delta, error) {
		delta, err := fn(tx, now)
		if d.dead = d.prepared && delta.Lease == nil; d.dead {
			return store.Delta{}, errDead
		}
		return delta, err
	})
	d.prepared = true
	return err
}

// TestRun_foreignShards must not touch a map whose shards are elsewhere. And
// one whose removal was broken off goes away.
func TestRun_foreignShards(t *testing.T) {
	t.Parallel()
	dbs, other := databases(t, dbtest.EngineSQLite), databases(t, dbtest.EngineSQLite)
	breakOff(t, dbs, "s1: loaded")
	s := reopened(t, dbs)
	before, err := s.mappings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	moved := dbs
	moved.Shards[1] = other.Shards[1]
	var out bytes.Buffer
	if err := Run(t.Context(), &out, moved); !errors.Is(err, shardway.ErrExists) || !strings.Contains(err.Error(), `shard "s2"`) {
		t.Fatalf("got %v, want ErrExists that names shard s2", err)
	}
	mappings, err := s.mappings(t.Context())
	if err != nil || len(mappings) != 3 || mappings[0] != before[0] || mappings[1] != before[1] || mappings[2] != before[2] {
		t.Fatalf("mappings were %v, are %v, %v", before, mappings, err)
	}
	offline := shardway.Offline
	r, err := s.catalog.Do(t.Context(), catalog.UpdateMapping{Mapping: mappings[0], Status: &offline})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.catalog.Do(t.Context(), catalog.DeleteMapping{Mapping: r.Mappings[0]}); err != nil {
		t.Fatal(err)
	}
	says(t, again(t, dbs, false), "it was just being removed", clean)
	if _, err := s.catalog.ShardMap(t.Context(), mapName); !errors.Is(err, shardway.ErrMapNotFound) {
		t.Errorf("the map: got %v, want ErrMapNotFound", err)
	}
}

package chaos

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardway/shardway/internal/dbtest"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(clientVariable); config != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Run(ctx, []byte(config), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dbtest.Main(m)
}

// length reads how long a run takes: 20s without a setting.
func length(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SHARDWAY_CHAOS")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("SHARDWAY_CHAOS is %q: expected a duration such as 10m", text)
	}
	return d
}

// All promises hold whatever happens to clients and servers.
func TestChaos(t *testing.T) {
	v := judged(t, NoFault, length(t))
	for _, fault := range v.Faults {
		t.Error(fault)
	}
	if v.Rows == 0 || v.Reads == 0 {
		t.Error("the run proves nothing: no write or no read succeeded")
	}
}

// The judge notices what is wrong on purpose. These runs are for make chaos.
func TestChaos_faults(t *testing.T) {
	if os.Getenv("SHARDWAY_CHAOS_FAULTS") == "" {
		t.Skip("SHARDWAY_CHAOS_FAULTS is not set: faults are planted by make chaos alone")
	}
	for _, fault := range Faults {
		t.Run(string(fault), func(t *testing.T) {
			for try := range 5 {
				if v := judged(t, fault, 30*time.Second); len(v.Faults) > 0 {
					t.Logf("noticed: %s", strings.Join(v.Faults, "\n"))
					return
				}
				t.Logf("not noticed by run %d", try+1)
			}
			t.Error("nothing was noticed")
		})
	}
}

// judged makes one run and reports it.
func judged(t *testing.T, fault Fault, length time.Duration) Verdict {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	w := newWorld(t)
	w.deploy(t)
	n := newNemesis(t, w, seed, fault)
	for range 4 {
		n.launch(Worker)
	}
	for range 3 {
		n.launch(Mover)
	}
	n.run(length)
	n.end()
	if left := awaitNoSessions(t, w); len(left) > 0 {
		t.Errorf("%d sessions of clients are left:\n%s", len(left), strings.Join(left, "\n"))
	}
	if locks := w.advisoryLocks(t.Context(), t); locks > 0 {
		t.Errorf("%d advisory locks are left", locks)
	}
	v, err := Judge(t.Context(), w.evidence(t, n.dir))
	if err != nil {
		t.Fatal(err)
	}
	n.report(seed, length, v)
	return v
}

// awaitNoSessions gives servers a moment to notice that clients are gone.
func awaitNoSessions(t *testing.T, w *world) (left []string) {
	t.Helper()
	for range 100 {
		if left = w.sessions(t.Context(), t); len(left) == 0 {
			return nil
		}
		pause(t.Context(), 50*time.Millisecond)
	}
	return left
}

// report prints what was done and what was checked.
func (n *nemesis) report(seed uint64, length time.Duration, v Verdict) {
	n.t.Helper()
	for change, count := range countChanges(n.t, n.dir) {
		n.counts[change] += count
	}
	var b strings.Builder
	fmt.Fprintf(&b, "chaos of %v, seed %d, fault %q\n", length, seed, n.fault)
	for _, what := range slices.Sorted(maps.Keys(n.counts)) {
		fmt.Fprintf(&b, "  %6d %s\n", n.counts[what], what)
	}
	fmt.Fprintf(&b, "  %6d writes, %d of them on the shard that owns their key; %d reads\n", v.Writes, v.Rows, v.Reads)
	fmt.Fprintf(&b, "  %6d outcomes were unknown, and %d operations lost their client\n", v.Unknown, v.Lost)
	fmt.Fprintf(&b, "checked: each of %d keys has one owner, the same in the global and the local maps; nothing is pending, locked or offline;\n", Keys)
	fmt.Fprintf(&b, "  acknowledged writes are there once, failed ones are not; each key's operations have an order that explains every read;\n")
	fmt.Fprintf(&b, "  no session, advisory lock or goroutine is left: %d faults", len(v.Faults))
	n.t.Log(b.String())
}

// countChanges counts what movers say they have done.
func countChanges(t *testing.T, dir string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	files, err := fs.Glob(os.DirFS(dir), "mover*.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range []string{"move", "split", "merge"} {
			counts[change+"s of mappings"] += strings.Count(string(text), ": done "+change+"\n")
		}
	}
	return counts
}

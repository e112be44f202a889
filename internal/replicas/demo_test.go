package replicas

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// requirePostgres skips, or fails where PostgreSQL must be tested.
func requirePostgres(t *testing.T) {
	t.Helper()
	_, err := findPrograms()
	if err == nil {
		return
	}
	if strings.Contains(os.Getenv("SHARDWAY_TEST_REQUIRE"), "postgres") {
		t.Fatal(err)
	}
	t.Skip(err)
}

// checkEnded demands that every server whose data is in dir has ended.
func checkEnded(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no server has run: %v", err)
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range commands {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(dir)) {
			t.Errorf("%s runs on: %q", file, text)
		}
	}
}

// The demo's servers tell the whole story and are gone afterwards.
func TestDemo(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := folder(t)
	var out bytes.Buffer
	if err := Demo(t.Context(), &out, dir); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	for _, line := range []string{
		`127\.0\.0\.1:\d+ took it`,
		`is secondary, round trip [0-9.]+ms: out, by latency window`,
		`20 reads were served by localhost:\d+ \(20\)`,
		`20 reads where host == "localhost" were served by localhost:\d+ \(20\)`,
		`localhost:\d+ takes the writes now`,
		`20 more writes went there, and none to 127\.0\.0\.1`,
	} {
		if !regexp.MustCompile(line).MatchString(out.String()) {
			t.Errorf("the story does not say %q:\n%s", line, out.String())
		}
	}
	checkEnded(t, dir)
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// interrupting ends a context when a chapter begins.
type interrupting struct {
	bytes.Buffer
	at     string
	cancel context.CancelCauseFunc
}

var errInterrupted = errors.New("interrupted")

func (w *interrupting) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), w.at) {
		w.cancel(errInterrupted)
	}
	return w.Buffer.Write(p)
}

// A demo that is interrupted ends its servers all the same.
func TestDemo_interrupted(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := folder(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if err := Demo(ctx, &interrupting{at: "3.", cancel: cancel}, dir); !errors.Is(err, errInterrupted) && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	checkEnded(t, dir)
}

// A server that ends instead of starting is reported with its own words.
func TestDemo_broken(t *testing.T) {
	t.Parallel()
	requirePostgres(t)
	dir := folder(t)
	if err := os.Mkdir(filepath.Join(dir, names[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, names[0], "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Demo(t.Context(), &bytes.Buffer{}, dir)
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, names[0], "mine")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}

package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// TestRecoverWatch kills the program in the middle of a change. Another one,
// that watches, ends the operation once its lease has lapsed, says so, and goes
// on until it is interrupted, which is no failure.
func TestRecoverWatch(t *testing.T) {
	t.Parallel()
	s := newStalled(t, "--lease", "500ms")
	watch := s.p.command("recover", "--watch", "--every", "50ms", "--map", "customers")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	s.signal(os.Kill)
	s.end()
	s.unlock()
	lines := bufio.NewScanner(out)
	told := ""
	for !strings.Contains(told, "undone") && lines.Scan() {
		told += lines.Text() + "\n"
	}
	if !strings.Contains(told, "move mapping") || !strings.Contains(told, "undone") {
		t.Errorf("the watcher says:\n%s", told)
	}
	if r := s.p.must("operations"); !strings.Contains(r.out, "(none)") {
		t.Errorf("operations are left:\n%s", r.out)
	}
	if got := s.owner(); got != "s1" {
		t.Errorf("key 5 is on %s, want s1", got)
	}
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to the end of what it says
		told += lines.Text()
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("the watcher ends with %v", err)
	}
}

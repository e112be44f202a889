package sqlshard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each statement of docs/guarantees.md names a test that exists. What draining
// cannot do needs none.
func TestGuaranteesHaveTests(t *testing.T) {
	t.Parallel()
	const folder = "../docs"
	text, err := os.ReadFile(filepath.Join(folder, "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)
	statements := 0
	draining := strings.Index(string(text), "\n## Draining")
	promises := len(regexp.MustCompile(`(?m)^- `).FindAllString(string(text[:draining]), -1))
	for i, statement := range regexp.MustCompile(`(?m)^- `).Split(string(text), -1)[1:] {
		statement, _, _ = strings.Cut(statement, "\n\n")
		statements++
		named := link.FindAllStringSubmatch(statement, -1)
		if len(named) == 0 && i < promises {
			t.Errorf("no test holds this: %s", statement)
		}
		for _, n := range named {
			source, err := os.ReadFile(filepath.Join(folder, n[2]))
			if err != nil || !strings.Contains(string(source), "func "+n[1]+"(t *testing.T)") {
				t.Errorf("%s has no test %s (%v)", n[2], n[1], err)
			}
		}
	}
	if statements < 30 {
		t.Errorf("%d statements were found", statements)
	}
}

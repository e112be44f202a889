package shardway_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs holds the documentation to what is compiled and run: every Go
// snippet stands, line by line, in a Go file of the tree, and every shardway
// command in a script that the tests run. Links between files lead somewhere.
func TestDocs(t *testing.T) {
	t.Parallel()
	sources := readAll(t, func(file string) bool { return strings.HasSuffix(file, ".go") })
	scripts := readAll(t, func(file string) bool { return strings.HasSuffix(file, ".txtar") })
	for file, text := range readAll(t, func(file string) bool { return strings.HasSuffix(file, ".md") }) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			for _, b := range blocks(text) {
				switch b.language {
				case "go":
					if !anyContains(sources, flat(b.text)) {
						t.Errorf("this snippet stands in no Go file:\n%s", b.text)
					}
				case "sh":
					for line := range strings.Lines(b.text) {
						command, _, _ := strings.Cut(strings.TrimSpace(line), "  #")
						// The README's are run by TestReadme of cmd/shardway.
						if strings.HasPrefix(command, "shardway ") && file != "README.md" && !anyContains(scripts, command) {
							t.Errorf("this command stands in no script of the tests: %s", command)
						}
					}
				}
			}
			checkLinks(t, file, text)
		})
	}
}

func readAll(t *testing.T, want func(file string) bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !want(file) {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "." {
				return filepath.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(file)
		all[file] = flatIf(strings.HasSuffix(file, ".go"), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func flatIf(is bool, text string) string {
	if is {
		return flat(text)
	}
	return text
}

// flat drops indentation and empty lines.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func anyContains(texts map[string]string, part string) bool {
	for _, text := range texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

type block struct{ language, text string }

func blocks(text string) (all []block) {
	var b *block
	for line := range strings.Lines(text) {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && b == nil:
			b = &block{language: language}
		case fence:
			all = append(all, *b)
			b = nil
		case b != nil:
			b.text += line
		}
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

func checkLinks(t *testing.T, file, text string) {
	t.Helper()
	for _, b := range blocks(text) {
		text = strings.Replace(text, b.text, "", 1)
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
			t.Errorf("link to %s leads nowhere", m[1])
		}
	}
}

package retry_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway/retry"
)

var rewrite = flag.Bool("rewrite", false, "write the table into docs/retry.md")

// The table in the documentation is the one in the code.
func TestDocumentedTable(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../docs/retry.md", "<!-- table: go test ./retry -rewrite -->\n", "<!-- end of table -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	table, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", file)
	}
	want := retry.Table() + "\n"
	if *rewrite {
		if err = os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("%s differs from the code (-code +docs); go test ./retry -run TestDocumentedTable -rewrite writes it\n%s", file, diff)
	}
}

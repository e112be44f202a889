package customers

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/mysql"
	"github.com/shardway/shardway/postgres"
	"github.com/shardway/shardway/sqlite"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/story.txt")

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := Demo(context.Background(), os.Stdout, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Main(m)
}

// engines are those whose statements read snapshots, as the reader of the story
// wants it; SQL Server's do not unless the database is told to.
var engines = []dbtest.Engine{dbtest.EngineSQLite, dbtest.EnginePostgres, dbtest.EngineMySQL}

// databases returns four empty databases of an engine.
func databases(t *testing.T, e dbtest.Engine) Databases {
	t.Helper()
	var all [4]Database
	for i := range all {
		d := e.NewDatabase(t)
		db := &all[i]
		var err error
		switch e {
		case dbtest.EnginePostgres:
			db.Engine, db.Location, db.Credentials, err = postgres.Parse(d.DSN())
		case dbtest.EngineMySQL:
			db.Engine, db.Location, db.Credentials, err = mysql.Parse(d.DSN())
		default:
			db.Engine, db.Location, db.Credentials, err = sqlite.Parse(d.DSN())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Databases{Global: all[0], Shards: [3]Database(all[1:])}
}

// changing are the parts of the story that no two runs have in common. That
// they are right is checked by the story itself.
var changing = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`(?m)^(   (?:before|during|after)) +\d+ writes +\d+ reads, +\d+ of them`), "$1 N writes N reads, N of them"},
	{regexp.MustCompile(`\d+ writes acknowledged`), "N writes acknowledged"},
	{regexp.MustCompile(`\d+ times?`), "N times"},
	{regexp.MustCompile(`\d+ units?`), "N units"},
	{regexp.MustCompile(` +\d+ orders  checksum \w+`), " N orders  checksum X"},
	{regexp.MustCompile(`over all shards \w+`), "over all shards X"},
	{regexp.MustCompile(`took [\d.]+ s`), "took N s"},
}

func normalise(story string, engine dbtest.Engine) string {
	for _, c := range changing {
		story = c.pattern.ReplaceAllString(story, c.text)
	}
	return strings.Replace(story, "three shards on "+string(engine)+"\n", "three shards on ENGINE\n", 1)
}

// TestRun has one transcript for all engines.
func TestRun(t *testing.T) {
	t.Parallel()
	const golden = "testdata/story.txt"
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			dbs := databases(t, e)
			var first, again bytes.Buffer
			if err := Run(t.Context(), &first, dbs); err != nil {
				t.Fatalf("%v, after\n%s", err, first.String())
			}
			got := normalise(first.String(), e)
			if *rewrite && e == dbtest.EngineSQLite {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("story (-want +got):\n%s", diff)
			}
			if secret := dbs.Shards[0].Credentials.Password; secret != "" && strings.Contains(first.String(), secret) {
				t.Error("the story shows the password")
			}
			// Once more on the same databases: what the first run left is
			// looked at, every acknowledged write included, and removed.
			if err := Run(t.Context(), &again, dbs); err != nil {
				t.Fatalf("the second run: %v, after\n%s", err, again.String())
			}
			written := number(t, first.String(), `(\d+) writes acknowledged, none lost`)
			says(t, again.String(), fmt.Sprintf("its data is whole: 2000 customers, each on one shard, with 3000 orders loaded and %d written since", written))
			if _, rest, _ := strings.Cut(again.String(), "begins again\n"); afterTitle(normalise(rest, e)) != afterTitle(got) {
				t.Errorf("the second story differs from the first:\n%s", cmp.Diff(afterTitle(got), afterTitle(normalise(rest, e))))
			}
		})
	}
}

// afterTitle returns the chapters from the map on, without their numbers.
func afterTitle(story string) string {
	_, rest, _ := strings.Cut(story, ". The map\n")
	return regexp.MustCompile(`(?m)^\d+\. `).ReplaceAllString(rest, "")
}

// number finds the number that a pattern captures.
func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("nothing matches %q in\n%s", pattern, text)
	}
	var n int
	if _, err := fmt.Sscan(m[1], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// says checks that a story has some lines.
func says(t *testing.T, story string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(story, line) {
			t.Errorf("the story does not say %q:\n%s", line, story)
		}
	}
}

// at is a writer that calls do when the story has come to a line.
type at struct {
	bytes.Buffer
	line string
	do   func()
}

func (a *at) Write(p []byte) (int, error) {
	if a.do != nil && strings.Contains(string(p), a.line) {
		a.do()
		a.do = nil
	}
	return a.Buffer.Write(p)
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	good := func() Databases {
		d := Database{
			Engine: postgres.Engine{}, Location: shardway.Location{Database: "d", Servers: []shardway.Server{{Address: "127.0.0.1:1"}}},
			Credentials: shardway.Credentials{User: "app", Password: "hush"},
		}
		return Databases{Global: d, Shards: [3]Database{d, d, d}}
	}
	for name, change := range map[string]func(*Databases){
		"no engine":      func(d *Databases) { d.Global.Engine = nil },
		"two engines":    func(d *Databases) { d.Shards[1].Engine = mysql.Engine{} },
		"two options":    func(d *Databases) { d.Shards[2].Engine = postgres.Engine{Options: "sslmode=disable"} },
		"two logins":     func(d *Databases) { d.Shards[2].Credentials.User = "other" },
		"two passwords":  func(d *Databases) { d.Shards[1].Credentials.Password = "psst" },
		"bad location":   func(d *Databases) { d.Shards[1].Location.Servers = nil },
		"no global name": func(d *Databases) { d.Global.Location.Database = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := good()
			change(&d)
			err := Run(t.Context(), io.Discard, d)
			if !errors.Is(err, shardway.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			if text := err.Error(); strings.Contains(text, "hush") || strings.Contains(text, "psst") {
				t.Errorf("the error shows a secret: %s", text)
			}
		})
	}
}

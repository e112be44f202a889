package main

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardway/shardway/internal/dbtest"
)

// TestMain makes the test binary be the program too, for scripts.
func TestMain(m *testing.M) {
	testscript.Main(servers{m}, map[string]func(){"shardway": main})
}

// servers runs tests with database servers at hand.
type servers struct{ m *testing.M }

func (s servers) Run() int { return dbtest.Run(s.m) }

// TestScript runs the scripts that need no server.
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scripts("testdata/script", func(e *testscript.Env) error {
		e.Setenv("SHARDWAY_STORE", "sqlite:maps.db")
		return nil
	}))
}

// scripts returns what scripts have in common. Besides the usual commands they
// have those of scriptCommands.
func scripts(dir string, setup func(*testscript.Env) error) testscript.Params {
	return testscript.Params{
		Dir: dir, UpdateScripts: os.Getenv("SHARDWAY_UPDATE") != "", RequireUniqueNames: true, Cmds: scriptCommands,
		Setup: func(e *testscript.Env) error {
			e.Setenv("USER", "tester")
			e.Setenv("SHARDWAY_WHO", "tester")
			return setup(e)
		},
	}
}

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"code": exitCode, "snapshot": takeSnapshot, "unchanged": checkUnchanged,
	"capture": capture, "normal": normal, "sql": execSQL, "same": same,
}

// exitCode runs "code N program args…" and demands the exit code N. Codes
// other than 0 come with a message.
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if message := ts.ReadFile("stderr"); want != exitOK && !strings.Contains(message, "shardway: ") {
		ts.Fatalf("exit code %d without a message", got)
	}
}

const snapshotFile = ".snapshot"

// takeSnapshot notes the rows of all SQLite databases in the script's folder.
func takeSnapshot(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(os.WriteFile(ts.MkAbs(snapshotFile), []byte(dump(ts)), 0o600))
}

// checkUnchanged demands that they are as they were.
func checkUnchanged(ts *testscript.TestScript, _ bool, _ []string) {
	if got, want := dump(ts), ts.ReadFile(snapshotFile); got != want {
		ts.Fatalf("the databases have changed\nbefore:\n%s\nafter:\n%s", want, got)
	}
}

func dump(ts *testscript.TestScript) string {
	files, err := filepath.Glob(ts.MkAbs("*.db"))
	ts.Check(err)
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "== %s\n", filepath.Base(f))
		text, err := dumpFile(f)
		ts.Check(err)
		b.WriteString(text)
	}
	return b.String()
}

func dumpFile(file string) (string, error) {
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		return "", err
	}
	defer db.Close()
	tables, err := rowsOf(db, `SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name`)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, table := range tables {
		rows, err := rowsOf(db, `SELECT * FROM "`+table+`"`)
		if err != nil {
			return "", err
		}
		slices.Sort(rows)
		fmt.Fprintf(&b, "-- %s\n%s\n", table, strings.Join(rows, "\n"))
	}
	return b.String(), nil
}

func rowsOf(db *sql.DB, query string) (all []string, err error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.RawBytes)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		texts := make([]string, len(columns))
		for i, v := range values {
			texts[i] = string(*v.(*sql.RawBytes))
		}
		all = append(all, strings.Join(texts, "|"))
	}
	return all, rows.Err()
}

// capture runs "capture NAME REGEXP": the variable becomes the first group
// found in the last standard output.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

var (
	idText   = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	storeID  = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)
)

// normal writes the last standard output to a file, with ids, times and the
// script's folder replaced by words.
func normal(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	text = strings.ReplaceAll(text, ts.Getenv("WORK"), "WORK")
	text = idText.ReplaceAllString(text, "ID")
	text = timeText.ReplaceAllString(text, "TIME")
	text = storeID.ReplaceAllString(text, "STOREID")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// execSQL runs "sql FILE STATEMENT" on a SQLite database.
func execSQL(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0]))
	ts.Check(err)
	_, err = db.Exec(args[1])
	ts.Check(cmp.Or(err, db.Close()))
}

// same demands that two texts are, or are not, the same.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if (args[0] == args[1]) == neg {
		ts.Fatalf("%q and %q", args[0], args[1])
	}
}

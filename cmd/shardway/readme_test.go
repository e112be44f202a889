package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/shardway/shardway/internal/dbtest"
)

// TestReadme runs the README's first steps on PostgreSQL, line by line, with
// the test's databases in the places of the reader's.
func TestReadme(t *testing.T) { //nolint:paralleltest // it sets the environment
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	global := dbtest.EnginePostgres.NewDatabase(t)
	shards := map[string]dbtest.Database{"shard1": dbtest.EnginePostgres.NewDatabase(t), "shard2": dbtest.EnginePostgres.NewDatabase(t)}
	mine := strings.NewReplacer(
		"postgres://127.0.0.1:5432/shard1", location(shards["shard1"]),
		"postgres://127.0.0.1:5432/shard2", location(shards["shard2"]),
	)
	// The settings of the README are enough: the login is given once.
	for _, d := range allSettings {
		t.Setenv(d.variable(), "")
	}
	for name, value := range map[string]string{"SHARDWAY_STORE": global.As(global.User, "").DSN(), "SHARDWAY_STORE_PASSWORD": global.Password} {
		if !strings.Contains(string(text), "export "+name+"=") {
			t.Errorf("the README does not set %s", name)
		}
		t.Setenv(name, value)
	}
	table := regexp.MustCompile(`CREATE TABLE customer \([^']*\)`).FindString(string(text))
	for name, d := range shards {
		if !strings.Contains(string(text), "for db in shardmaps shard1 shard2; do createdb $db; done") || !strings.Contains(string(text), "/"+name+"\n") {
			t.Errorf("the README does not create database %s", name)
		}
		execAs(t, d, table)
	}
	var last bytes.Buffer
	steps := 0
	for line := range strings.Lines(string(text)) {
		args := strings.Fields(mine.Replace(line))
		if len(args) == 0 || args[0] != "shardway" {
			continue
		}
		steps++
		last.Reset()
		var errs bytes.Buffer
		if code := run(context.Background(), args[1:], strings.NewReader(""), &last, &errs); code != exitOK {
			t.Fatalf("%s: exit code %d: %s", line, code, &errs)
		}
	}
	if steps < 7 {
		t.Fatalf("only %d steps were found", steps)
	}
	if got := last.String(); !strings.Contains(got, "eu2") || !strings.Contains(got, "[1000, +inf)") {
		t.Errorf("the last step does not show the route of 4711:\n%s", got)
	}
	execAs(t, shards["shard2"], `INSERT INTO customer (customer_id, name) VALUES (4711, 'Ada')`)
}

package sqlshard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dbtest"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/sqlshard"
)

// pause has a secondary stand still until resume.
func (r *replicas) pause(i int) {
	switch set := r.set.(type) {
	case *dbtest.PostgresSet:
		set.PauseReplay(r.t, i)
	case *dbtest.MariaDBSet:
		set.StopReplication(r.t, i)
	}
}

func (r *replicas) resume(i int) {
	switch set := r.set.(type) {
	case *dbtest.PostgresSet:
		set.ResumeReplay(r.t, i)
	case *dbtest.MariaDBSet:
		set.StartReplication(r.t, i)
	}
}

// wroteRow writes a row and returns the token for it, by way of its text.
func (r *replicas) wroteRow(db *sqlshard.DB[int64], id int64) sqlshard.Token {
	r.t.Helper()
	conn := opened1(r.t, db)
	defer conn.Close()
	if _, err := conn.ExecContext(r.t.Context(), "INSERT INTO written (id) VALUES ("+shardway.Int64Key(id).String()+")"); err != nil {
		r.t.Fatal(err)
	}
	token, err := conn.Token(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	parsed, err := sqlshard.ParseToken(token.String())
	if err != nil || parsed != token {
		r.t.Fatalf("token %q was read as %q: %v", token, parsed, err)
	}
	return parsed
}

// sees reads a row and returns the server that was asked.
func sees(ctx context.Context, t testing.TB, db *sqlshard.DB[int64], id int64) (found bool, server string) {
	t.Helper()
	conn, err := db.OpenConnectionForKey(ctx, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM written WHERE id = "+shardway.Int64Key(id).String()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n == 1, conn.Server()
}

// LAG-04: reads with a token see the write on whatever server; without one, a
// secondary may lag, and says that it was asked.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	eachSet(t, func(t *testing.T, r *replicas) {
		db := r.connect(sqlshard.Config{})
		// One whose replication stands still is detached as soon as a check sees it.
		readers := db.With(selection.Secondary(selection.Tags{"zone": "z1"}, selection.AllowDetached(true)))
		for id := range int64(20) {
			ctx := sqlshard.WithToken(t.Context(), r.wroteRow(db, id))
			if found, server := sees(ctx, t, readers, id); !found {
				t.Fatalf("row %d is not seen with its token on %s", id, server)
			}
		}
		r.set.AwaitReplay(t, 1)
		ctx := sqlshard.WithToken(t.Context(), r.wroteRow(db, 100))
		r.set.AwaitReplay(t, 1)
		if found, server := sees(ctx, t, readers, 100); !found || server != r.set.Addr(1) {
			t.Errorf("a token that is reached led to %s, found %v; want secondary %s", server, found, r.set.Addr(1))
		}

		r.pause(1)
		token := r.wroteRow(db, 101)
		if found, server := sees(t.Context(), t, readers, 101); found || server != r.set.Addr(1) {
			t.Errorf("without a token %s was asked, found %v; want secondary %s that lags", server, found, r.set.Addr(1))
		}
		ctx = sqlshard.WithToken(t.Context(), token)
		if found, server := sees(ctx, t, readers, 101); !found || server != r.set.Addr(0) {
			t.Errorf("with the token %s was asked, found %v; want primary %s", server, found, r.set.Addr(0))
		}
		if found, server := sees(ctx, t, db, 101); !found || server != r.set.Addr(0) {
			t.Errorf("a write connection with a token is on %s, found %v", server, found)
		}
		r.resume(1)
		patient := r.connect(sqlshard.Config{Servers: sqlshard.ServerConfig{TokenWait: 20 * time.Second}, Criteria: selection.Secondary()})
		if found, server := sees(ctx, t, patient, 101); !found || server == r.set.Addr(0) {
			t.Errorf("with time to wait %s was asked, found %v; want a secondary", server, found)
		}
		r.monotonic(readers)
		quiet(t, db)
	})
}

// monotonic takes the token of what a secondary shows.
func (r *replicas) monotonic(readers *sqlshard.DB[int64]) {
	r.t.Helper()
	conn := opened1(r.t, readers)
	defer conn.Close()
	if conn.Server() != r.set.Addr(1) {
		r.t.Fatalf("on %s", conn.Server())
	}
	if token, err := conn.Token(r.t.Context()); err != nil || token == (sqlshard.Token{}) {
		r.t.Errorf("token %v of a secondary: %v", token, err)
	}
	tx, err := conn.BeginTx(r.t.Context(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if token, err := conn.Token(r.t.Context()); !errors.Is(err, shardway.ErrInvalid) {
		r.t.Errorf("token %v within a transaction: %v", token, err)
	}
}

// A token of another shard or engine, or text that is none, is refused by name
// and selects nothing.
func TestTokenRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, dbtest.EngineSQLite)
	db := r.open(sqlshard.Config{})
	token := func(key int64) sqlshard.Token {
		conn, err := db.OpenConnectionForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		token, err := conn.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	a, b := token(7), token(107)
	other, err := sqlshard.ParseToken(strings.Replace(a.String(), "sqlite", "sqlserver", 1))
	if err != nil {
		t.Fatal(err)
	}
	readers := db.With(selection.Nearest())
	for name, c := range map[string]struct {
		token sqlshard.Token
		names string
	}{"another shard": {b, "another shard"}, "another engine": {other, "another engine"}} {
		e := refusedWith(sqlshard.WithToken(t.Context(), c.token), t, readers, 7, shardway.ErrInvalid)
		var refused *sqlshard.TokenError
		if !errors.As(e.Err, &refused) || !strings.Contains(e.Error(), c.names) || e.Shard != "a" {
			t.Errorf("%s: %v", name, e.Error())
		}
		conn, err := db.OpenConnectionForKey(sqlshard.WithToken(t.Context(), c.token), 7)
		if err != nil {
			t.Fatalf("%s: the primary needs no token: %v", name, err)
		}
		_ = conn.Close()
	}
	for name, ctx := range map[string]context.Context{
		"both": sqlshard.WithToken(sqlshard.WithToken(t.Context(), a), b),
		"none": sqlshard.WithToken(t.Context(), sqlshard.Token{}),
	} {
		conn, err := readers.OpenConnectionForKey(ctx, 7)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = conn.Close()
	}
}

func TestParseToken(t *testing.T) {
	t.Parallel()
	good := []string{
		"v1.postgres.1-2.MC8xNkIzNzQ4",  // 0/16B3748
		"v1.mysql.1-2.MC0xLTI1LDEtMi0z", // 0-1-25,1-2-3
		"v1.sqlite.1-2.", "v1.sqlserver.3-4.",
	}
	for _, text := range good {
		token, err := sqlshard.ParseToken(text)
		if err != nil || token.String() != text {
			t.Errorf("%s was read as %q: %v", text, token, err)
		}
	}
	bad := []string{
		"", "x", "v1.postgres.1-2", "v2.postgres.1-2.MC8xNkIzNzQ4", "v1.oracle.1-2.MC8x", "v1.postgres.1-2.", "v1.postgres.1-2.JzsgRFJPUA",
		"v1.postgres.a-b.MC8xNkIzNzQ4", "v1.postgres.1-2 .MC8xNkIzNzQ4", "v1.postgres.01-2.MC8xNkIzNzQ4", "v1.postgres.1-2.MC8xNkIzNzQ4.x",
		"v1.sqlite.1-2.MC8x", "v1.mysql.1-2.JyBPUiAxPTE", "v1.mysql.1-2.!!", "v1.mysql.1-2." + strings.Repeat("MC0x", 2000),
	}
	for _, text := range bad {
		var e *sqlshard.TokenError
		if token, err := sqlshard.ParseToken(text); !errors.As(err, &e) || !errors.Is(err, shardway.ErrInvalid) || token != (sqlshard.Token{}) {
			t.Errorf("%q was read as %q: %v", text, token, err)
		}
	}
	if slices.ContainsFunc(good, func(s string) bool { return strings.ContainsAny(s, " ,;\"\\") }) {
		t.Error("a token does not fit into a cookie")
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("v1.postgres.1-2.MC8xNkIzNzQ4")
	f.Add("v1.sqlite.1-2.")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := sqlshard.ParseToken(text)
		if err == nil && token.String() != text {
			t.Errorf("%q was read and written as %q", text, token)
		}
	})
}

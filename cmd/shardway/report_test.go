package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// What two layers both say is said once; what only looks alike stays.
func TestMessage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`reading shard map "cust": reading shard map "cust": shard map not found`:            `reading shard map "cust": shard map not found`,
		"opening store: dialing host: opening store: dialing host: refused":                  "opening store: dialing host: refused",
		"the cause is long\nthe cause is long":                                               "the cause is long",
		`key "1: 1": 1: 1`:                                                                   `key "1: 1": 1: 1`,
		"changing shard \"a\": changing shard \"b\": gone":                                   "changing shard \"a\": changing shard \"b\": gone",
		"unavailable: unavailable: unavailable: connecting to db:5432: FATAL: out of memory": "unavailable: connecting to db:5432: FATAL: out of memory",
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("message(%q) = %q, want %q", text, got, want)
		}
	}
}

// Refused logins are told from missing rights, and both from all else.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want refusal
		ok   bool
	}{
		{&pgconn.PgError{Code: "42501"}, refusal{"postgres", false}, true},
		{&pgconn.PgError{Code: "28P01"}, refusal{"postgres", true}, true},
		{&pgconn.PgError{Code: "40001"}, refusal{}, false},
		{&mysql.MySQLError{Number: 1142}, refusal{"mysql", false}, true},
		{&mysql.MySQLError{Number: 1045}, refusal{"mysql", true}, true},
		{&mysql.MySQLError{Number: 1213}, refusal{}, false},
		{numbered(229), refusal{"sqlserver", false}, true},
		{numbered(18456), refusal{"sqlserver", true}, true},
		{numbered(1205), refusal{}, false},
		{errors.New("permission denied"), refusal{}, false},
	} {
		got, ok := refusalIn(fmt.Errorf("doing something: %w", c.err))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%v: %+v, %v", c.err, got, ok)
		}
	}
}

// numbered is an error as the SQL Server driver reports them.
type numbered int32

func (n numbered) Error() string         { return fmt.Sprint("error ", int32(n)) }
func (n numbered) SQLErrorNumber() int32 { return int32(n) }

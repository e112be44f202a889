package postgres

import (
	"net/url"
	"slices"
	"strings"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
)

// known are the options whose misspelling is worth an error: those of the
// driver, and parameters of the server that many people set.
var known = []string{
	"sslmode", "sslkey", "sslcert", "sslcertmode", "sslrootcert", "sslsni", "sslnegotiation",
	"connect_timeout", "target_session_attrs", "application_name", "channel_binding", "require_auth",
	"krbspn", "krbsrvname", "min_protocol_version", "max_protocol_version",
	"statement_cache_capacity", "description_cache_capacity", "default_query_exec_mode",
	"search_path", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
	"client_encoding", "options", "timezone", "datestyle",
}

// readOptions reads driver options. A name that the driver does not know is a
// parameter that the server sets for the session; one that is nearly a known
// name is refused instead.
func readOptions(text string) (url.Values, error) {
	values, err := dsn.Options(text)
	if err != nil {
		return nil, err
	}
	for name := range values {
		if near := nearMiss(name); near != "" {
			return nil, &shardway.ArgumentError{Argument: "option", Value: name, Reason: "is unknown: did you mean " + near + "?"}
		}
	}
	return values, nil
}

// nearMiss returns the known name that a name was probably meant to be, or
// nothing when it is one, or like none. The server takes its own parameters in
// any case.
func nearMiss(name string) string {
	if slices.Contains(known, name) || strings.EqualFold(name, "timezone") || strings.EqualFold(name, "datestyle") {
		return ""
	}
	plain := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
	}
	for _, k := range known {
		if d := distance(plain(name), plain(k)); d == 0 || d <= 2 && len(name) > 5 {
			return k
		}
	}
	return ""
}

// distance is the number of characters to add, drop or replace between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

package dialect

import (
	"slices"
	"strings"
)

// readOnly are the codes by which a server says that it takes no writes. Those
// of SQL Server from 976 on are what a secondary of an availability group says
// to who connects.
var readOnly = map[string][]string{
	"postgres":  {"25006"},
	"mysql":     {"1290.", "1792.", "1836.", "1874."},
	"sqlserver": {"976.", "978.", "983.", "3906."},
	"sqlite":    {"8."},
}

// ReadOnly reports whether an error says that the server, or the transaction,
// takes no writes. A caller's own read-only transaction says the same.
func (d *Dialect) ReadOnly(err error) bool {
	code, ok := d.codes.find(err)
	if !ok {
		return false
	}
	match := d.codes.match(code)
	return slices.Contains(readOnly[d.name], match) && strings.Contains(err.Error(), d.codes.only[match])
}

// Answered reports whether an error is one that a server reported: it is alive,
// whatever it says.
func (d *Dialect) Answered(err error) bool {
	_, ok := d.codes.find(err)
	return ok
}

// Positions are the queries that tell how far a server has got. Each has one
// row.
type Positions struct {
	// Current returns a text: the position of the last write, or replayed
	// write. Everything committed before the question is covered.
	Current string
	// Reached takes a position and returns 1 when a server shows everything up
	// to it and another number when not. It does not wait. On a server that
	// is not a secondary the answer means nothing.
	Reached string
	// Yes is the number that Reached returns for yes.
	Yes int64
}

// Positions returns the queries, and false for an engine that tells no
// position. version is the text of SELECT VERSION(), by which MariaDB is told
// from MySQL.
func (d *Dialect) Positions(version string) (Positions, bool) {
	switch {
	case d == &postgres:
		return Positions{
			Current: "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)::text",
			Reached: "SELECT (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::int",
			Yes:     1,
		}, true
	case d == &mysql && strings.Contains(strings.ToLower(version), "mariadb"):
		return Positions{Current: "SELECT @@GLOBAL.gtid_current_pos", Reached: "SELECT MASTER_GTID_WAIT(?, 0)"}, true
	case d == &mysql:
		return Positions{Current: "SELECT @@GLOBAL.gtid_executed", Reached: "SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", Yes: 1}, true
	}
	return Positions{}, false
}

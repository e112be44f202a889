// Package dialect holds what differs between the SQL engines, as text and
// values: placeholders and table names, how a transaction begins and what
// serialises it, tables, inserts of many rows, and what an error means. Every
// statement is written once, in package store/sqlstore, and becomes an
// engine's own text here. The package imports no driver and does no I/O.
package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// Dialect answers for one engine. Dialects are immutable and safe for
// concurrent use; [For] is the way to one.
type Dialect struct {
	name     string
	prefix   string // before every table name: a schema or a part of the name
	number   string // before the number of a placeholder; empty: the placeholder stays "?"
	words    map[string]string
	begin    [2][]string // by Mode
	rollback string
	lock     string // statement with the parameters root, root mode, leaf, leaf mode; or empty
	deploy   deployLock
	codes    codes
	arrays   bool // many values travel as one array parameter
	maxRows  int  // rows of one insert
	maxArgs  int  // parameters of one statement

	// Ordered, when not empty, is run in a transaction that reads many rows in
	// key order: it keeps an engine that knows nothing of a new table yet from
	// sorting what an index has in order.
	Ordered string
	// SingleWriter says that the engine lets one transaction write at a time,
	// so that waiting for one another inside the program is cheaper.
	SingleWriter bool
	// StatementSnapshot says that one SELECT sees one committed state of all
	// its tables outside a transaction too.
	StatementSnapshot bool
	// TransactionalDDL says that tables are created and dropped in a transaction.
	TransactionalDDL bool
}

// Mode says what a transaction is for.
type Mode int

// The modes.
const (
	Read  Mode = 0 // one consistent state, nothing is written
	Write Mode = 1 // every statement sees what is committed when it starts
)

var dialects = map[string]*Dialect{
	"postgres":  &postgres,
	"mysql":     &mysql,
	"sqlserver": &sqlserver,
	"sqlite":    &sqlite,
}

// For returns the dialect of an engine: postgres, mysql (MariaDB too),
// sqlserver or sqlite.
func For(engine string) (*Dialect, error) {
	d := dialects[engine]
	if d == nil {
		return nil, fmt.Errorf("unknown engine %q: expected postgres, mysql, sqlserver or sqlite", engine)
	}
	return d, nil
}

// Name returns the engine's name.
func (d *Dialect) Name() string { return d.name }

// SQL turns a statement into the engine's own text: ? becomes its placeholder,
// {first} and {limit} its clause for one row and for ? rows, {update} its
// clause for locking the rows read, {now} the microseconds since 1970 on the
// server's clock in UTC, and every other {word} the table of that name.
func (d *Dialect) SQL(text string) string {
	var b strings.Builder
	b.Grow(len(text) + 64)
	for args := 0; ; {
		i := strings.IndexAny(text, "?{")
		if i < 0 {
			b.WriteString(text)
			return strings.TrimSpace(b.String()) // an empty word at the end leaves a space
		}
		b.WriteString(text[:i])
		if text[i] == '?' {
			args++
			b.WriteString(d.placeholder(args))
			text = text[i+1:]
			continue
		}
		word, rest, _ := strings.Cut(text[i+1:], "}")
		replacement, ok := d.words[word]
		if !ok {
			replacement = d.prefix + word
		}
		text = replacement + rest // may hold a placeholder itself
	}
}

func (d *Dialect) placeholder(n int) string {
	if d.number == "" {
		return "?"
	}
	return d.number + strconv.Itoa(n)
}

// Begin returns the statements that begin a transaction on a session.
func (d *Dialect) Begin(m Mode) []string { return d.begin[m] }

// Commit returns the statement that commits.
func (d *Dialect) Commit() string { return "COMMIT" }

// Rollback returns the statement that takes a transaction back.
func (d *Dialect) Rollback() string { return d.rollback }

// Locks of [Dialect.Lock], from weak to strong. Two locks of one name go
// together unless one is Exclusive, or one is Shared and the other Intent.
const (
	IntentShared = "IntentShared"
	Intent       = "IntentExclusive"
	Shared       = "Shared"
	Exclusive    = "Exclusive"
)

// Lock returns the statement that takes two named locks to the end of the
// transaction. Its parameters are a name and a mode, twice. It is empty for
// engines in which snapshots and {update} do the same.
func (d *Dialect) Lock() string { return d.lock }

// ValidateMapping returns the query that asks a shard whether a mapping still
// stands: one parameter, the mapping's id as int64; one row with the status
// (0 offline, 1 online), or no row when the shard does not have the mapping.
func (d *Dialect) ValidateMapping() string {
	return d.SQL(`SELECT status FROM {local_mappings} WHERE mapping_id = ?`)
}

// ValidateShard returns the query that asks a database whether it still is a
// shard: parameters are the ids of shard map and shard as int64; one row with
// the shard's version and status (0 online, 1 offline), or no row.
func (d *Dialect) ValidateShard() string {
	return d.SQL(`SELECT version, status FROM {local_shards} WHERE map_id = ? AND shard_id = ?`)
}

package probe

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/topology"
)

// maxSkew is how far a heartbeat may lie in the future and count as just
// beaten. Beyond it the clocks of the servers differ too much to measure by.
const maxSkew = time.Second

// Heartbeat is a table with one row that is written on the primary every
// second or so and replicated like any other. A secondary's row says how far it
// is behind, whatever the engine's own counters say, to the precision of the
// interval between beats and of the servers' clocks; without new beats all
// secondaries grow stale.
//
//	id       1
//	term     how often the beats have moved to another server
//	server   the server of the last beat, as it calls itself
//	beat_at  its time: microseconds since 1970 in UTC by that server's clock
//
// The term orders claims to be primary where the engine has no order of its
// own (MySQL, MariaDB, SQL Server): a former primary that comes back has a lower
// one, once the new primary has a beat. PostgreSQL has timelines.
//
// The zero value is no heartbeat.
type Heartbeat struct {
	dialect *dialect.Dialect
	table   string // quoted
	texts   heartbeatTexts
}

// heartbeatTexts are what the engines do not have in common.
type heartbeatTexts struct {
	quotes string // around names; a closing one is doubled
	server string // expression: who the server is
	create string // with %s for the table
}

const createColumns = " (id int NOT NULL PRIMARY KEY, term bigint NOT NULL, server varchar(128) NOT NULL, beat_at bigint NOT NULL)"

var heartbeats = map[string]heartbeatTexts{
	"postgres":  {quotes: `""`, server: "''", create: "CREATE TABLE IF NOT EXISTS %s" + createColumns},
	"mysql":     {quotes: "``", server: "CAST(@@server_id AS char)", create: "CREATE TABLE IF NOT EXISTS %s" + createColumns},
	"sqlserver": {quotes: "[]", server: "CAST(@@SERVERNAME AS nvarchar(128))", create: "IF OBJECT_ID(N'%[1]s') IS NULL CREATE TABLE %[1]s" + createColumns},
	"sqlite":    {quotes: `""`, server: "''", create: "CREATE TABLE IF NOT EXISTS %s" + createColumns},
}

// NewHeartbeat returns the heartbeat in a table of an engine, "table" or
// "schema.table"; names are taken literally and quoted. An empty table is no
// heartbeat.
func NewHeartbeat(engine, table string) (Heartbeat, error) {
	d, err := dialect.For(engine)
	if err != nil {
		return Heartbeat{}, fmt.Errorf("naming heartbeat table %q: %w", table, err)
	}
	if table == "" {
		return Heartbeat{}, nil
	}
	h := Heartbeat{dialect: d, texts: heartbeats[engine]}
	parts := strings.Split(table, ".")
	if len(parts) > 2 {
		return Heartbeat{}, fmt.Errorf("naming heartbeat table %q: write table or schema.table", table)
	}
	for i, part := range parts {
		if part == "" || len(part) > 63 || strings.ContainsFunc(part, unicode.IsControl) || strings.ContainsAny(part, "{}?'") {
			return Heartbeat{}, fmt.Errorf("naming heartbeat table %q: part %q is no name of 1 to 63 bytes without control characters and {}?'", table, part)
		}
		parts[i] = h.quote(part)
	}
	h.table = strings.Join(parts, ".")
	return h, nil
}

func (h Heartbeat) quote(name string) string {
	open, shut := h.texts.quotes[:1], h.texts.quotes[1:]
	return open + strings.ReplaceAll(name, shut, shut+shut) + shut
}

// Table is the table's quoted name; empty for no heartbeat.
func (h Heartbeat) Table() string { return h.table }

// Create is the statement that creates the table if it is missing; its schema
// must be there. It is for the primary: the table is replicated.
func (h Heartbeat) Create() string { return fmt.Sprintf(h.texts.create, h.table) }

// Age is an expression for the time since the last beat in microseconds, NULL
// without any, and Term one for its term.
func (h Heartbeat) Age() string {
	return h.sql("(SELECT {now} - beat_at FROM ! WHERE id = 1)")
}

// Term is an expression for the term of the last beat, NULL without any.
func (h Heartbeat) Term() string {
	return h.sql("(SELECT term FROM ! WHERE id = 1)")
}

// sql completes a statement or expression, in which ! is the table.
func (h Heartbeat) sql(text string) string {
	if h.table == "" {
		return "NULL"
	}
	return strings.ReplaceAll(h.dialect.SQL(text), "!", h.table)
}

// Beat writes the row, in a database of the server that is primary now; never
// call it on another. Two at the same time do no harm. It needs the rights to
// SELECT, INSERT and UPDATE the table.
func (h Heartbeat) Beat(ctx context.Context, db *sql.DB) error {
	if h.table == "" {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("writing heartbeat: %w", err)
	}
	defer conn.Close()
	// The values travel as parameters, so that a replica that repeats the
	// statement does not put its own name and time in.
	var server string
	var now int64
	if err := conn.QueryRowContext(ctx, h.dialect.SQL("SELECT "+h.texts.server+", {now}")).Scan(&server, &now); err != nil {
		return fmt.Errorf("writing heartbeat: asking for the time: %w", err)
	}
	update := "UPDATE ! SET term = CASE WHEN server = ? THEN term ELSE term + 1 END, server = ?, beat_at = ? WHERE id = 1"
	result, err := conn.ExecContext(ctx, h.sql(update), server, server, now)
	if err != nil {
		return fmt.Errorf("writing heartbeat: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	_, err = conn.ExecContext(ctx, h.sql("INSERT INTO ! (id, term, server, beat_at) VALUES (1, 1, ?, ?)"), server, now)
	if err != nil && h.dialect.Classify(err) != dialect.Duplicate {
		return fmt.Errorf("writing first heartbeat: %w", err)
	}
	return nil
}

// Staleness is what an Age says. NULL is unknown, and so is a beat from the
// future.
func Staleness(age sql.NullInt64) topology.Measurement {
	d := time.Duration(age.Int64) * time.Microsecond
	if !age.Valid || d < -maxSkew {
		return topology.Measurement{}
	}
	return topology.Measured(max(d, 0))
}

// BeatTerm is what a Term says.
func BeatTerm(term sql.NullInt64) topology.Term {
	if !term.Valid || term.Int64 < 0 {
		return topology.Term{}
	}
	return topology.Term{Major: uint64(term.Int64)}
}

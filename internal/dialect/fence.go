package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// The fence keeps a mapping where it is while work for it is going on. A change
// of a mapping deletes its row from the local map of its shard (the successor
// has another id), so whoever holds a shared lock on that row holds up the
// change, in every isolation level.
//
// The words fenced and keep of an engine are that lock in a query: fenced
// stands behind the table's name, keep at the end. The word gate is where those
// who come have to queue behind a change that waits: PostgreSQL lets shared locks
// of rows pass it, so that it would never have its turn while there is work
// enough. The gate is the lock of [Dialect.LockExclusiveHold], shared.

// LockMapping returns the query of [Dialect.ValidateMapping] with a lock, to be
// run first thing in a transaction that can write: from its answer to the end of
// the transaction no change of the mapping commits. A change that has begun is
// waited for. In SQLite the transaction itself is the lock: begin it with the
// statements of [Dialect.Begin] for Write.
//
// A transaction with a snapshot can learn that the mapping has changed by the
// error of a conflict (class Transient) in place of an answer without a row.
//
// PostgreSQL lets only those lock rows who may update one of their columns.
// Column fence is there for that: it can hold nothing but NULL, so that the
// right to update it changes no mapping.
func (d *Dialect) LockMapping() string {
	return d.SQL(`SELECT status FROM {local_mappings} {fenced} WHERE mapping_id = ? {gate} {keep}`)
}

// LockShard returns the query of [Dialect.ValidateShard] with a lock, as
// [Dialect.LockMapping]: it holds up changes of the shard, not those of its
// mappings.
func (d *Dialect) LockShard() string {
	return d.SQL(`SELECT version, status FROM {local_shards} {fenced} WHERE map_id = ? AND shard_id = ? {keep}`)
}

// Tag returns the text by which a session in use for a mapping is known on the
// server: "shardway:m" and 16 hexadecimal digits.
func Tag(mappingID int64) string {
	const prefix, digits = "shardway:m", "0123456789abcdef"
	text := [len(prefix) + 16]byte([]byte(prefix + "0000000000000000"))
	for i, n := len(text)-1, uint64(mappingID); n > 0; i, n = i-1, n>>4 {
		text[i] = digits[n&15]
	}
	return string(text[:])
}

// tags are how an engine names its sessions. The one parameter of within and
// until is the tag, and comes before those of the query.
type tags struct {
	before string // statements before a query, with the parameter
	within string // in a query's list of columns; stays with the session
	until  string // the same, up to the end of the transaction
	drop   string // the statement that takes the tag away
}

// PostgreSQL shows the tag as application_name in pg_stat_activity, SQL Server
// as context_info in sys.dm_exec_sessions (as bytes of ASCII), MySQL and MariaDB
// as variable shardway_mapping in performance_schema.user_variables_by_thread,
// where that is on.
var engineTags = map[string]tags{
	"postgres": {
		within: `, set_config('application_name', ?, false)`,
		until:  `, set_config('application_name', ?, true)`,
		drop:   `SELECT set_config('application_name', NULL, false)`, // back to what the session began with
	},
	"mysql": {
		within: `, @shardway_mapping := ?`,
		until:  `, @shardway_mapping := ?`,
		drop:   `SELECT @shardway_mapping := NULL`,
	},
	"sqlserver": {
		before: `DECLARE @tag varbinary(128) = CONVERT(varbinary(128), CONVERT(varchar(128), ?)); SET CONTEXT_INFO @tag; `,
		drop:   `SET CONTEXT_INFO 0x`,
	},
}

// Tags reports whether sessions of the engine can be tagged. Where not, the
// texts below are those without a tag, and take none.
func (d *Dialect) Tags() bool { return engineTags[d.name].drop != "" }

// TagsTransaction reports whether the tags of [Dialect.LockTagged] and
// [Dialect.ValidateTaggedTx] end with the transaction. Elsewhere they stay with
// the session.
func (d *Dialect) TagsTransaction() bool { return d == &postgres }

// ValidateTagged returns the query of [Dialect.ValidateMapping] that also tags
// the session, if the mapping is there: parameters are the tag as text and the
// mapping's id. The status is the first column.
func (d *Dialect) ValidateTagged() string {
	t := engineTags[d.name]
	return d.SQL(t.before + `SELECT status` + t.within + ` FROM {local_mappings} WHERE mapping_id = ?`)
}

// ValidateTaggedTx is [Dialect.ValidateTagged] for a transaction: the tag ends
// with it where the engine can do that, see [Dialect.TagsTransaction].
func (d *Dialect) ValidateTaggedTx() string {
	t := engineTags[d.name]
	return d.SQL(t.before + `SELECT status` + t.until + ` FROM {local_mappings} WHERE mapping_id = ?`)
}

// LockTagged returns the query of [Dialect.LockMapping] that also tags the
// session, if the mapping is there: parameters are the tag as text and the
// mapping's id. The status is the first column.
func (d *Dialect) LockTagged() string {
	t := engineTags[d.name]
	return d.SQL(t.before + `SELECT status` + t.until + ` FROM {local_mappings} {fenced} WHERE mapping_id = ? {gate} {keep}`)
}

// Untag returns the query that takes the tag of a session away; empty where
// there are no tags.
func (d *Dialect) Untag() string { return engineTags[d.name].drop }

// holds are the statements for locks that belong to a session. Their parameter
// is that of [Dialect.HoldKey].
type holds struct{ take, release, exclude string }

var engineHolds = map[string]holds{
	"postgres": {
		take:    `SELECT pg_advisory_lock_shared(?)`,
		release: `SELECT pg_advisory_unlock_shared(?)`,
		exclude: `SELECT pg_advisory_xact_lock(?)`,
	},
	"sqlserver": {
		take: `DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Session', @LockTimeout = 60000;
IF @granted < 0 BEGIN; THROW 51222, 'waiting for the change of a mapping took too long', 1; END`,
		release: `EXEC sp_releaseapplock @Resource = ?, @LockOwner = 'Session'`,
		exclude: `DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0 BEGIN; THROW 51222, 'waiting for the holders of a mapping took too long', 1; END`,
	},
}

// HoldKey returns the parameter of the statements below: a number for
// PostgreSQL, a text for SQL Server. Locks by number are shared with the
// application's own, which are hardly ever numbers that large.
func (d *Dialect) HoldKey(mappingID int64) any {
	if d == &postgres {
		return mappingID ^ holdMask
	}
	return Tag(mappingID)
}

// holdMask keeps small ids away from the small numbers that people choose: it is
// the word "shardway" read as a number.
const holdMask = 8316003855879332217

// LockHold returns the statement by which a session holds a mapping where it is,
// until [Dialect.ReleaseHold] or its end. It waits for a change under way; only
// then may the mapping be validated, by a statement of its own. Both are empty
// for engines that have no such lock.
func (d *Dialect) LockHold() string { return d.SQL(engineHolds[d.name].take) }

// ReleaseHold returns the statement that undoes one of [Dialect.LockHold].
func (d *Dialect) ReleaseHold() string { return d.SQL(engineHolds[d.name].release) }

// LockExclusiveHold returns the statement by which the transaction of a change
// waits for all who hold a mapping, and keeps others from doing so until its
// end; to be run before the mapping's row is deleted. It is empty for engines
// without holders.
func (d *Dialect) LockExclusiveHold() string { return d.SQL(engineHolds[d.name].exclude) }

// isolations are the isolation levels that an engine's driver can begin a
// transaction with, as numbers of database/sql. In SQLite every transaction is
// serializable, which is at least what the weaker levels ask for.
var isolations = map[string][]int{
	"postgres":  {defaultLevel, readUncommitted, readCommitted, repeatableRead, snapshot, serializable},
	"mysql":     {defaultLevel, readUncommitted, readCommitted, repeatableRead, serializable},
	"sqlserver": {defaultLevel, readUncommitted, readCommitted, repeatableRead, snapshot, serializable},
	"sqlite":    {defaultLevel, readUncommitted, readCommitted, repeatableRead, snapshot, serializable},
}

// Values of sql.IsolationLevel.
const (
	defaultLevel = iota
	readUncommitted
	readCommitted
	_ // write committed
	repeatableRead
	snapshot
	serializable
)

// HasIsolation reports whether transactions of the engine can have an isolation
// level, a number of database/sql.
func (d *Dialect) HasIsolation(level int) bool { return slices.Contains(isolations[d.name], level) }

// endedCodes are what servers say to a session that somebody has ended.
var endedCodes = map[string][]string{
	"postgres":  {"57P01"},
	"mysql":     {"1317.", "1927."},
	"sqlserver": {"596."},
}

// EndedByServer reports whether an error says that somebody has ended the
// session, or its statement, on the server. MySQL does not say it to a session
// that was idle: there it is any connection that its driver found broken.
func (d *Dialect) EndedByServer(err error) bool {
	if err == nil {
		return false
	}
	code, ok := d.codes.find(err)
	if !ok {
		text := err.Error()
		return d == &mysql && (strings.Contains(text, "invalid connection") || strings.Contains(text, "bad connection"))
	}
	return slices.Contains(endedCodes[d.name], d.codes.match(code))
}

// takenBack are errors after which the transaction of the statement is no more,
// in engines that run what follows in a transaction of its own: deadlocks and
// conflicts of snapshots. PostgreSQL runs nothing then.
var takenBack = map[string][]string{
	"mysql":     {"1020.", "1213.", "1614."},
	"sqlserver": {"1205.", "3960."},
}

// TookBack reports whether an error of a statement says that the server has
// rolled back its whole transaction, and would run the next statement without
// one.
func (d *Dialect) TookBack(err error) bool { return err != nil && d.says(err, takenBack) }

// Compound returns one statement that begins a transaction and asks a question
// in it, for an engine that takes such a thing as a text: MariaDB. It is empty
// for others. version is the text of SELECT VERSION(); level is a number of
// database/sql. Arguments are whole numbers and tags; the question has ? for
// them.
func (d *Dialect) Compound(version string, level int, readOnly bool, question string, args ...any) string {
	if d != &mysql || !strings.Contains(strings.ToLower(version), "mariadb") {
		return ""
	}
	text := "BEGIN NOT ATOMIC "
	if name := levelNames[level]; name != "" {
		text += "SET TRANSACTION ISOLATION LEVEL " + name + "; "
	}
	text += "START TRANSACTION"
	if readOnly {
		text += " READ ONLY"
	}
	for _, a := range args {
		literal := ""
		switch a := a.(type) {
		case int64:
			literal = strconv.FormatInt(a, 10)
		case string:
			literal = "'" + a + "'" // a tag has nothing to escape
		}
		question = strings.Replace(question, "?", literal, 1)
	}
	return text + "; " + question + "; END"
}

var levelNames = map[int]string{
	readUncommitted: "READ UNCOMMITTED", readCommitted: "READ COMMITTED", repeatableRead: "REPEATABLE READ", serializable: "SERIALIZABLE",
}

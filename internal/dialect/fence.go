package dialect

import "fmt"

// The fence keeps a mapping where it is while work for it is going on. A change
// of a mapping deletes its row from the local map of its shard (the successor
// has another id), so whoever holds a shared lock on that row holds up the
// change, in every isolation level.
//
// The words fenced and keep of an engine are that lock in a query: fenced
// stands behind the table's name, keep at the end.

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
	return d.SQL(`SELECT status FROM {local_mappings} {fenced} WHERE mapping_id = ? {keep}`)
}

// LockShard returns the query of [Dialect.ValidateShard] with a lock, as
// [Dialect.LockMapping]: it holds up changes of the shard, not those of its
// mappings.
func (d *Dialect) LockShard() string {
	return d.SQL(`SELECT version, status FROM {local_shards} {fenced} WHERE map_id = ? AND shard_id = ? {keep}`)
}

// Tag returns the text by which a session in use for a mapping is known on the
// server: "shardway:m" and 16 hexadecimal digits.
func Tag(mappingID int64) string { return fmt.Sprintf("shardway:m%016x", uint64(mappingID)) }

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

// TagsTransaction reports whether the tag of [Dialect.LockTagged] ends with the
// transaction. Elsewhere it stays with the session.
func (d *Dialect) TagsTransaction() bool { return d == &postgres }

// ValidateTagged returns the query of [Dialect.ValidateMapping] that also tags
// the session, if the mapping is there: parameters are the tag as text and the
// mapping's id. The status is the first column.
func (d *Dialect) ValidateTagged() string {
	t := engineTags[d.name]
	return d.SQL(t.before + `SELECT status` + t.within + ` FROM {local_mappings} WHERE mapping_id = ?`)
}

// LockTagged returns the query of [Dialect.LockMapping] that also tags the
// session, if the mapping is there: parameters are the tag as text and the
// mapping's id. The status is the first column.
func (d *Dialect) LockTagged() string {
	t := engineTags[d.name]
	return d.SQL(t.before + `SELECT status` + t.until + ` FROM {local_mappings} {fenced} WHERE mapping_id = ? {keep}`)
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

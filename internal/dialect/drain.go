package dialect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Drain is how a change waits for those who keep a mapping where it is, and how
// it finds and ends their sessions. Sessions have numbers; 0 stands for what
// belongs to no session and cannot be ended, such as a prepared transaction.
type Drain struct {
	// Own asks for the session's own number and for its patience in the unit
	// of the engine. It is empty where nobody can be found.
	Own string
	// Rows, before and after a condition on mapping_id, locks rows of local
	// mappings so that nobody has a lock on them: see [Dialect.LockMapping].
	// Both are empty where the transaction itself does that.
	Rows [2]string
	// Blockers asks who keeps the session with a number waiting: rows of number
	// and description, each session once. With Ends, a first parameter says
	// whether they are ended, which the third column tells.
	Blockers string
	// Tagged asks for the tagged sessions of this database but the one that
	// asks: rows of number and tag. With Ends it has two parameters, the first
	// as in Blockers, the second an array of the tags that are meant.
	Tagged string
	// Seeing asks for a positive number if tags are hidden from us, and for a
	// negative one if nothing is tagged here. Empty: tags are shown to everybody.
	Seeing string
	// Ends says that the queries end sessions themselves: what they find and
	// what they end is the same. Elsewhere Kill, with a number for %d, does.
	Ends bool
	Kill string
	// Pace, when not zero, is how far apart questions for Blockers must be, over
	// all sessions, for the answers to be new. Then %s in it
	// stands for a text of the asker's own for each question, the question is
	// asked in a transaction begun by Snapshot, and an answer that is not new has
	// no rows.
	Pace     time.Duration
	Snapshot string

	patience string        // statement that bounds the waits for locks, with %d
	unit     time.Duration // of patience
}

// LocalPatience says that patience ends with the transaction.
func (d Drain) LocalPatience() bool { return d.Ends }

// Patience returns the statement by which a session waits for a lock at most so
// long, rounded up to what the engine can do.
func (d Drain) Patience(limit time.Duration) string {
	return d.Restore(max(1, int64((limit+d.unit-1)/d.unit)))
}

// Restore returns the statement that gives the session the patience it had,
// as Own told.
func (d Drain) Restore(patience int64) string { return fmt.Sprintf(d.patience, patience) }

// pgBlockers finds the holders of the one lock that a session waits for: a
// transaction with a lock on a row, or holders of an advisory lock.
const pgBlockers = `SELECT pid, who, CASE WHEN CAST(? AS boolean) AND pid > 0 THEN pg_terminate_backend(pid) ELSE false END FROM (
SELECT DISTINCT COALESCE(h.pid, 0) AS pid,
  CASE WHEN h.pid IS NULL THEN 'prepared transaction ' || COALESCE((SELECT quote_literal(p.gid) FROM pg_locks x
    JOIN pg_prepared_xacts p ON p.transaction = x.transactionid WHERE x.pid IS NULL AND x.virtualtransaction = h.virtualtransaction LIMIT 1), 'with unknown name')
  ELSE 'session ' || h.pid || COALESCE(' of ' || a.usename, '') END AS who
FROM pg_locks w
JOIN pg_locks h ON h.granted AND h.locktype = w.locktype AND h.pid IS DISTINCT FROM w.pid
  AND h.database IS NOT DISTINCT FROM w.database AND h.transactionid IS NOT DISTINCT FROM w.transactionid
  AND h.classid IS NOT DISTINCT FROM w.classid AND h.objid IS NOT DISTINCT FROM w.objid AND h.objsubid IS NOT DISTINCT FROM w.objsubid
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
WHERE w.pid = ? AND NOT w.granted AND w.locktype IN ('transactionid', 'advisory')) AS blockers`

const pgTagged = `SELECT pid, application_name, CASE WHEN CAST(? AS boolean) THEN pg_terminate_backend(pid) ELSE false END
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = ANY (CAST(? AS text[]))`

// mysqlTagged and mysqlSeeing are for MySQL and MariaDB.
const (
	mysqlTagged = `SELECT t.PROCESSLIST_ID, CONVERT(v.VARIABLE_VALUE USING utf8mb4)
FROM performance_schema.user_variables_by_thread v JOIN performance_schema.threads t ON t.THREAD_ID = v.THREAD_ID
WHERE v.VARIABLE_NAME = 'shardway_mapping' AND v.VARIABLE_VALUE IS NOT NULL
  AND t.PROCESSLIST_ID IS NOT NULL AND t.PROCESSLIST_ID <> CONNECTION_ID()`
	mysqlSeeing = `SELECT @@performance_schema - 1`
	// MariaDB fills the tables of InnoDB when nobody has read them for 100 ms:
	// answers are of now if our own session is in them with this very query,
	// known by a text in it. A transaction that has written nothing has
	// the number 0: when several have locks, nobody can tell which of them is in
	// the way. Prepared ones may have no session.
	mariadbBlockers = `SELECT DISTINCT IF(b.trx_id <> 0 OR quiet.n = 1, b.trx_mysql_thread_id, 0),
  CASE WHEN b.trx_id = 0 AND quiet.n > 1 THEN CONCAT('one of ', quiet.n, ' transactions that have written nothing yet')
  WHEN b.trx_mysql_thread_id = 0 THEN 'prepared transaction'
  ELSE CONCAT('session ', b.trx_mysql_thread_id) END
FROM (SELECT '%s' AS number) look
JOIN information_schema.INNODB_TRX self ON self.trx_mysql_thread_id = CONNECTION_ID() AND LOCATE(look.number, self.trx_query) > 0
JOIN information_schema.INNODB_LOCK_WAITS w
JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id
JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id AND (b.trx_id <> 0 OR b.trx_rows_locked > 0)
JOIN (SELECT COUNT(*) AS n FROM information_schema.INNODB_TRX WHERE trx_id = 0 AND trx_rows_locked > 0) quiet
WHERE r.trx_mysql_thread_id = ?`
	mysqlBlockers = `SELECT DISTINCT COALESCE(b.PROCESSLIST_ID, 0), CASE WHEN b.PROCESSLIST_ID IS NULL THEN 'prepared transaction' ELSE CONCAT('session ', b.PROCESSLIST_ID) END
FROM performance_schema.data_lock_waits w
JOIN performance_schema.threads r ON r.THREAD_ID = w.REQUESTING_THREAD_ID
LEFT JOIN performance_schema.threads b ON b.THREAD_ID = w.BLOCKING_THREAD_ID
WHERE r.PROCESSLIST_ID = ?`
)

var mariadbDrain = Drain{
	Own:      "SELECT CONNECTION_ID(), @@innodb_lock_wait_timeout",
	Rows:     [2]string{"SELECT mapping_id FROM {local_mappings} FORCE INDEX (PRIMARY) WHERE ", " FOR UPDATE"},
	Blockers: mariadbBlockers,
	Tagged:   mysqlTagged,
	Seeing:   mysqlSeeing,
	Kill:     "KILL %d",
	Pace:     120 * time.Millisecond,
	Snapshot: "START TRANSACTION WITH CONSISTENT SNAPSHOT",
	patience: "SET innodb_lock_wait_timeout = %d",
	unit:     time.Second,
}

var drains = map[string]Drain{
	"postgres": {
		Own:      "SELECT pg_backend_pid(), CAST(setting AS bigint) FROM pg_settings WHERE name = 'lock_timeout'",
		Rows:     [2]string{"SELECT mapping_id FROM {local_mappings} WHERE ", " FOR UPDATE"},
		Blockers: pgBlockers,
		Tagged:   pgTagged,
		Ends:     true,
		patience: "SET LOCAL lock_timeout = %d",
		unit:     time.Millisecond,
	},
	"sqlserver": {
		Own:  "SELECT @@SPID, @@LOCK_TIMEOUT",
		Rows: [2]string{"UPDATE {local_mappings} SET status = status WHERE ", ""},
		Blockers: `SELECT DISTINCT h.request_session_id, CONCAT('session ', h.request_session_id)
FROM sys.dm_tran_locks w JOIN sys.dm_tran_locks h ON h.resource_type = w.resource_type
  AND h.resource_database_id = w.resource_database_id AND h.resource_description = w.resource_description
  AND h.resource_associated_entity_id = w.resource_associated_entity_id
  AND h.request_status = 'GRANT' AND h.request_session_id <> w.request_session_id
WHERE w.request_session_id = ? AND w.request_status = 'WAIT'`,
		// The text is filled up with zeros.
		Tagged: `SELECT session_id, REPLACE(CONVERT(varchar(128), context_info), CHAR(0), '')
FROM sys.dm_exec_sessions
WHERE database_id = DB_ID() AND session_id <> @@SPID AND context_info <> 0x`,
		Seeing:   `SELECT 1 - COALESCE(HAS_PERMS_BY_NAME(NULL, NULL, 'VIEW SERVER STATE'), 0)`,
		Kill:     "KILL %d",
		patience: "SET LOCK_TIMEOUT %d",
		unit:     time.Millisecond,
	},
	"sqlite": {patience: "PRAGMA busy_timeout = %d", unit: time.Millisecond},
}

// Drain returns how the engine's sessions are made to leave a mapping. version
// is the text of SELECT VERSION(), by which MariaDB is told from MySQL; other
// engines need none.
func (d *Dialect) Drain(version string) Drain {
	if d != &mysql {
		return drains[d.name]
	}
	drain := mariadbDrain
	if !mariadb(version) {
		drain.Blockers, drain.Pace, drain.Snapshot = mysqlBlockers, 0, ""
	}
	return drain
}

// DeleteMappings returns the beginning of the statement that removes rows of
// local mappings: a map's id is the first parameter, and a condition on
// mapping_id follows. MySQL locks all rows that it looks at, so it must look at
// no others: it would wait for those who keep other mappings where they are.
func (d *Dialect) DeleteMappings() string {
	if d == &mysql {
		return "DELETE {local_mappings} FROM {local_mappings} FORCE INDEX (PRIMARY) WHERE map_id = ? AND "
	}
	return "DELETE FROM {local_mappings} WHERE map_id = ? AND "
}

// DrainRights returns what a change must be granted, besides the rights on
// tables, to find and to end the sessions of others; version is as in
// [Dialect.Drain].
func (d *Dialect) DrainRights(version string) []string {
	switch {
	case d == &postgres:
		return []string{"pg_signal_backend"}
	case d == &sqlserver:
		return []string{"VIEW SERVER STATE", "ALTER ANY CONNECTION"}
	case d != &mysql:
		return nil
	}
	const variables, threads = "SELECT ON performance_schema.user_variables_by_thread", "SELECT ON performance_schema.threads"
	if mariadb(version) {
		return []string{"PROCESS ON *.*", "CONNECTION ADMIN ON *.*", variables, threads}
	}
	return []string{"PROCESS ON *.*", "CONNECTION_ADMIN ON *.*", variables, threads, "SELECT ON performance_schema.data_lock_waits"}
}

// Codes of lock waits, of missing rights to see or to end a session, and of
// sessions that are not there.
var (
	lockTimeouts  = map[string][]string{"postgres": {"55P03"}, "mysql": {"1205."}, "sqlserver": {"1222.", "51222.", "33557097."}, "sqlite": {"5."}}
	missingRights = map[string][]string{"postgres": {"42501"}, "mysql": {"1044.", "1095.", "1142.", "1227."}, "sqlserver": {"297.", "300.", "6102."}}
	noSession     = map[string][]string{"mysql": {"1094."}, "sqlserver": {"6106.", "6107."}}
)

// TimedOutLock reports whether an error says that a lock was not granted in time.
func (d *Dialect) TimedOutLock(err error) bool { return d.says(err, lockTimeouts) }

// MayNot reports whether an error says that we may not see or end sessions.
func (d *Dialect) MayNot(err error) bool { return d.says(err, missingRights) }

// NoSession reports whether an error says that the session to end is gone.
func (d *Dialect) NoSession(err error) bool { return d.says(err, noSession) }

func (d *Dialect) says(err error, codes map[string][]string) bool {
	code, ok := d.codes.find(err)
	return ok && slices.ContainsFunc(codes[d.name], func(begin string) bool { return strings.HasPrefix(code, begin) })
}

func mariadb(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

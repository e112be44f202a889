package dialect

var postgres = Dialect{
	name:   "postgres",
	prefix: "shardway.",
	number: "$",
	words: map[string]string{
		"first":  "LIMIT 1",
		"limit":  "LIMIT ?",
		"update": "FOR UPDATE",
		"now":    "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS bigint)",
		"fenced": "",
		"keep":   "FOR KEY SHARE",
		"gate":   "AND pg_advisory_xact_lock_shared(mapping_id # 8316003855879332217) IS NOT NULL",
	},
	begin: [2][]string{
		Read:  {"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"},
		Write: {"BEGIN ISOLATION LEVEL READ COMMITTED"},
	},
	rollback: "ROLLBACK",
	// The key is the word "shardway" read as a number.
	deploy:            deployLock{take: "SELECT pg_advisory_xact_lock(8316003855879332217)"},
	codes:             postgresCodes,
	arrays:            true,
	maxRows:           10000,
	maxArgs:           65535,
	Ordered:           "SET LOCAL enable_sort = off",
	StatementSnapshot: true,
	TransactionalDDL:  true,
}

var mysql = Dialect{
	name:   "mysql",
	prefix: "shardway_",
	words: map[string]string{
		"first":  "LIMIT 1",
		"limit":  "LIMIT ?",
		"update": "FOR UPDATE",
		// UTC_TIMESTAMP, unlike NOW, does not depend on the session's time zone.
		"now":    "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		"fenced": "",
		"keep":   "LOCK IN SHARE MODE",
		"gate":   "",
	},
	begin: [2][]string{
		Read:  {"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"},
		Write: {"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ WRITE"},
	},
	rollback: "ROLLBACK",
	// Tables are created outside transactions here: a lock of the session. The
	// caller's context ends the wait before the day is over.
	deploy:            deployLock{take: "SELECT GET_LOCK('shardway deploy', 86400)", release: "SELECT RELEASE_LOCK('shardway deploy')"},
	codes:             mysqlCodes,
	maxRows:           1000,
	maxArgs:           60000,
	StatementSnapshot: true,
}

var sqlite = Dialect{
	name:   "sqlite",
	prefix: "shardway_",
	words: map[string]string{
		"first":  "LIMIT 1",
		"limit":  "LIMIT ?",
		"update": "",
		"now":    "CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000",
		"fenced": "",
		"keep":   "",
		"gate":   "",
	},
	begin: [2][]string{
		Read:  {"BEGIN"},
		Write: {"BEGIN IMMEDIATE"},
	},
	rollback:          "ROLLBACK",
	codes:             sqliteCodes,
	maxRows:           100,
	maxArgs:           30000,
	SingleWriter:      true,
	StatementSnapshot: true,
	TransactionalDDL:  true,
}

// SQL Server needs no MERGE and no locking hints: application locks, held to
// the end of the transaction, serialise writers with each other and with those
// who read several tables.
var sqlserver = Dialect{
	name:   "sqlserver",
	prefix: "shardway.",
	number: "@p",
	words: map[string]string{
		"first":  "OFFSET 0 ROWS FETCH NEXT 1 ROWS ONLY",
		"limit":  "OFFSET 0 ROWS FETCH NEXT ? ROWS ONLY",
		"update": "",
		"now":    "DATEDIFF_BIG(microsecond, '1970-01-01', SYSUTCDATETIME())",
		"fenced": "WITH (REPEATABLEREAD, ROWLOCK)",
		"keep":   "",
		"gate":   "",
	},
	begin: [2][]string{
		Read:  {"BEGIN TRANSACTION"},
		Write: {"BEGIN TRANSACTION"},
	},
	rollback: "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION",
	lock: `DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = @p1, @LockMode = @p2, @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted >= 0 EXEC @granted = sp_getapplock @Resource = @p3, @LockMode = @p4, @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0 BEGIN; THROW 51222, 'waiting for the lock of a shard map took too long', 1; END`,
	deploy: deployLock{take: `DECLARE @granted int;
EXEC @granted = sp_getapplock @Resource = 'shardway deploy', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0 BEGIN; THROW 51222, 'waiting for the lock of a deployment took too long', 1; END`},
	codes:            sqlserverCodes,
	maxRows:          1000,
	maxArgs:          2000,
	TransactionalDDL: true,
}

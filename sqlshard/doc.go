// Package sqlshard connects to the database that holds a key, through
// database/sql: key → shard → server → connection.
//
//	db, err := sqlshard.New(customers, sqlshard.Config{
//		Engines:     []shardway.Engine{postgres.Engine{}},
//		Credentials: shardway.Credentials{User: "app", Password: secret},
//	})
//	conn, err := db.OpenConnectionForKey(ctx, customerID)
//	defer conn.Close()
//	_, err = conn.ExecContext(ctx, `UPDATE customer SET name = $1 WHERE id = $2`, name, customerID)
//
// A [Conn] is one session, already open. Before it is handed out the shard is
// asked, on that very session and in one round trip, whether it still has the
// mapping that led there. The check holds for the moment it was made: a key
// that moves while a Conn is in use is not noticed by it. So writes belong into
// a transaction that cannot commit where the key is not, and that is repeated as
// a whole after transient faults:
//
//	err = db.InTx(ctx, customerID, nil, func(ctx context.Context, tx *sql.Tx) error { … })
//
// For work that is not one transaction, [DB.HoldConnectionForKey] keeps the key
// where it is. docs/guarantees.md says what each promises and how.
//
// A session that the server ends because its key moves is a
// [shardway.MovedError], work on a server that is primary no longer a
// [shardway.DemotedError]. InTx repeats what is safe to repeat; elsewhere
// SafeToRetry of the error tells.
//
// # Servers
//
// A shard may have several servers. Connections lead to its primary, or, on a
// handle made by [DB.With], to a server that suits the handle's criteria, is near
// and has little to do:
//
//	reports := db.With(selection.Nearest(selection.MaxStaleness(30 * time.Second)))
//
// From the first use on the servers of such a shard are watched. A server that
// has stopped being primary gets no write from the moment that this was seen,
// whatever connection would carry it, and opening waits for the new primary. A
// [Token] lets reads on secondaries see what was written before. The package
// asks servers by the probers of its engines, see [ReplicatedEngine].
//
// # Sessions
//
// A session is never in two hands, and the next user of a session must not see
// anything of the last one. Sessions that did nothing but plain statements go
// back to their pool, at no cost. A session is closed instead
//
//   - when a statement begins with another word than SELECT, INSERT, UPDATE,
//     DELETE, REPLACE, MERGE, WITH, VALUES or EXPLAIN (so SET, CREATE, CALL,
//     LISTEN, LOCK, PREPARE, a BEGIN as text…), or a text of several statements
//     has such a one; SAVEPOINT, RELEASE and ROLLBACK TO are fine in a
//     transaction begun by BeginTx;
//   - when its text has set_config (unless its last argument is the word true:
//     then the setting ends with the transaction), pg_advisory_lock and the
//     like (not the locks of a transaction), get_lock, setseed, load_extension,
//     pg_temp, isolation, a name that begins with dblink_connect, INTO TEMP,
//     INTO TEMPORARY, INTO #…, INTO @…, an @ and then :=, a comment that MySQL
//     runs (/*! or /*M), or U& texts; after EXPLAIN also CREATE, EXECUTE or
//     DECLARE;
//   - when a transaction is open at Close, or did not end cleanly, or, on SQL
//     Server, had an isolation level of its own;
//   - when [Conn.Raw] was used;
//   - when it broke, or is older than Config.MaxLifetime.
//
// Statements are seen on their way to the driver, so those of a [sql.Tx] or
// [sql.Stmt] count too. The text is not parsed: words within strings and
// comments count, and a semicolon in a string looks like the end of a
// statement. That costs a new session, never a dirty one. What a function or a
// trigger of your own does inside the server cannot be seen: one that changes
// the session must be called by CALL, SELECT set_config… or [Conn.Raw]. On SQL
// Server, where statements need no semicolons, the driver besides resets each
// session that is used again.
//
// The package opens no connection before the first use of a shard. Apart from
// those of database/sql and of the shards whose servers are watched, it has no
// goroutines that outlive a call, but for the moment in which a [ContextDB] gives
// the session of a query back.
package sqlshard

// Package pgxshard works on the PostgreSQL databases that hold keys, through
// native pgx pools: key → shard → server → session.
//
//	db, err := pgxshard.New(customers, pgxshard.Config{
//		Engine:      postgres.Engine{},
//		Credentials: shardway.Credentials{User: "app", Password: secret},
//	})
//	_, err = db.Exec(ctx, customerID, `UPDATE customer SET name = $1 WHERE id = $2`, name, customerID)
//	err = db.InTx(ctx, customerID, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error { … })
//
// It is what package sqlshard is for database/sql, with less to pay: the shard is
// asked whether it still has the mapping that led there in the same round trip
// that carries the work, and if it has not, the work is not done there.
//
// # What holds a mapping
//
//   - [DB.InTx] and [DB.CopyFrom]: if the transaction commits, the shard owned the
//     key online at that moment, in every isolation level.
//   - [DB.Exec], [DB.Query], [DB.QueryRow] and [DB.SendBatch]: the same for what
//     may write. A statement that begins with SELECT, TABLE, VALUES, SHOW, WITH or
//     EXPLAIN and has none of the words INSERT, UPDATE, DELETE, MERGE and INTO
//     outside of strings, comments and quoted names is a read, and validated
//     without a lock; so is everything on a DB for reads. A function that writes,
//     called by SELECT, is validated and not held: call it in InTx.
//   - VACUUM, COPY, LOCK, DECLARE, SAVEPOINT, CLUSTER, CREATE or DROP of a
//     database, a tablespace or CONCURRENTLY, and whatever the server refuses
//     behind another statement (SQLSTATE 25001): validated by a round trip of
//     their own just before, and not held.
//   - [DB.Acquire]: validated when the session is given out, and not held.
//   - [DB.Hold]: the mapping stays where it is until the session is released.
//
// The lock of a write is FOR KEY SHARE on the mapping's row in the shard's local
// map; a change of the mapping deletes that row and so waits for it. The login
// needs the right to update that table's column fence, which can hold nothing.
//
// # pgx
//
// Options among the arguments (exec modes, result formats, named arguments) mean
// what they mean in pgx. A [pgx.QueryTracer] sees each statement and not its
// validation; a [pgx.BatchTracer] sees begin and validation of InTx, and that of
// SendBatch, as queries of a batch. Config.Configure sets tracers, type maps and
// exec modes. In the exec mode that caches statements those of Exec and Query are
// prepared under names of this package, up to the capacity that pgx has. A call
// that asks for the simple protocol by itself, with arguments, gets the mode
// [pgx.QueryExecModeExec], which reads and writes values in the same way. Names of
// statements that were prepared by hand are for [DB.Acquire].
//
// A session that is closed by the server is found out before it is used: by its
// socket, without a round trip. A statement that may leave something behind on its
// session (SET, LISTEN, PREPARE, CREATE TEMP…) costs the session; what is done on
// a [Conn] is left to its user, as in pgxpool.
//
// # Servers and poolers
//
// A shard may have several servers, see [DB.With]. Behind a pooler that gives out
// a session for each transaction set Config.Pooler: transactions and single
// statements keep all their promises there, for a pipeline is one transaction;
// Hold is refused.
//
// The package opens no connection before the first use of a shard. Apart from
// those of pgxpool and of the shards whose servers are watched it has no
// goroutines that outlive a call.
package pgxshard

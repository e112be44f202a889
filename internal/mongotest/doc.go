// Package mongotest gives tests MongoDB deployments that speak the real wire protocol on real TCP connections, so that
// the official Go driver runs against them unchanged: its monitors, pools, sessions and retries are the real ones.
// For tests only; it is no database.
//
//	cluster := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Servers: 3, Streaming: true})
//	cluster.Server(1).SetTags(map[string]string{"zone": "a"})
//	cluster.Server(2).SetLag(5 * time.Minute)
//	cluster.Fill("app", "customers", 300)
//	client, err := mongo.Connect(options.Client().ApplyURI(cluster.URI()))
//	…
//	cluster.Server(0).Fail("insert", mongotest.Fault{Code: 91})
//	cluster.Elect(1)
//
// # What it speaks
//
// OP_MSG (with document sequences, unacknowledged writes and streaming hello) and the OP_QUERY hello. The reply to hello
// is that of a sharded cluster's mongos, of a replica set's member in each role, of a standalone server or of a load
// balancer, at [DefaultMaxWireVersion] unless Options says otherwise.
//
// # What it stores
//
// Without Options.Backend the documents of a cluster are kept in memory and shared by its servers: a secondary's lag is
// in its hello only. The commands of CRUD, cursors, counts, lists and indexes work with MongoDB's usual operators of
// filters and updates; what is not known is refused with code 2 and a text that begins with "mongotest:".
// Transactions are snapshots with write conflicts, as in MongoDB: the first writer of a document wins and a later one
// gets code 112; a write outside a transaction waits for the one that holds its document. Reads and writes that the
// server's role does not allow get MongoDB's codes (10107, 13435, 13436), a transaction on a standalone server code 20,
// a cursor or a transaction of another server codes 43 and 251. A retried write that was done before is not done twice.
//
// With Options.Backend data commands go to that database one at a time, without what a standalone server refuses
// (lsid, txnNumber, transactions, read preference, cluster time), so a transaction there is not undone by an abort.
//
// # Faults
//
// [Server.Fail] answers a command with an error, a delay or a dropped connection, before or after it was done;
// [Server.Handle] answers it by the test's own function; [Server.Stop] makes a server end each connection at once, so
// that no other process can take its port meanwhile; [Cluster.Elect] moves the primary.
//
// Servers listen on 127.0.0.1, on free ports, and end with the test, together with every connection and goroutine.
package mongotest

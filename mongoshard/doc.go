// Package mongoshard gives the official Go driver of MongoDB the selection of
// package selection: criteria, and above all predicates, say which servers the
// operations of a *mongo.Client use. The driver's monitors, pools, sessions,
// cursors and retries stay as they are; nothing is monitored twice.
//
//	client, err := mongoshard.Connect(ctx, options.Client().ApplyURI(uri), mongoshard.Config{
//		Criteria: selection.Where(func(s selection.ServerInfo) bool { return s.Host == "localhost" }),
//	})
//
// Criteria hold for a client (Connect), for another client of the same
// deployment (With) and for one operation (WithCriteria); the nearest wins.
//
// # Rules
//
// They are those of MongoDB's Rust driver:
//
//   - Reads use the servers that the read preference or the predicate admits,
//     then the latency window, then of two random ones the less busy.
//   - A predicate replaces mode, tags and staleness, never the window. It is
//     asked about servers that hold data or lead to it; with a direct
//     connection, about its server whatever it is.
//   - Writes and commands use the writable servers: the primary, or any mongos.
//     Config.MongosForWrites applies a predicate to the choice of that mongos.
//   - A read whose collection, database or call has a read preference of its own
//     follows it, through the driver, unless WithCriteria says otherwise.
//   - Cursors and sharded transactions stay on their server. The first operation
//     of a sharded transaction chooses a mongos by the criteria. Transactions of
//     a replica set use the primary.
//   - A retry avoids the servers that failed before, if others suit; it never
//     leaves what the criteria admit.
//   - A predicate tells members of a replica set {mode: "primaryPreferred"}, so
//     that secondaries answer, and tells a mongos nothing. A read preference is
//     sent as it is.
//   - Behind a load balancer there is nothing to choose, so nothing is asked.
//
// # The driver
//
// The package hooks into the driver at a place that is exported but not
// promised (the deployment of a client), so each upgrade is tested: versions
// v2.7.0 to v2.10.0 are supported, and the tests run with v2.7.0, v2.8.0 and
// v2.10.0. These options are refused, as they would not work: automatic
// encryption, MONGODB-OIDC, hedged reads, a deployment of one's own.
// AppendDriverInfo after Connect does not reach the servers; set DriverInfo in
// the options. An aggregate with $out or $merge on MongoDB 4.4 needs
// WithCriteria(ctx, selection.Primary()): such servers write on primaries only.
package mongoshard

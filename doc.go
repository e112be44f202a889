// Package shardway routes a request to the right database:
// key → shard → server → connection.
//
// A [ShardMap] maps keys to shards. The global shard map, in one database, is
// the authority; every shard keeps its own mappings in a local shard map, which
// is the fence; a [Router] keeps a cache, which is only a hint. Those who come
// from Azure SQL's Elastic Database client library find its ShardMapManager as
// two types: the Router reads, the Catalog of package catalog changes.
//
// This package knows keys, ranges, shard maps and routing. It opens no
// connection: that is what the adapters are for (package sqlshard), and it
// imports no third-party code.
package shardway

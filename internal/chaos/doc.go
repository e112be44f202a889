// Package chaos is a hostile run over Shardway and the judge of what it leaves:
// client processes route, write, read and change the map on real servers while
// others are killed, stopped, promoted and cut off. It is for tests only; see
// docs/chaos.md.
//
// A client is a process of its own ([Run]): a worker writes and reads keys in
// fenced transactions and keeps a journal of what it was told; a mover takes
// mappings offline, copies their rows and brings them online elsewhere, splits
// and merges. The judge ([Judge]) knows nothing of Shardway's code: it reads the
// journals and the databases.
package chaos

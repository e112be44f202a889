package dialect

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// The tables stand in one file for each engine and part, as they are in the
// current version; what a minor version changed in those before it stands in a
// file with its number. Statements are separated by empty lines and may be run
// again: they create what is missing.
//
//go:embed ddl
var ddl embed.FS

// Part is one of the two sets of tables.
type Part string

// The parts.
const (
	Global Part = "global"
	Local  Part = "local"
)

var tables = map[Part][]string{
	Global: {"store", "counters", "shard_maps", "shards", "mappings", "pending_mappings", "operations", "operation_parts", "history"},
	Local:  {"local_store", "local_shard_maps", "local_shards", "local_mappings", "local_operations"},
}

// deployLock keeps two programs from creating the same tables at once. release
// is empty for a lock that ends with the transaction.
type deployLock struct{ take, release string }

// DeployLock returns the statement that waits for the right to create tables,
// empty where the transaction is enough, and the one that gives it back,
// empty where the end of the transaction does.
func (d *Dialect) DeployLock() (take, release string) { return d.deploy.take, d.deploy.release }

// Create returns the statements that create the tables of a part, and leave
// those alone that are there already.
func (d *Dialect) Create(part Part) []string {
	text, err := ddl.ReadFile(fmt.Sprintf("ddl/%s/%s.sql", d.name, part))
	if err != nil {
		panic(err) // embedded
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n\n")
}

// Upgrade returns the statements that bring the tables of a part from the minor
// version before to the given one of major version 1. They may be run again,
// and over tables that are of that version already. None where the version
// brings an engine nothing.
//
// They wait for locks a short time only, where an engine makes those who come
// later wait behind: the caller tries again.
func (d *Dialect) Upgrade(part Part, minor int) []string {
	text, err := ddl.ReadFile(fmt.Sprintf("ddl/%s/%s-1.%d.sql", d.name, part, minor))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n\n")
}

// Drop returns the statements that drop the tables of a part: first the one
// that says there is a store, last the one that is created after it, so that
// its absence means that nothing is left.
func (d *Dialect) Drop(part Part) []string {
	names := slices.Clone(tables[part])
	slices.Reverse(names[1:])
	for i, t := range names {
		names[i] = d.SQL("DROP TABLE IF EXISTS {" + t + "}")
	}
	return names
}

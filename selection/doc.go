// Package selection chooses a server of a replica set by MongoDB's algorithm:
// a read preference or a predicate, then the latency window, then of two
// random servers the one with fewer operations in flight.
//
// Select is a pure decision over a topology.Set: it does no I/O, takes no lock
// and allocates nothing (for up to 1024 servers). A Selector also waits for a
// suitable server. The package knows no keys, no shards and no drivers, and
// never probes.
//
//	nearby := selection.Nearest(selection.MaxStaleness(30*time.Second), selection.Tags{"zone": "eu-1a"})
//	choice, err := selection.Select(set, selection.Request{Criteria: nearby})
//	if err != nil {
//		return err // says for every server which step dropped it
//	}
//	defer choice.Release()
//	dial(choice.Server().Address)
package selection

package mongoshard

import (
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
)

// The driver hands over an opaque selector. What it stands for is found by
// asking it about made-up topologies; nothing of the driver's internals is
// read. canary_test.go checks each of these answers for each operation and
// driver version.

// purpose is what a selector was made for.
type purpose uint8

const (
	// forRead: a read without a read preference of its own.
	forRead purpose = iota
	// forOwnPreference: a read whose collection, database or call has one.
	forOwnPreference
	// forCommand: a command or a list, which use the primary. A read of mode
	// primary looks the same, and so does one of a mode with a fallback and tags.
	forCommand
	// forWrite: a write, or the end of a transaction.
	forWrite
	// forPin: an operation of a transaction that stays with its mongos.
	forPin
)

// markStaleness makes a read preference recognizable: no useful one is as small.
const markStaleness = time.Nanosecond

// markText is how the driver's refusal shows markStaleness.
const markText = "(1ns)"

// marked is the read preference of all clients: mode primary, so transactions
// take it and it never goes to a server, with a max staleness that the driver's
// selector refuses when it is asked about a replica set. So a read that
// inherits the client's read preference can be told from a command that must
// use the primary.
func marked() *readpref.ReadPref {
	p := readpref.Primary()
	_ = readpref.WithMaxStaleness(markStaleness)(p) // sets a field; it cannot fail
	return p
}

// made is a topology that no driver has, and madeSecondary its secondary, the
// only candidate that a selector is offered.
var (
	made = description.Topology{Kind: description.TopologyKindReplicaSetWithPrimary, Servers: []description.Server{
		madeServer("primary.invalid:1", description.ServerKindRSPrimary),
		madeServer("secondary.invalid:1", description.ServerKindRSSecondary),
	}}
	madeSecondary = made.Servers[1:]
)

// odd is a cluster whose router is a primary: writable, and no mongos.
var odd = description.Topology{Kind: description.TopologyKindSharded, Servers: made.Servers[:1]}

// foreign is a topology whose only server no session is pinned to.
var foreign = description.Topology{Kind: description.TopologyKindLoadBalanced, Servers: []description.Server{
	madeServer("foreign.invalid:1", description.ServerKindMongos),
}}

func madeServer(at address.Address, kind description.ServerKind) description.Server {
	return description.Server{Addr: at, Kind: kind, WireVersion: &description.VersionRange{Max: 25}, HeartbeatInterval: time.Second}
}

// classify asks a selector what it is for.
func classify(selector description.ServerSelector) purpose {
	if got, err := selector.SelectServer(foreign, foreign.Servers); err != nil || len(got) == 0 {
		return forPin
	}
	got, err := selector.SelectServer(made, madeSecondary)
	switch {
	case err != nil && strings.Contains(err.Error(), markText):
		return forRead
	case err != nil || len(got) > 0:
		return forOwnPreference
	}
	if got, err := selector.SelectServer(odd, odd.Servers); err == nil && len(got) == 1 {
		return forWrite
	}
	return forCommand
}

// spared returns the servers that a selector avoids because they failed the
// operation before. As a load balancer's, all servers suit each selector, so
// those that are missing from its answer are meant.
func spared(selector description.ServerSelector, servers []description.Server) []address.Address {
	got, err := selector.SelectServer(description.Topology{Kind: description.TopologyKindLoadBalanced, Servers: servers}, servers)
	if err != nil || len(got) == len(servers) {
		return nil
	}
	kept := make(map[address.Address]bool, len(got))
	for i := range got {
		kept[got[i].Addr] = true
	}
	var missing []address.Address
	for i := range servers {
		if !kept[servers[i].Addr] {
			missing = append(missing, servers[i].Addr)
		}
	}
	return missing
}

// inTransaction reports whether an operation belongs to a transaction.
func inTransaction(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

package topology

import "fmt"

// Role is what a server is in its set. The zero value is RoleUnknown, which no
// selection ever chooses.
type Role uint8

// The roles. SQL sets use unknown, primary, secondary and other; the rest exist
// in MongoDB deployments only.
const (
	// RoleUnknown: never seen, unreachable, or its claim was refused.
	RoleUnknown Role = iota
	// RolePrimary takes writes.
	RolePrimary
	// RoleSecondary follows the primary and serves reads.
	RoleSecondary
	// RoleStandalone is a MongoDB server outside any set.
	RoleStandalone
	// RoleMongos is a router of a MongoDB cluster.
	RoleMongos
	// RoleLoadBalancer is a balancer in front of MongoDB routers.
	RoleLoadBalancer
	// RoleArbiter votes and holds no data.
	RoleArbiter
	// RoleOther is known but serves nobody: hidden, starting, recovering.
	RoleOther
	// RoleGhost is a MongoDB member without a configuration.
	RoleGhost
	// RolePossiblePrimary was named as primary by another server only.
	RolePossiblePrimary
)

var roleNames = [...]string{
	"unknown", "primary", "secondary", "standalone", "mongos",
	"load balancer", "arbiter", "other", "ghost", "possible primary",
}

// String returns the role's name.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// Available reports whether the server answered and said what it is.
func (r Role) Available() bool { return r != RoleUnknown && r != RolePossiblePrimary }

// Readable reports whether a server of this role holds data or leads to it.
func (r Role) Readable() bool { return r >= RolePrimary && r <= RoleLoadBalancer }

// Kind says which rules a Set follows. The zero value is KindUnknown, in which
// nothing is selected.
type Kind uint8

// The kinds. All but KindReplicaSet are MongoDB's topology types.
const (
	// KindUnknown: nothing is known of the deployment yet.
	KindUnknown Kind = iota
	// KindReplicaSet is a set of SQL servers; a primary may be known or not.
	KindReplicaSet
	// KindSingle is one MongoDB server, used directly.
	KindSingle
	// KindReplicaSetNoPrimary is a MongoDB replica set without a known primary.
	KindReplicaSetNoPrimary
	// KindReplicaSetWithPrimary is a MongoDB replica set with a primary.
	KindReplicaSetWithPrimary
	// KindSharded is a MongoDB cluster behind mongos routers.
	KindSharded
	// KindLoadBalanced is a MongoDB deployment behind one load balancer.
	KindLoadBalanced
)

var kindNames = [...]string{
	"Unknown", "ReplicaSet", "Single", "ReplicaSetNoPrimary",
	"ReplicaSetWithPrimary", "Sharded", "LoadBalanced",
}

// String returns the kind's name; for MongoDB kinds it is MongoDB's.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MongoReplicaSet reports whether the staleness of the set's secondaries is
// MongoDB's estimate, which has a smallest useful bound.
func (k Kind) MongoReplicaSet() bool {
	return k == KindReplicaSetNoPrimary || k == KindReplicaSetWithPrimary
}

func (k Kind) replicaSet() bool { return k == KindReplicaSet || k.MongoReplicaSet() }

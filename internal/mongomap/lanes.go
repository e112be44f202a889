package mongomap

import "github.com/shardway/shardway"

// A transaction reads a state of the past and takes no lock by it. So that one
// that relies on a mapping cannot commit after the mapping is gone, it writes
// one of the mapping's lanes, chosen at random; who removes the mapping writes
// all of them, after the mark and before the commit. The server lets two
// transactions that write the same document commit only if the later one has
// seen what the earlier one wrote.
//
// Mappings share lanes: their number is bounded, and they are never removed.
const (
	LanesOfMapping = 16
	laneBlocks     = 16
)

// Lane is a document of [Lanes].
type Lane struct {
	ID    int32 `bson:"_id"`
	Turns int64 `bson:"turns"` // how often it was written
}

// LaneOf returns the n-th lane of a mapping, 0 ≤ n < [LanesOfMapping].
func LaneOf(id shardway.MappingID, n int) int32 {
	return int32(uint64(id)%laneBlocks)*LanesOfMapping + int32(n)
}

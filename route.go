package shardway

// Route is the answer to "where is this key?": a mapping and its shard. It is
// a value; later changes of the map do not reach it.
type Route struct {
	MappingID MappingID
	// Shard is shared by many routes: read it only.
	Shard *Shard
	// Generation of the map that the router knew of when it gave the answer.
	Generation int64
	// Status of the mapping when it was read. The cached status of a mapping
	// is as old as the cache: before refusing a key because its mapping is
	// offline, ask the shard, or [Map.Refresh] a route with FromCache set.
	Status MappingStatus
	// FromCache is set when no store was asked for this answer.
	FromCache bool
}

// LookupMode says where a lookup looks.
type LookupMode uint8

// The lookup modes.
const (
	CacheAndStore LookupMode = 0 // the cache, and on a miss the store
	CacheOnly     LookupMode = 1 // the cache; what it does not have is ErrKeyNotMapped
	StoreOnly     LookupMode = 2 // the store, and the answer replaces what is cached
)

// String returns "cache and store", "cache only" or "store only".
func (m LookupMode) String() string {
	switch m {
	case CacheAndStore:
		return "cache and store"
	case CacheOnly:
		return "cache only"
	case StoreOnly:
		return "store only"
	}
	return "invalid"
}

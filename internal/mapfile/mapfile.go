// Package mapfile is the file form of shard maps: what export writes and import,
// diff and apply read. It turns values into text and back, finds the differences
// of two files, and plans the changes that lead from one to the other. It reads
// no store and makes no change.
//
// A file says what the maps are to be, not how they came about. It holds maps,
// shards with their servers and tags, mappings with status, and who has locked
// them. It holds no ids, generations or history, no pending operations, and no
// secret: not the token of a lock, and no login, which locations never have.
package mapfile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
)

// Format and Version stand at the beginning of every file. A program reads files
// of its own version and of older ones.
const (
	Format  = "shardway map"
	Version = 1
)

// File is the contents of a file: some or all shard maps of a store. Files that
// [Read] returns, and those that [Write] has written, are in order.
type File struct {
	Maps []Map // by name
}

// Map is one shard map.
type Map struct {
	Name     string
	Kind     shardway.MapKind
	KeyKind  shardway.KeyKind
	Shards   []Shard   // by name
	Mappings []Mapping // by low key
}

// Shard is one shard of a map.
type Shard struct {
	Name     string
	Status   shardway.ShardStatus
	Location shardway.Location
}

// Mapping is one mapping, on a shard of its map.
type Mapping struct {
	Range  shardway.Range // in a list map Low is the point and High the zero value
	Shard  string
	Status shardway.MappingStatus
	Lock   *Lock // nil for none
}

// Lock says who keeps others from changing a mapping. Its token is not there: a
// lock that is made anew from a file gets another one.
type Lock struct {
	Owner   string
	Reason  string
	Expires time.Time // UTC; zero is never
}

// Map returns the map with the given name, and whether there is one.
func (f File) Map(name string) (Map, bool) {
	i := slices.IndexFunc(f.Maps, func(m Map) bool { return m.Name == name })
	if i < 0 {
		return Map{}, false
	}
	return f.Maps[i], true
}

// Shard returns the shard with the given name, and whether there is one.
func (m Map) Shard(name string) (Shard, bool) {
	i := slices.IndexFunc(m.Shards, func(s Shard) bool { return s.Name == name })
	if i < 0 {
		return Shard{}, false
	}
	return m.Shards[i], true
}

// WithoutLocks returns a copy in which no mapping is locked: locks come and go
// with their owners and are no part of what a map is to be.
func (f File) WithoutLocks() File {
	c := File{Maps: slices.Clone(f.Maps)}
	for i := range c.Maps {
		c.Maps[i].Mappings = slices.Clone(c.Maps[i].Mappings)
		for j := range c.Maps[i].Mappings {
			c.Maps[i].Mappings[j].Lock = nil
		}
	}
	return c
}

// sort puts a file into its order.
func (f File) sort() {
	slices.SortFunc(f.Maps, func(a, b Map) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range f.Maps {
		slices.SortFunc(m.Shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
		slices.SortStableFunc(m.Mappings, func(a, b Mapping) int { return a.Range.Low.Compare(b.Range.Low) })
	}
}

// format is what a mapping covers, for people.
func (m Map) format(r shardway.Range) string { return shardway.Mapping{Range: r}.Format(m.Kind) }

func compareRanges(a, b shardway.Range) int {
	if c := a.Low.Compare(b.Low); c != 0 {
		return c
	}
	return compareEnds(a.High, b.High)
}

// compareEnds orders the upper ends of ranges: the zero value is above all keys.
func compareEnds(a, b shardway.Key) int {
	switch {
	case a.IsZero() || b.IsZero():
		return cmp.Compare(truth(a.IsZero()), truth(b.IsZero()))
	default:
		return a.Compare(b)
	}
}

func truth(is bool) int {
	if is {
		return 1
	}
	return 0
}

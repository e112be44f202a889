package shardway

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds the names of shard maps and shards.
const MaxNameBytes = 128

// CheckName reports whether name can name a shard map or shard: 1 to
// [MaxNameBytes] bytes of printable UTF-8 without a space at either end.
// Names are compared by bytes: "A" and "a" are two names. argument is what the
// error calls it.
func CheckName(argument, name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "is empty"
	case len(name) > MaxNameBytes:
		reason = fmt.Sprintf("is longer than %d bytes", MaxNameBytes)
	case !utf8.ValidString(name):
		reason = "is not valid UTF-8"
	case strings.TrimSpace(name) != name:
		reason = "starts or ends with a space"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		reason = "has characters that cannot be printed"
	default:
		return nil
	}
	return &ArgumentError{Argument: argument, Value: strings.ToValidUTF8(name, "?"), Reason: reason}
}

// MapKind says what the mappings of a shard map are: points or ranges. The
// numbers are stored and never change.
type MapKind uint8

// The map kinds.
const (
	ListMap  MapKind = 1 // a mapping is one key
	RangeMap MapKind = 2 // a mapping is one range of keys
)

// String returns "list" or "range".
func (k MapKind) String() string {
	switch k {
	case ListMap:
		return "list"
	case RangeMap:
		return "range"
	}
	return "invalid"
}

// MapID identifies a shard map for ever: ids are random and never used again.
type MapID int64

// ShardID identifies a shard for ever: ids are random and never used again.
type ShardID int64

// MappingID identifies one state of a mapping. Every change of a mapping gives
// it a new id; ids are random 63-bit numbers and never used again, so an old
// one is always recognised.
type MappingID int64

// String returns 16 hex digits.
func (id MappingID) String() string { return fmt.Sprintf("%016x", int64(id)) }

// ParseMappingID reads what [MappingID.String] prints.
func ParseMappingID(text string) (MappingID, error) {
	v, err := strconv.ParseInt(text, 16, 64)
	if err != nil || len(text) != 16 || v <= 0 {
		return 0, &ArgumentError{Argument: "mapping id", Value: text, Reason: "is no id: those have 16 hex digits, the first one 0 to 7, and are not 0"}
	}
	return MappingID(v), nil
}

// ShardMap describes a named map from keys to shards. It is a value: a
// snapshot of what the store said.
type ShardMap struct {
	ID         MapID
	Name       string
	Kind       MapKind
	KeyKind    KeyKind
	Generation int64 // grows with every change of the map's shards or mappings that routers see
}

// Server is one address that serves a shard.
type Server struct {
	Address string            // host:port, [ipv6]:port, a socket path, or the file of an embedded database
	Tags    map[string]string // free labels for choosing a server; nil is none
}

// Location says where a shard's database is: which engine speaks there, what
// the database is called, and which servers hold it. It never holds a secret.
type Location struct {
	Engine   string   // postgres, mysql, sqlserver, sqlite, mongodb
	Database string   // name of the database on every server; empty for embedded databases
	Servers  []Server // at least one; the first is tried first as long as nothing is known about roles
}

// String returns engine, servers and database for people.
func (l Location) String() string {
	addresses := make([]string, len(l.Servers))
	for i, s := range l.Servers {
		addresses[i] = s.Address
	}
	text := l.Engine + "://" + strings.Join(addresses, ",")
	if l.Database != "" {
		text += "/" + l.Database
	}
	return text
}

// Overlaps reports whether both locations name the same database on the same
// server.
func (l Location) Overlaps(other Location) bool {
	if l.Engine != other.Engine || l.Database != other.Database {
		return false
	}
	for _, a := range l.Servers {
		for _, b := range other.Servers {
			if a.Address == b.Address {
				return true
			}
		}
	}
	return false
}

// ShardStatus says whether a shard takes new mappings. The numbers are stored.
type ShardStatus uint8

// The shard statuses.
const (
	ShardOnline  ShardStatus = 0 // takes new mappings
	ShardOffline ShardStatus = 1 // keeps and serves the mappings it has, takes no new ones
)

// String returns "online" or "offline".
func (s ShardStatus) String() string {
	if s == ShardOnline {
		return "online"
	}
	return "offline"
}

// Shard is one database of a shard map, served by one or more servers.
type Shard struct {
	ID       ShardID
	MapID    MapID
	Name     string // unique in its shard map
	Location Location
	Status   ShardStatus
	Version  int64 // random, new with every change of the shard: an old value is recognised as stale
}

// MappingStatus says whether connections for the keys of a mapping are given
// out. The numbers are stored.
type MappingStatus uint8

// The mapping statuses.
const (
	Offline MappingStatus = 0
	Online  MappingStatus = 1
)

// String returns "online" or "offline".
func (s MappingStatus) String() string {
	if s == Online {
		return "online"
	}
	return "offline"
}

// LockToken is the proof of owning a lock. Whoever has it can change the
// mapping and unlock it.
type LockToken string

// Lock keeps others from changing a mapping. It does not affect lookups or
// connections. The zero value is no lock.
type Lock struct {
	Token   LockToken
	Owner   string    // who, for people
	Reason  string    // why, for people
	Expires time.Time // UTC; from then on the lock counts as free; zero is never
}

// Held reports whether the lock stands at the instant now.
func (l Lock) Held(now time.Time) bool {
	return l.Token != "" && (l.Expires.IsZero() || now.Before(l.Expires))
}

// Mapping is one point or one range of a shard map and the shard that owns it.
// In a list map Range.Low is the point and Range.High is the zero value.
// Mappings are values; a change in the store never changes one.
type Mapping struct {
	ID      MappingID
	MapID   MapID
	Range   Range
	ShardID ShardID
	Status  MappingStatus
	Lock    Lock
}

// Format returns what the mapping covers, for people: a point or a range.
func (m Mapping) Format(kind MapKind) string {
	if kind == ListMap {
		return m.Range.Low.quoted()
	}
	return m.Range.String()
}

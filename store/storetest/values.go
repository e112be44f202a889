package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// instant is when everything in the suite happens: no test depends on a clock.
var instant = time.Date(2026, 2, 28, 23, 59, 59, 123456000, time.UTC)

func newMap(name string, kind shardway.MapKind, keys shardway.KeyKind) shardway.ShardMap {
	return shardway.ShardMap{ID: shardway.MapID(store.NewID()), Name: name, Kind: kind, KeyKind: keys}
}

// ports gives every shard an address of its own.
var ports atomic.Int64

func newShard(m shardway.ShardMap, name string) shardway.Shard {
	return shardway.Shard{
		ID: shardway.ShardID(store.NewID()), MapID: m.ID, Name: name, Version: store.NewID(),
		Location: shardway.Location{Engine: "postgres", Database: "customers",
			Servers: []shardway.Server{{Address: fmt.Sprintf("db.example:%d", ports.Add(1))}}},
	}
}

// changed returns a later version of a shard.
func changed(s shardway.Shard) *shardway.Shard {
	s.Version = store.NewID()
	s.Status = shardway.ShardOffline
	return &s
}

func newMapping(s shardway.Shard, r shardway.Range) shardway.Mapping {
	return shardway.Mapping{ID: shardway.MappingID(store.NewID()), MapID: s.MapID, Range: r,
		ShardID: s.ID, Status: shardway.Online}
}

// next returns the next state of a mapping: the same with a new id.
func next(m shardway.Mapping) shardway.Mapping {
	m.ID = shardway.MappingID(store.NewID())
	return m
}

func newOperation(m shardway.ShardMap, steps ...store.Step) *store.Operation {
	return &store.Operation{
		ID: store.OperationID(store.NewID()), Kind: "change", Map: m, Steps: steps,
		Who: "tester", Reason: "a reason", Summary: "a summary",
		Started: instant, Epoch: 1, Owner: "owner", LeaseUntil: instant.Add(time.Minute),
	}
}

// add is the step that adds mappings to a shard.
func add(s shardway.Shard, mappings ...shardway.Mapping) store.Step {
	return store.Step{Shard: s, Add: mappings}
}

// replace is the step that removes and adds mappings of a shard.
func replace(s shardway.Shard, remove, add []shardway.Mapping) store.Step {
	return store.Step{Shard: s, Remove: remove, Add: add}
}

func list[V any](v ...V) []V { return v }

// newEntry returns the history entry of an operation.
func newEntry(o *store.Operation, outcome store.Outcome, ranges ...shardway.Range) store.Entry {
	return store.Entry{
		Operation: o.ID, At: instant, MapID: o.Map.ID, MapName: o.Map.Name, Kind: o.Kind, Outcome: outcome,
		Who: o.Who, Reason: o.Reason, Summary: o.Summary, Ranges: ranges,
	}
}

func row(m shardway.Mapping) store.MappingRow { return store.MappingRow{Mapping: m} }

func rows(mappings ...shardway.Mapping) (all []store.MappingRow) {
	for _, m := range mappings {
		all = append(all, row(m))
	}
	return all
}

func mappingIDs(all []store.MappingRow) (ids []shardway.MappingID) {
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return ids
}

// key and span are short for int64 keys and ranges; spanFrom has an open end.
func key(v int64) shardway.Key            { return shardway.Int64Key(v) }
func span(low, high int64) shardway.Range { return shardway.Range{Low: key(low), High: key(high)} }
func spanFrom(low int64) shardway.Range   { return shardway.RangeFrom(key(low)) }
func point(k shardway.Key) shardway.Range { return shardway.Range{Low: k} }

// keysInOrder returns keys of a kind, extremes included, in the order that the
// plain Go values have.
func keysInOrder(kind shardway.KeyKind) []shardway.Key {
	switch kind {
	case shardway.KindInt32:
		return keysOf[int32](math.MinInt32, math.MinInt32+1, -65536, -256, -255, -1, 0, 1, 9, 10, 127, 128, 255, 256, 1000, 1<<24, math.MaxInt32-1, math.MaxInt32)
	case shardway.KindInt64: // KEY-04: negative keys; KEY-08: 9, 10, 256, 1000 differ as text and number
		return keysOf[int64](math.MinInt64, math.MinInt64+1, -1001, -1000, -256, -1, 0, 1, 9, 10, 255, 256, 1000, math.MaxInt64-1, math.MaxInt64)
	case shardway.KindUint64:
		return keysOf[uint64](0, 1, 9, 10, 255, 256, 1000, math.MaxInt64, 1<<63, math.MaxUint64-1, math.MaxUint64)
	case shardway.KindUUID: // KEY-03: each byte group counts, in the order of the bytes
		uuids := list([16]byte{})
		for at := 15; at >= 0; at-- {
			uuids = append(uuids, bytesAt(at, 0x01), bytesAt(at, 0x80), bytesAt(at, 0xff))
		}
		var highest [16]byte
		for n := range highest {
			highest[n] = 0xff
		}
		return keysOf(append(uuids, highest)...)
	case shardway.KindString: // KEY-07: trailing zeros and spaces count, no collation folds anything
		return keysOf("", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", " ", "0", "A", "AB", "Z", "a", "a\x00", "a\x00b", "a\x01",
			"a ", "a  ", "aA", "aa", "b", "ss", "Ä", "ß", "ä", "\xff", "\xff\x00", "\xff\xff", strings.Repeat("\xff", shardway.MaxKeyBytes))
	case shardway.KindBytes:
		return keysOf([]byte{}, []byte{0}, []byte{0, 0}, make([]byte, shardway.MaxKeyBytes), []byte{0, 1}, []byte{0, 3}, []byte{0, 3, 0},
			[]byte{0, 0xff}, []byte{0, 0xff, 0}, []byte{1}, []byte{0x20}, []byte{'A'}, []byte{'a'}, []byte{'a', 0x20}, []byte{0xc3, 0xa4},
			[]byte{0xff}, []byte{0xff, 0}, []byte{0xff, 0xff})
	case shardway.KindTime:
		return keysOf(time.Unix(-9_223_372_036_853, 0), time.Unix(0, 0).Add(-time.Microsecond), time.Unix(0, 0),
			time.Unix(0, 0).Add(time.Microsecond), instant, time.Unix(9_223_372_036_853, 999_999_000))
	}
	return keysOf[time.Duration](math.MinInt64, -time.Hour, -1, 0, 1, time.Hour, math.MaxInt64)
}

func bytesAt(at int, b byte) (u [16]byte) {
	u[at] = b
	return u
}

func keysOf[K shardway.KeyType](values ...K) []shardway.Key {
	all := make([]shardway.Key, len(values))
	for n, v := range values {
		k, err := shardway.KeyOf(v)
		if err != nil {
			panic(err) // the tables above are wrong
		}
		all[n] = k
	}
	return all
}

var keyKinds = list(shardway.KindInt32, shardway.KindInt64, shardway.KindUint64, shardway.KindUUID,
	shardway.KindString, shardway.KindBytes, shardway.KindTime, shardway.KindDuration)

// difficultNames are legal names that a collation, a pattern or quoting would
// mistake for one another, in the order of their bytes.
func difficultNames() []string {
	names := list("a", "A", "b", "aa", "a a", "a  a", "ä", "a\u0308", "Ä", "å", "ß", "ss", "SS", "ﬁ", "fi", "ı", "i", "İ", "I",
		"%", "_", "a_", "a%", `'`, `"`, "`", `\`, `\\`, "]", "[a]", "; drop table", "?", "$1", ":a", "@p1", "0", "00", "😀", "😁",
		"日本", strings.Repeat("n", shardway.MaxNameBytes), strings.Repeat("n", shardway.MaxNameBytes-1)+"N")
	slices.Sort(names)
	return names
}

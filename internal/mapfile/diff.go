package mapfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shardway/shardway"
)

// Difference is one object that two files do not have alike.
type Difference struct {
	Map    string
	Object string // shard map, shard or mapping
	Name   string // of the shard; what the mapping covers; empty for the map itself
	Old    string // what it is in the first file; empty when it is not there
	New    string // what it is in the second file; empty when it is not there
}

// Diff returns what differs from a to b, in the order of maps, and in each map
// of its shards and of its mappings by key. Nothing means that both are equal.
func Diff(a, b File) []Difference {
	a.sort()
	b.sort()
	var all []Difference
	walk(a.Maps, b.Maps, func(x, y Map) int { return strings.Compare(x.Name, y.Name) }, func(x, y *Map) {
		all = append(all, diffMap(x, y)...)
	})
	return all
}

// walk goes through two lists in one order and calls each for what stands in
// either or, side by side, in both.
func walk[T any](a, b []T, compare func(x, y T) int, each func(x, y *T)) {
	for len(a) > 0 || len(b) > 0 {
		c := 0
		switch {
		case len(b) == 0:
			c = -1
		case len(a) == 0:
			c = 1
		default:
			c = compare(a[0], b[0])
		}
		var x, y *T
		if c <= 0 {
			x, a = &a[0], a[1:]
		}
		if c >= 0 {
			y, b = &b[0], b[1:]
		}
		each(x, y)
	}
}

func diffMap(a, b *Map) (all []Difference) {
	name := either(a, b).Name
	add := func(object, of, before, after string) {
		if before != after {
			all = append(all, Difference{Map: name, Object: object, Name: of, Old: before, New: after})
		}
	}
	add("shard map", "", text(a, describeMap), text(b, describeMap))
	var x, y Map
	if a != nil {
		x = *a
	}
	if b != nil {
		y = *b
	}
	walk(x.Shards, y.Shards, func(x, y Shard) int { return strings.Compare(x.Name, y.Name) }, func(x, y *Shard) {
		add("shard", either(x, y).Name, text(x, describeShard), text(y, describeShard))
	})
	if a != nil && b != nil && a.KeyKind != b.KeyKind { // keys that cannot be compared
		for _, m := range x.Mappings {
			add("mapping", x.format(m.Range), describeMapping(m), "")
		}
		for _, m := range y.Mappings {
			add("mapping", y.format(m.Range), "", describeMapping(m))
		}
		return all
	}
	walk(x.Mappings, y.Mappings, func(x, y Mapping) int { return compareRanges(x.Range, y.Range) }, func(m, n *Mapping) {
		add("mapping", either(a, b).format(either(m, n).Range), text(m, describeMapping), text(n, describeMapping))
	})
	return all
}

func either[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// text is what an object is, for people; empty for none.
func text[T any](v *T, describe func(T) string) string {
	if v == nil {
		return ""
	}
	return describe(*v)
}

func describeMap(m Map) string { return fmt.Sprintf("%s map of %s keys", m.Kind, m.KeyKind) }

func describeShard(s Shard) string {
	return s.Status.String() + ", " + describeLocation(s.Location)
}

func describeLocation(l shardway.Location) string {
	servers := make([]string, len(l.Servers))
	for i, srv := range l.Servers {
		servers[i] = srv.Address
		for _, tag := range slices.Sorted(maps.Keys(srv.Tags)) {
			servers[i] += "," + tag + "=" + srv.Tags[tag]
		}
	}
	text := l.Engine + " at " + strings.Join(servers, " ")
	if l.Database != "" {
		text = l.Engine + " database " + l.Database + " at " + strings.Join(servers, " ")
	}
	return text
}

func describeMapping(m Mapping) string {
	text := fmt.Sprintf("shard %q, %s", m.Shard, m.Status)
	if m.Lock == nil {
		return text
	}
	text += fmt.Sprintf(", locked by %q", m.Lock.Owner)
	if m.Lock.Reason != "" {
		text += fmt.Sprintf(" (%s)", m.Lock.Reason)
	}
	if !m.Lock.Expires.IsZero() {
		text += " until " + m.Lock.Expires.UTC().Format(time.RFC3339Nano)
	}
	return text
}

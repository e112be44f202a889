package mongotest

import (
	"bytes"
	"cmp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// class orders BSON's types as MongoDB's "Comparison/Sort Order" page does; numbers are one class.
func class(v any) int {
	switch v.(type) {
	case bson.MinKey:
		return -1
	case nil, bson.Null, bson.Undefined:
		return 1
	case int32, int64, int, float64:
		return 2
	case string, bson.Symbol:
		return 3
	case bson.D:
		return 4
	case bson.A:
		return 5
	case bson.Binary:
		return 6
	case bson.ObjectID:
		return 7
	case bool:
		return 8
	case bson.DateTime:
		return 9
	case bson.Timestamp:
		return 10
	case bson.Regex:
		return 11
	case bson.MaxKey:
		return 127
	default:
		return 100
	}
}

// compare orders two BSON values.
func compare(a, b any) int {
	if by := cmp.Compare(class(a), class(b)); by != 0 {
		return by
	}
	switch x := a.(type) {
	case int32, int64, int, float64:
		return compareNumbers(a, b)
	case string:
		y, _ := b.(string)
		return strings.Compare(x, y)
	case bson.D:
		return compareDocuments(x, b.(bson.D))
	case bson.A:
		return compareArrays(x, b.(bson.A))
	case bson.Binary:
		y := b.(bson.Binary)
		return cmp.Or(cmp.Compare(len(x.Data), len(y.Data)), cmp.Compare(x.Subtype, y.Subtype), bytes.Compare(x.Data, y.Data))
	case bson.ObjectID:
		y := b.(bson.ObjectID)
		return bytes.Compare(x[:], y[:])
	case bool:
		switch y := b.(bool); {
		case x == y:
			return 0
		case x:
			return 1
		default:
			return -1
		}
	case bson.DateTime:
		return cmp.Compare(x, b.(bson.DateTime))
	case bson.Timestamp:
		y := b.(bson.Timestamp)
		return cmp.Or(cmp.Compare(x.T, y.T), cmp.Compare(x.I, y.I))
	default:
		return 0
	}
}

func compareNumbers(a, b any) int {
	x, exactX := whole(a)
	y, exactY := whole(b)
	if exactX && exactY {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(float(a), float(b))
}

func whole(v any) (int64, bool) {
	switch x := v.(type) {
	case int32:
		return int64(x), true
	case int64:
		return x, true
	case int:
		return int64(x), true
	case float64:
		if x == float64(int64(x)) {
			return int64(x), true
		}
	case bool:
		if x {
			return 1, true
		}
	}
	return 0, false
}

func float(v any) float64 {
	if x, ok := v.(float64); ok {
		return x
	}
	n, _ := whole(v)
	return float64(n)
}

func compareDocuments(a, b bson.D) int {
	for i := range min(len(a), len(b)) {
		if by := cmp.Or(strings.Compare(a[i].Key, b[i].Key), compare(a[i].Value, b[i].Value)); by != 0 {
			return by
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareArrays(a, b bson.A) int {
	for i := range min(len(a), len(b)) {
		if by := compare(a[i], b[i]); by != 0 {
			return by
		}
	}
	return cmp.Compare(len(a), len(b))
}

// get returns an element of a document.
func get(d bson.D, key string) (any, bool) {
	for _, e := range d {
		if e.Key == key {
			return e.Value, true
		}
	}
	return nil, false
}

// at follows a dotted path through documents.
func at(d bson.D, path string) (any, bool) {
	key, rest, dotted := strings.Cut(path, ".")
	value, ok := get(d, key)
	if !ok || !dotted {
		return value, ok
	}
	inner, ok := value.(bson.D)
	if !ok {
		return nil, false
	}
	return at(inner, rest)
}

// put returns a copy of the document with the value at a dotted path; a value of nothing removes it.
func put(d bson.D, path string, value any, remove bool) bson.D {
	key, rest, dotted := strings.Cut(path, ".")
	out := make(bson.D, 0, len(d)+1)
	found := false
	for _, e := range d {
		if e.Key != key {
			out = append(out, e)
			continue
		}
		found = true
		switch {
		case dotted:
			inner, _ := e.Value.(bson.D)
			out = append(out, bson.E{Key: key, Value: put(inner, rest, value, remove)})
		case !remove:
			out = append(out, bson.E{Key: key, Value: value})
		}
	}
	switch {
	case found || remove:
	case dotted:
		out = append(out, bson.E{Key: key, Value: put(nil, rest, value, false)})
	default:
		out = append(out, bson.E{Key: key, Value: value})
	}
	return out
}

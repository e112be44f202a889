package mongotest

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// unknownError is the refusal of what the package does not know.
type unknownError string

func (e unknownError) Error() string { return "mongotest: " + string(e) + " is not known" }

// matches says whether a document fits a filter.
func matches(d, filter bson.D) (bool, error) {
	for _, e := range filter {
		ok, err := matchesElement(d, e)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func matchesElement(d bson.D, e bson.E) (bool, error) {
	switch e.Key {
	case "$and", "$or", "$nor":
		parts, _ := e.Value.(bson.A)
		hits := 0
		for _, part := range parts {
			inner, _ := part.(bson.D)
			ok, err := matches(d, inner)
			if err != nil {
				return false, err
			}
			if ok {
				hits++
			}
		}
		switch e.Key {
		case "$and":
			return hits == len(parts), nil
		case "$or":
			return hits > 0, nil
		default:
			return hits == 0, nil
		}
	case "$comment":
		return true, nil
	}
	if strings.HasPrefix(e.Key, "$") {
		return false, unknownError("filter operator " + e.Key)
	}
	value, there := at(d, e.Key)
	if operators, ok := e.Value.(bson.D); ok && len(operators) > 0 && strings.HasPrefix(operators[0].Key, "$") {
		return matchesAll(value, there, operators)
	}
	return equals(value, e.Value), nil
}

// equals is MongoDB's equality: an array fits if one of its elements does, null fits a missing field.
func equals(value, want any) bool {
	if compare(value, want) == 0 {
		return true
	}
	list, ok := value.(bson.A)
	return ok && slices.ContainsFunc(list, func(v any) bool { return compare(v, want) == 0 })
}

func matchesAll(value any, there bool, operators bson.D) (bool, error) {
	for _, o := range operators {
		ok, err := matchesOperator(value, there, o)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func matchesOperator(value any, there bool, o bson.E) (bool, error) {
	// Only values of one class have an order; the ends of all keys are of every class.
	ordered := func(fits func(int) bool) (bool, error) {
		open := class(o.Value) == -1 || class(o.Value) == 127
		return there && (open || class(value) == class(o.Value)) && fits(compare(value, o.Value)), nil
	}
	switch o.Key {
	case "$eq":
		return equals(value, o.Value), nil
	case "$ne":
		return !equals(value, o.Value), nil
	case "$gt":
		return ordered(func(c int) bool { return c > 0 })
	case "$gte":
		return ordered(func(c int) bool { return c >= 0 })
	case "$lt":
		return ordered(func(c int) bool { return c < 0 })
	case "$lte":
		return ordered(func(c int) bool { return c <= 0 })
	case "$in", "$nin":
		list, _ := o.Value.(bson.A)
		in := slices.ContainsFunc(list, func(want any) bool { return equals(value, want) })
		return in == (o.Key == "$in"), nil
	case "$exists":
		wanted := truth(o.Value)
		return there == wanted, nil
	case "$not":
		inner, _ := o.Value.(bson.D)
		ok, err := matchesAll(value, there, inner)
		return !ok, err
	default:
		return false, unknownError("filter operator " + o.Key)
	}
}

func truth(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case int32, int64, int, float64:
		return compareNumbers(x, int32(0)) != 0
	default:
		return true
	}
}

// update applies an update document, operators or a whole replacement, to a copy of d.
func update(d, change bson.D, inserted bool) (bson.D, error) {
	if len(change) == 0 || !strings.HasPrefix(change[0].Key, "$") {
		return replace(d, change), nil
	}
	for _, operator := range change {
		fields, ok := operator.Value.(bson.D)
		if !ok {
			return nil, unknownError("update " + operator.Key + " without fields")
		}
		for _, f := range fields {
			var err error
			if d, err = updateField(d, operator.Key, f, inserted); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

func replace(d, by bson.D) bson.D {
	id, ok := get(d, "_id")
	if _, own := get(by, "_id"); own || !ok {
		return by
	}
	return append(bson.D{{Key: "_id", Value: id}}, by...)
}

func updateField(d bson.D, operator string, f bson.E, inserted bool) (bson.D, error) {
	old, there := at(d, f.Key)
	switch operator {
	case "$set":
		return put(d, f.Key, f.Value, false), nil
	case "$setOnInsert":
		if !inserted {
			return d, nil
		}
		return put(d, f.Key, f.Value, false), nil
	case "$unset":
		return put(d, f.Key, nil, true), nil
	case "$inc":
		return put(d, f.Key, add(old, f.Value), false), nil
	case "$min", "$max":
		by := compare(f.Value, old)
		if there && (by == 0 || (by < 0) != (operator == "$min")) {
			return d, nil
		}
		return put(d, f.Key, f.Value, false), nil
	case "$push":
		list, _ := old.(bson.A)
		return put(d, f.Key, append(slices.Clone(list), f.Value), false), nil
	default:
		return nil, unknownError("update operator " + operator)
	}
}

func add(a, b any) any {
	x, exactX := whole(a)
	y, exactY := whole(b)
	if a == nil {
		return b
	}
	if !exactX || !exactY {
		return float(a) + float(b)
	}
	if _, wide := a.(int64); wide {
		return x + y
	}
	if _, wide := b.(int64); wide {
		return x + y
	}
	return int32(x + y)
}

// seed is the document that an upsert starts from: the filter's equalities.
func seed(filter bson.D) bson.D {
	var d bson.D
	for _, e := range filter {
		if e.Key == "$and" {
			parts, _ := e.Value.(bson.A)
			for _, part := range parts {
				inner, _ := part.(bson.D)
				d = append(d, seed(inner)...)
			}
			continue
		}
		if strings.HasPrefix(e.Key, "$") {
			continue
		}
		if operators, ok := e.Value.(bson.D); ok && len(operators) > 0 && strings.HasPrefix(operators[0].Key, "$") {
			if value, ok := get(operators, "$eq"); ok {
				d = put(d, e.Key, value, false)
			}
			continue
		}
		d = put(d, e.Key, e.Value, false)
	}
	return d
}

// project keeps or leaves out fields.
func project(d, fields bson.D) (bson.D, error) {
	if len(fields) == 0 {
		return d, nil
	}
	include := false
	for _, f := range fields {
		if _, computed := f.Value.(bson.D); computed {
			return nil, unknownError("projection of " + f.Key)
		}
		include = include || f.Key != "_id" && truth(f.Value)
	}
	if !include {
		for _, f := range fields {
			if !truth(f.Value) {
				d = put(d, f.Key, nil, true)
			}
		}
		return d, nil
	}
	var out bson.D
	if wanted, named := get(fields, "_id"); !named || truth(wanted) {
		if id, ok := get(d, "_id"); ok {
			out = append(out, bson.E{Key: "_id", Value: id})
		}
	}
	for _, f := range fields {
		if value, ok := at(d, f.Key); ok && f.Key != "_id" && truth(f.Value) {
			out = put(out, f.Key, value, false)
		}
	}
	return out, nil
}

// sorted orders documents by the fields of a sort document.
func sorted(documents []bson.D, by bson.D) []bson.D {
	if len(by) == 0 {
		return documents
	}
	documents = slices.Clone(documents)
	slices.SortStableFunc(documents, func(a, b bson.D) int {
		for _, f := range by {
			x, _ := at(a, f.Key)
			y, _ := at(b, f.Key)
			if c := compare(x, y); c != 0 {
				if compareNumbers(f.Value, int32(0)) < 0 {
					return -c
				}
				return c
			}
		}
		return 0
	})
	return documents
}

// key names a value in maps; numbers of one value have one key.
func key(v any) string {
	if n, ok := whole(v); ok && class(v) == 2 {
		return fmt.Sprintf("2:%d", n)
	}
	return fmt.Sprintf("%d:%v", class(v), v)
}

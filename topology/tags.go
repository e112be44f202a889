package topology

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"
)

// Tags are the labels of a server, such as zone=eu-1a. They are immutable, so
// they may be handed to user code and shared between goroutines. The zero
// value has no tags.
type Tags struct {
	pairs []Tag // Invariant: sorted by Key, keys are distinct.
}

// Tag is one label of a server.
type Tag struct {
	// Key names the label.
	Key string
	// Value is compared exactly, byte for byte.
	Value string
}

// TagHandle stands for a Tag and is compared in one step, however long the tag
// is. unique.Make makes it.
type TagHandle = unique.Handle[Tag]

// NewTags copies labels into Tags.
func NewTags(labels map[string]string) Tags {
	if len(labels) == 0 {
		return Tags{}
	}
	pairs := make([]Tag, 0, len(labels))
	for key, value := range maps.All(labels) {
		pairs = append(pairs, Tag{Key: key, Value: value})
	}
	slices.SortFunc(pairs, func(a, b Tag) int { return cmp.Compare(a.Key, b.Key) })
	return Tags{pairs: pairs}
}

// Get returns the value of a label and whether the server has it.
func (t Tags) Get(key string) (string, bool) {
	for i := range t.pairs {
		if t.pairs[i].Key == key {
			return t.pairs[i].Value, true
		}
	}
	return "", false
}

// Len returns the number of labels.
func (t Tags) Len() int { return len(t.pairs) }

// All yields the labels in the order of their keys.
func (t Tags) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, pair := range t.pairs {
			if !yield(pair.Key, pair.Value) {
				return
			}
		}
	}
}

// Equal reports whether both have the same labels with the same values.
func (t Tags) Equal(other Tags) bool { return slices.Equal(t.pairs, other.pairs) }

// String returns "key=value" pairs joined by commas, in the order of the keys.
func (t Tags) String() string {
	var b strings.Builder
	for i, pair := range t.pairs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pair.Key + "=" + pair.Value)
	}
	return b.String()
}

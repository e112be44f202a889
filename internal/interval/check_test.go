package interval

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
)

// failer is what checks need of testing.T and rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// entry is one key and its value in the oracle.
type entry[K any] struct {
	key   K
	value Value
}

// oracle is the slow, obvious map: a sorted slice.
type oracle[K any] struct {
	compare func(a, b K) int
	entries []entry[K]
}

func (o *oracle[K]) find(key K) (int, bool) {
	for i, e := range o.entries {
		if c := o.compare(e.key, key); c >= 0 {
			return i, c == 0
		}
	}
	return len(o.entries), false
}

func (o *oracle[K]) set(key K, v Value) *oracle[K] {
	i, found := o.find(key)
	next := &oracle[K]{o.compare, slices.Clone(o.entries)}
	if found {
		next.entries[i].value = v
	} else {
		next.entries = slices.Insert(next.entries, i, entry[K]{key, v})
	}
	return next
}

func (o *oracle[K]) deleteRange(low, high K, open bool) *oracle[K] {
	next := &oracle[K]{compare: o.compare}
	for _, e := range o.entries {
		if o.compare(e.key, low) < 0 || !open && o.compare(e.key, high) >= 0 {
			next.entries = append(next.entries, e)
		}
	}
	return next
}

func (o *oracle[K]) floor(key K) (k K, v Value, ok bool) {
	for _, e := range o.entries {
		if o.compare(e.key, key) <= 0 {
			k, v, ok = e.key, e.value, true
		}
	}
	return k, v, ok
}

func (o *oracle[K]) ceil(key K) (k K, v Value, ok bool) {
	if i, _ := o.find(key); i < len(o.entries) {
		return o.entries[i].key, o.entries[i].value, true
	}
	return k, v, false
}

func (o *oracle[K]) all() iter.Seq2[K, Value] {
	return func(yield func(K, Value) bool) {
		for _, e := range o.entries {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// persistent is what Ints and Bytes have in common, for tests.
type persistent[K, M any] interface {
	Floor(K) (K, Value, bool)
	Ceil(K) (K, Value, bool)
	Set(K, Value) M
	DeleteRange(low, high K, open bool) M
	All(K) iter.Seq2[K, Value]
	Len() int
}

var (
	_ persistent[uint64, Ints]  = Ints{}
	_ persistent[[]byte, Bytes] = Bytes{}
)

// mustHold fails unless m holds exactly the oracle's entries.
func mustHold[K any, M persistent[K, M]](t failer, m M, o *oracle[K]) {
	t.Helper()
	if m.Len() != len(o.entries) {
		t.Fatalf("Len() = %d, want %d", m.Len(), len(o.entries))
	}
	var zero K
	i := 0
	for k, v := range m.All(zero) {
		if i == len(o.entries) {
			t.Fatalf("All has entry %v behind the last one", k)
		}
		if e := o.entries[i]; o.compare(k, e.key) != 0 || v != e.value {
			t.Fatalf("entry %d = %v %v, want %v %v", i, k, v, e.key, e.value)
		}
		i++
	}
	if i != len(o.entries) {
		t.Fatalf("All ended after %d of %d entries", i, len(o.entries))
	}
}

// mustFind fails unless Floor, Ceil and All answer for key as the oracle does.
func mustFind[K any, M persistent[K, M]](t failer, m M, o *oracle[K], key K) {
	t.Helper()
	k, v, ok := m.Floor(key)
	wk, wv, wok := o.floor(key)
	if ok != wok || v != wv || o.compare(k, wk) != 0 {
		t.Fatalf("Floor(%v) = %v %v %v, want %v %v %v", key, k, v, ok, wk, wv, wok)
	}
	k, v, ok = m.Ceil(key)
	wk, wv, wok = o.ceil(key)
	if ok != wok || v != wv || o.compare(k, wk) != 0 {
		t.Fatalf("Ceil(%v) = %v %v %v, want %v %v %v", key, k, v, ok, wk, wv, wok)
	}
	fk, fv, fok := k, v, false
	for fk, fv = range m.All(key) {
		fok = true
		break
	}
	if fok != ok || fv != v || o.compare(fk, k) != 0 {
		t.Fatalf("All(%v) begins with %v %v %v, Ceil says %v %v %v", key, fk, fv, fok, k, v, ok)
	}
}

// shape is what a tree is made of.
type shape struct{ nodes, leaves, bytes int }

// checkTree fails unless every invariant of the tree holds: equal heights, fill, exact separators, order, count.
func checkTree[K any, L layout[K]](t failer, tr tree[K, L]) shape {
	t.Helper()
	var s shape
	if tr.root == nil {
		if tr.n != 0 {
			t.Fatalf("empty tree says it has %d entries", tr.n)
		}
		return s
	}
	if len(tr.root.kids) == 1 {
		t.Fatal("the root has one child node")
	}
	c := checker[K, L]{t: t, shape: &s, depth: -1}
	c.node(tr.root, 0, true)
	if c.entries != tr.n {
		t.Fatalf("tree holds %d entries, says %d", c.entries, tr.n)
	}
	return s
}

type checker[K any, L layout[K]] struct {
	t       failer
	shape   *shape
	depth   int
	entries int
	last    *K
}

func (c *checker[K, L]) node(nd *node, depth int, root bool) (first K) {
	var l L
	c.shape.nodes++
	c.shape.bytes += len(nd.seps) + 72 + 8*len(nd.kids) + 24*len(nd.leaves)
	if nd.kids != nil && nd.leaves != nil || nd.width() == 0 || nd.width() > nodeMax || !root && nd.width() < nodeMin {
		c.t.Fatalf("node with %d nodes and %d leaves (root: %v)", len(nd.kids), len(nd.leaves), root)
	}
	for i := range nd.width() {
		var k K
		if nd.kids != nil {
			k = c.node(nd.kids[i], depth+1, false)
		} else {
			k = c.leaf(nd.leaves[i], depth+1, root && nd.width() == 1)
		}
		if l.compare(k, l.sep(nd.seps, i)) != 0 {
			c.t.Fatalf("separator %d is %v, the child begins with %v", i, l.sep(nd.seps, i), k)
		}
		if i == 0 {
			first = k
		}
	}
	return first
}

func (c *checker[K, L]) leaf(leaf []byte, depth int, only bool) (first K) {
	var l L
	c.shape.leaves++
	c.shape.bytes += len(leaf)
	if c.depth < 0 {
		c.depth = depth
	}
	if depth != c.depth {
		c.t.Fatalf("leaves at depth %d and %d", c.depth, depth)
	}
	n := l.size(leaf)
	if n == 0 || n > leafMax || !only && n < leafMin {
		c.t.Fatalf("leaf with %d entries (the only one: %v)", n, only)
	}
	c.entries += n
	for i := range n {
		k, _ := l.entry(leaf, i)
		if c.last != nil && l.compare(*c.last, k) >= 0 {
			c.t.Fatalf("key %v follows %v", k, *c.last)
		}
		c.last = &k
		if i == 0 {
			first = k
		}
	}
	return first
}

func newIntOracle() *oracle[uint64]   { return &oracle[uint64]{compare: cmp.Compare[uint64]} }
func newBytesOracle() *oracle[[]byte] { return &oracle[[]byte]{compare: bytes.Compare} }

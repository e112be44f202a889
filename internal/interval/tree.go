package interval

const (
	leafMax = 64 // entries of a leaf
	leafMin = leafMax / 2
	nodeMax = 64 // children of a node
	nodeMin = nodeMax / 2
)

// node is an inner node. It is never changed once a map has been returned, and shared by all maps that contain it.
//
// Invariants: it has 1 to nodeMax children, all of them leaves or all of them nodes of equal height; no child is empty;
// if it has more than one child, each holds at least leafMin entries or nodeMin children.
type node struct {
	seps   []byte   // first key of each child, in the layout's form
	kids   []*node  // nil in a node over leaves
	leaves [][]byte // nil in a node over nodes
}

func (nd *node) width() int { return len(nd.kids) + len(nd.leaves) }

// run is a part of a leaf: its entries in [from, to).
type run struct {
	leaf     []byte
	from, to int
}

// layout is the form of keys of type K inside blocks (leaves and lists of separators). Only changes and walks go
// through it; lookups are written out for each key type.
type layout[K any] interface {
	leafLayout[K]
	// sepsOf encodes separators. It copies the keys.
	sepsOf(firsts []K) []byte
	// sep returns separator i.
	sep(seps []byte, i int) K
	// child returns the last child whose separator is <= key, child 0 if there is none.
	child(seps []byte, key K) int
	// compare orders keys as bytes.Compare does.
	compare(a, b K) int
}

type leafLayout[K any] interface {
	size(leaf []byte) int
	entry(leaf []byte, i int) (K, Value)
	// search returns the index of the first entry whose key is >= key, and whether it is key.
	search(leaf []byte, key K) (i int, found bool)
	// one returns a leaf of one entry. It copies the key.
	one(key K, v Value) []byte
	// with returns a copy of leaf with the value of entry i replaced.
	with(leaf []byte, i int, v Value) []byte
	// pack returns a leaf of the runs' entries.
	pack(runs []run) []byte
}

// tree is a persistent B+tree. The zero value is the empty tree.
type tree[K any, L layout[K]] struct {
	root *node
	n    int
}

// kid is a child on its way into a node: a leaf or a node, never both.
type kid[K any] struct {
	first K
	leaf  []byte
	node  *node
}

// build makes a tree of n entries from leaves in order; all but the last have at least leafMin entries.
func (t tree[K, L]) build(kids []kid[K], n int) tree[K, L] {
	if n == 0 {
		return tree[K, L]{}
	}
	kids = t.balance(kids, len(kids)-1, len(kids))
	for {
		kids = t.nodesOf(kids)
		if len(kids) == 1 {
			return tree[K, L]{root: kids[0].node, n: n}
		}
	}
}

// kidsOf appends the children of nd to list.
func (t tree[K, L]) kidsOf(list []kid[K], nd *node) []kid[K] {
	var l L
	for i := range nd.kids {
		list = append(list, kid[K]{first: l.sep(nd.seps, i), node: nd.kids[i]})
	}
	for i := range nd.leaves {
		list = append(list, kid[K]{first: l.sep(nd.seps, i), leaf: nd.leaves[i]})
	}
	return list
}

// nodesOf puts children under as few nodes as needed.
func (t tree[K, L]) nodesOf(list []kid[K]) []kid[K] {
	var nodes []kid[K]
	for len(list) > 0 {
		n := piece(len(list), nodeMax, nodeMin)
		nodes = append(nodes, kid[K]{first: list[0].first, node: t.nodeOf(list[:n])})
		list = list[n:]
	}
	return nodes
}

// nodeOf makes one node of 1 to nodeMax children.
func (t tree[K, L]) nodeOf(list []kid[K]) *node {
	var l L
	nd := &node{}
	firsts := make([]K, len(list))
	for i := range list {
		firsts[i] = list[i].first
	}
	nd.seps = l.sepsOf(firsts)
	if list[0].node == nil {
		nd.leaves = make([][]byte, len(list))
		for i := range list {
			nd.leaves[i] = list[i].leaf
		}
		return nd
	}
	nd.kids = make([]*node, len(list))
	for i := range list {
		nd.kids[i] = list[i].node
	}
	return nd
}

// piece says how many of n items go into the next block so that every block gets between low and high of them
// (fewer only if n < low). It fills blocks and shares the rest between the last two.
func piece(n, high, low int) int {
	switch {
	case n <= high:
		return n
	case n < high+low:
		return (n + 1) / 2
	default:
		return high
	}
}

// walk calls yield for the entries under nd from key on, until yield says false.
func (t tree[K, L]) walk(nd *node, from K, yield func(K, Value) bool) bool {
	var l L
	start := l.child(nd.seps, from) // 0 in all nodes behind the first
	for i := start; i < len(nd.kids); i++ {
		if !t.walk(nd.kids[i], from, yield) {
			return false
		}
	}
	for i := start; i < len(nd.leaves); i++ {
		at := 0
		if i == start {
			at, _ = l.search(nd.leaves[i], from)
		}
		for n := l.size(nd.leaves[i]); at < n; at++ {
			if !yield(l.entry(nd.leaves[i], at)) {
				return false
			}
		}
	}
	return true
}

// all returns the entries from key on in ascending order.
func (t tree[K, L]) all(from K) func(yield func(K, Value) bool) {
	return func(yield func(K, Value) bool) {
		if t.root != nil {
			t.walk(t.root, from, yield)
		}
	}
}

// firstLeaf returns the leftmost leaf under child i of nd.
func firstLeaf(nd *node, i int) []byte {
	for nd.kids != nil {
		nd, i = nd.kids[i], 0
	}
	return nd.leaves[i]
}

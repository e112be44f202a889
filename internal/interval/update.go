package interval

import "slices"

// set inserts key or replaces its value.
func (t tree[K, L]) set(key K, v Value) tree[K, L] {
	var l L
	if t.root == nil {
		leaf := l.one(key, v)
		first, _ := l.entry(leaf, 0)
		return t.build([]kid[K]{{first: first, leaf: leaf}}, 1)
	}
	root, grown, added := t.setNode(t.root, key, v)
	if grown != nil {
		root = t.nodeOf([]kid[K]{t.kidOf(root), t.kidOf(grown)})
	}
	return tree[K, L]{root: root, n: t.n + added}
}

// setNode returns nd with key set, as one node or split in two, and how many keys were added.
func (t tree[K, L]) setNode(nd *node, key K, v Value) (left, right *node, added int) {
	var l L
	i := l.child(nd.seps, key)
	var fresh [2]kid[K]
	n := 1
	if nd.kids != nil {
		var a, b *node
		a, b, added = t.setNode(nd.kids[i], key, v)
		fresh[0] = t.kidOf(a)
		if b != nil {
			fresh[1], n = t.kidOf(b), 2
		}
	} else {
		var a, b []byte
		a, b, added = t.setLeaf(nd.leaves[i], key, v)
		fresh[0] = t.kidOfLeaf(a)
		if b != nil {
			fresh[1], n = t.kidOfLeaf(b), 2
		}
	}
	if n == 1 && l.compare(fresh[0].first, l.sep(nd.seps, i)) == 0 {
		return nd.with(i, fresh[0].leaf, fresh[0].node), nil, added
	}
	list := t.kidsOf(make([]kid[K], 0, nodeMax+1), nd)
	nodes := t.nodesOf(slices.Replace(list, i, i+1, fresh[:n]...))
	if len(nodes) == 2 {
		right = nodes[1].node
	}
	return nodes[0].node, right, added
}

// setLeaf returns leaf with key set, as one leaf or split in two, and how many keys were added.
func (t tree[K, L]) setLeaf(leaf []byte, key K, v Value) (left, right []byte, added int) {
	var l L
	i, found := l.search(leaf, key)
	if found {
		return l.with(leaf, i, v), nil, 0
	}
	n := l.size(leaf)
	runs := []run{{leaf, 0, i}, {l.one(key, v), 0, 1}, {leaf, i, n}}
	if n < leafMax {
		return l.pack(runs), nil, 1
	}
	half := piece(n+1, leafMax, leafMin)
	return l.pack(part(runs, 0, half)), l.pack(part(runs, half, n+1)), 1
}

// deleteRange drops the keys in [low, high), or from low on if open.
func (t tree[K, L]) deleteRange(low, high K, open bool) tree[K, L] {
	var l L
	if t.root == nil || !open && l.compare(low, high) >= 0 {
		return t
	}
	root, dropped := t.cutNode(t.root, cut[K]{low: low, high: high, open: open})
	for root != nil && len(root.kids) == 1 {
		root = root.kids[0]
	}
	return tree[K, L]{root: root, n: t.n - dropped}
}

// cut is what deleteRange drops.
type cut[K any] struct {
	low, high K
	open      bool
}

// cutNode returns nd without the keys of c, nil if none is left, and how many were dropped. The node may be left with
// fewer than nodeMin children; the caller, who knows its neighbours, balances it.
func (t tree[K, L]) cutNode(nd *node, c cut[K]) (*node, int) {
	var l L
	i, j := l.child(nd.seps, c.low), nd.width()-1
	if !c.open {
		j = l.child(nd.seps, c.high)
	}
	var left []kid[K]
	dropped := 0
	for _, at := range []int{i, j} {
		k, d := t.cutChild(nd, at, c)
		dropped += d
		if k.leaf != nil || k.node != nil {
			left = append(left, k)
		}
		if i == j {
			break
		}
	}
	for at := i + 1; at < j; at++ {
		dropped += t.countChild(nd, at)
	}
	if dropped == 0 {
		return nd, 0
	}
	if i == j && len(left) == 1 && (!t.small(left[0]) || nd.width() == 1) &&
		l.compare(left[0].first, l.sep(nd.seps, i)) == 0 {
		return nd.with(i, left[0].leaf, left[0].node), dropped
	}
	list := t.kidsOf(make([]kid[K], 0, nodeMax+1), nd)
	list = t.balance(slices.Replace(list, i, j+1, left...), i, i+len(left))
	if len(list) == 0 {
		return nil, dropped
	}
	return t.nodeOf(list), dropped
}

// cutChild is cutNode for child i of nd. It returns the zero kid if nothing is left.
func (t tree[K, L]) cutChild(nd *node, i int, c cut[K]) (kid[K], int) {
	var l L
	if nd.kids != nil {
		k, dropped := t.cutNode(nd.kids[i], c)
		if k == nil {
			return kid[K]{}, dropped
		}
		return t.kidOf(k), dropped
	}
	leaf := nd.leaves[i]
	n := l.size(leaf)
	from, _ := l.search(leaf, c.low)
	to := n
	if !c.open {
		to, _ = l.search(leaf, c.high)
	}
	switch {
	case from == to:
		return t.kidOfLeaf(leaf), 0
	case to-from == n:
		return kid[K]{}, n
	}
	return t.kidOfLeaf(l.pack([]run{{leaf, 0, from}, {leaf, to, n}})), to - from
}

// balance joins each child in list[from:to] that is too small with a neighbour. What is left too small has no neighbour.
func (t tree[K, L]) balance(list []kid[K], from, to int) []kid[K] {
	for i := from; i < to && len(list) > 1; {
		if !t.small(list[i]) {
			i++
			continue
		}
		i = max(i-1, 0)
		joined := t.join(list[i], list[i+1])
		list = slices.Replace(list, i, i+2, joined...)
		to = min(max(to, i+2)+len(joined)-2, len(list))
	}
	return list
}

// join makes one child of two neighbours, or two of about equal size if they are too many for one.
func (t tree[K, L]) join(a, b kid[K]) []kid[K] {
	var l L
	if a.node != nil {
		list := t.kidsOf(make([]kid[K], 0, 2*nodeMax), a.node)
		seam := len(list)
		return t.nodesOf(t.balance(t.kidsOf(list, b.node), seam-1, seam+1))
	}
	na, nb := l.size(a.leaf), l.size(b.leaf)
	runs := []run{{a.leaf, 0, na}, {b.leaf, 0, nb}}
	n := piece(na+nb, leafMax, leafMin)
	joined := []kid[K]{t.kidOfLeaf(l.pack(part(runs, 0, n)))}
	if n < na+nb {
		joined = append(joined, t.kidOfLeaf(l.pack(part(runs, n, na+nb))))
	}
	return joined
}

func (t tree[K, L]) small(k kid[K]) bool {
	var l L
	if k.node != nil {
		return k.node.width() < nodeMin
	}
	return l.size(k.leaf) < leafMin
}

// countChild returns how many entries child i of nd holds.
func (t tree[K, L]) countChild(nd *node, i int) int {
	var l L
	if nd.leaves != nil {
		return l.size(nd.leaves[i])
	}
	n := 0
	for at := range nd.kids[i].width() {
		n += t.countChild(nd.kids[i], at)
	}
	return n
}

func (t tree[K, L]) kidOf(nd *node) kid[K] {
	var l L
	return kid[K]{first: l.sep(nd.seps, 0), node: nd}
}

func (t tree[K, L]) kidOfLeaf(leaf []byte) kid[K] {
	var l L
	first, _ := l.entry(leaf, 0)
	return kid[K]{first: first, leaf: leaf}
}

// with returns a copy of nd whose child i, which keeps its first key, is replaced.
func (nd *node) with(i int, leaf []byte, child *node) *node {
	c := &node{seps: nd.seps}
	if nd.kids != nil {
		c.kids = make([]*node, len(nd.kids))
		copy(c.kids, nd.kids)
		c.kids[i] = child
		return c
	}
	c.leaves = make([][]byte, len(nd.leaves))
	copy(c.leaves, nd.leaves)
	c.leaves[i] = leaf
	return c
}

// part returns the entries [from, to) of the runs taken as one sequence.
func part(runs []run, from, to int) []run {
	var cutting []run
	at := 0
	for _, r := range runs {
		n := r.to - r.from
		low, high := max(from-at, 0), min(to-at, n)
		if low < high {
			cutting = append(cutting, run{r.leaf, r.from + low, r.from + high})
		}
		at += n
	}
	return cutting
}

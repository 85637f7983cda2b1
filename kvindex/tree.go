package kvindex

// tree is the space of the device tier. It also knows which blocks follow which, because there only blocks that are reached from
// the start of a prompt count: the set of a node lists the ranks that hold its block and all blocks before it. So sets shrink along
// a prompt, and a look-up may skip and search instead of reading every block.
//
// That has to be kept true when a rank loses a block in the middle, or gets one back: the blocks behind it are stranded, which
// means that the rank holds them and is not in their sets. Engines evict from the end, so that this is rare.
//
// A node's child field is 0, or the only child, or, with [manyChildren], the first cell of a list of them. A node that nobody
// holds stays as long as it has children, and is detached from its parent.
type tree struct {
	*space
	cells      []cell // from 1 on
	vacantCell uint32
	cellOf     names // by child

	stranded map[holding]struct{}
	// strandedAt counts the ranks that are stranded at a node.
	strandedAt map[uint32]int32
	stack      []uint32
}

const manyChildren = 1 << 31

// cell is one of several children of a node.
type cell struct{ child, next, previous uint32 }

func newTree(keepLocals bool) *tree { return &tree{space: newSpace(keepLocals)} }

// link makes a node the child of another.
func (t *tree) link(parent, child uint32) {
	p := t.node(parent)
	switch {
	case p.child == 0:
		p.child = child
	case p.child&manyChildren == 0:
		p.child = t.addCell(child, t.addCell(p.child, 0)) | manyChildren
	default:
		p.child = t.addCell(child, p.child&^manyChildren) | manyChildren
	}
}

func (t *tree) addCell(child, next uint32) uint32 {
	at := t.vacantCell
	if at != 0 {
		t.vacantCell = t.cells[at].next
	} else {
		if len(t.cells) == 0 {
			t.cells = append(t.cells, cell{})
		}
		at = uint32(len(t.cells))
		t.cells = append(t.cells, cell{})
	}
	t.cells[at] = cell{child: child, next: next}
	if next != 0 {
		t.cells[next].previous = at
	}
	t.cellOf.insert(uint64(child), at)
	return at
}

// unlink parts a child from its parent; two that are left over become one child and no cells again.
func (t *tree) unlink(parent, child uint32) {
	p := t.node(parent)
	if p.child == child {
		p.child = 0
		return
	}
	first := t.dropCell(p.child&^manyChildren, child)
	if last := t.cells[first]; last.next == 0 {
		t.dropCell(first, last.child)
		p.child = last.child
		return
	}
	p.child = first | manyChildren
}

// dropCell removes a child's cell from a list and returns the first of the rest.
func (t *tree) dropCell(first, child uint32) uint32 {
	at, _ := t.cellOf.remove(uint64(child))
	c := t.cells[at]
	if c.next != 0 {
		t.cells[c.next].previous = c.previous
	}
	if c.previous != 0 {
		t.cells[c.previous].next = c.next
	} else {
		first = c.next
	}
	t.cells[at] = cell{next: t.vacantCell}
	t.vacantCell = at
	if t.cellOf.count == 0 {
		t.cells, t.vacantCell = nil, 0
	}
	return first
}

// pushChildren puts the children of a node on the stack.
func (t *tree) pushChildren(n *node) {
	if n.child&manyChildren == 0 {
		if n.child != 0 {
			t.stack = append(t.stack, n.child)
		}
		return
	}
	for at := n.child &^ manyChildren; at != 0; at = t.cells[at].next {
		t.stack = append(t.stack, t.cells[at].child)
	}
}

// hold makes the rank a holder of the node, and of what is stranded behind it. It holds all that is before.
func (t *tree) hold(id uint32, n *node, rank *rank) {
	t.add(n, rank.id)
	if rank.stranded == 0 || n.child == 0 {
		return
	}
	t.stack = t.stack[:0]
	t.pushChildren(n)
	for len(t.stack) > 0 {
		id := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		if t.rescue(id, rank) {
			n := t.node(id)
			t.add(n, rank.id)
			t.pushChildren(n)
		}
	}
}

// lose makes the rank no holder of the node, and strands what it holds behind it.
func (t *tree) lose(n *node, rank *rank) {
	t.drop(n, rank.id)
	if n.child == 0 {
		return
	}
	t.stack = t.stack[:0]
	t.pushChildren(n)
	for len(t.stack) > 0 {
		id := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		if n := t.node(id); t.has(n, rank.id) {
			t.drop(n, rank.id)
			t.strand(id, rank)
			t.pushChildren(n)
		}
	}
}

// strand notes that the rank holds a block, but not all before it.
func (t *tree) strand(id uint32, rank *rank) {
	if t.stranded == nil {
		t.stranded, t.strandedAt = make(map[holding]struct{}), make(map[uint32]int32)
	}
	t.stranded[holding{id, int32(rank.id)}] = struct{}{}
	t.strandedAt[id]++
	rank.stranded++
}

// rescue takes such a note back, if there is one.
func (t *tree) rescue(id uint32, rank *rank) bool {
	h := holding{id, int32(rank.id)}
	if _, ok := t.stranded[h]; !ok {
		return false
	}
	delete(t.stranded, h)
	if t.strandedAt[id]--; t.strandedAt[id] == 0 {
		delete(t.strandedAt, id)
	}
	if rank.stranded--; len(t.stranded) == 0 {
		t.stranded, t.strandedAt = nil, nil
	}
	return true
}

func (t *tree) isStranded(id uint32, rank *rank) bool {
	_, ok := t.stranded[holding{id, int32(rank.id)}]
	return ok
}

// unheld reports whether no rank holds the node's block.
func (t *tree) unheld(id uint32, n *node) bool {
	return n.set.Load() == 0 && (t.strandedAt == nil || t.strandedAt[id] == 0)
}

// vacate gives up a node that nobody holds: all of it, or its place behind its parent if it has children.
func (t *tree) vacate(id uint32, n *node) {
	parent := n.parent
	if parent != 0 {
		t.unlink(parent, id)
		n.parent = 0
	}
	if n.child == 0 {
		t.destroy(id)
	}
	if parent != 0 {
		if p := t.node(parent); p.child == 0 && t.unheld(parent, p) {
			t.destroy(parent)
		}
	}
}

// compact moves all nodes together and returns their new numbers by the old ones.
func (t *tree) compact() (moved []uint32) {
	moved = t.space.compact()
	t.cells, t.vacantCell, t.cellOf = nil, 0, names{}
	for id := uint32(1); id < t.next; id++ {
		n := t.node(id)
		n.parent, n.child = moved[n.parent], 0
	}
	for id := uint32(1); id < t.next; id++ {
		if parent := t.node(id).parent; parent != 0 {
			t.link(parent, id)
		}
	}
	stranded, at := t.stranded, t.strandedAt
	t.stranded, t.strandedAt, t.stack = nil, nil, nil
	if stranded != nil {
		t.stranded, t.strandedAt = make(map[holding]struct{}), make(map[uint32]int32)
		for h := range stranded {
			t.stranded[holding{moved[h.node], h.rank}] = struct{}{}
		}
		for id, count := range at {
			t.strandedAt[moved[id]] = count
		}
	}
	return moved
}

func (t *tree) bytes() int {
	return t.space.bytes() + cap(t.cells)*12 + t.cellOf.bytes() + cap(t.stack)*4 + (len(t.stranded)+len(t.strandedAt)+len(t.doubled))*24
}

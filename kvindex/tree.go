package kvindex

// tree is the space of the device tier. It knows which blocks follow which: prompts are paths in it.
//
// Only blocks that are reached from the start of a prompt count on a device, so the set of a node lists the ranks that hold its
// block and all blocks before it. Sets only shrink along a path, and a look-up may leap ahead instead of reading every node. That
// has to be kept true when a rank loses a block in the middle, or gets one back: the blocks behind it are stranded, which means
// that the rank holds them and is not in their sets. Engines evict from the end, so that this is rare.
//
// A node's child field is 0; or the number of its only child; or, with nextChild, tells that this is the next node; or is, with the
// highest bit, the number of one of several children. The table has the children of nodes with several, and of the root, which has
// number 0. So a chain of blocks, as most are, costs no more than its nodes. Those that are stored together lie side by side in the
// order of the prompt, as far as there is room. The parent field is likewise the number of the parent, 0 for the root, or tells with
// previousParent that it is the node before, or with inCell where that is told.
//
// A node that nobody holds any more stays as long as it has children, so that they can be found again, but it is detached from its
// parent and listed among the detached.
type tree struct {
	*space
	siblings siblings
	detached names // by sequence hash

	stranded map[holding]struct{}
	// strandedAt counts the ranks that are stranded at a node.
	strandedAt map[uint32]int32
	stack      []uint32
	pieces     []point  // of what an event stores: where each begins, in the event and in the tree
	sequences  []uint64 // of nodes that are about to be made
}

func newTree(keepLocals bool) *tree { return &tree{space: newSpace(keepLocals)} }

// follow returns the node behind another that has the sequence hash, or 0 and nil. The root has no node: p is nil.
func (t *tree) follow(parent uint32, p *node, sequence uint64) (uint32, *node) {
	id := uint32(0)
	if p == nil {
		id = t.find(sequence)
	} else if id = p.child.Load(); id != 0 {
		if id&severalChildren != 0 {
			id = t.find(sequence)
		} else if id = onlyChild(parent, id); t.node(id).sequence.Load() == sequence {
			return id, t.node(id)
		} else {
			id = 0
		}
	}
	if id == 0 && t.detached.count > 0 && p != nil {
		if id, _ = t.detached.find(sequence); id != 0 {
			t.detached.remove(sequence)
			t.link(parent, p, id)
		}
	}
	if id == 0 {
		return 0, nil
	}
	return id, t.node(id)
}

// grow makes a node behind another. So many are about to be made, it included.
func (t *tree) grow(parent uint32, p *node, sequence uint64, more int) (uint32, *node) {
	id, n := t.create(sequence, parent, more)
	switch {
	case p == nil:
		n.parent = 0
		t.enlist(id)
	case p.child.Load() == 0:
		n.parent = p.below(parent, id)
		p.child.Store(only(parent, id, t.end-1))
	default:
		t.link(parent, p, id)
	}
	return id, n
}

// hold makes the rank a holder of the node, and of what is stranded behind it. It holds all that is before.
func (t *tree) hold(id uint32, n *node, rank *rank) {
	t.add(n, rank.id)
	if rank.stranded == 0 {
		return
	}
	t.stack = t.stack[:0]
	t.pushChildren(id, n)
	for len(t.stack) > 0 {
		id := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		if t.rescue(id, rank) {
			n := t.node(id)
			t.add(n, rank.id)
			t.pushChildren(id, n)
		}
	}
}

// lose makes the rank no holder of the node, and strands what it holds behind it.
func (t *tree) lose(id uint32, n *node, rank *rank) {
	t.drop(n, rank.id)
	if n.child.Load() == 0 {
		return
	}
	t.stack = t.stack[:0]
	t.pushChildren(id, n)
	for len(t.stack) > 0 {
		id := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		if n := t.node(id); t.has(n, rank.id) {
			t.drop(n, rank.id)
			t.strand(id, rank)
			t.pushChildren(id, n)
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
	parent := t.above(id, n)
	switch {
	case n.child.Load() == 0:
		t.uproot(id, n, parent)
	case parent != 0:
		t.unlink(parent, id)
		n.parent = detachedParent
		t.detached.insert(n.sequence.Load(), id)
	default:
		return // the root forgets nobody
	}
	if parent != 0 && parent != detachedParent {
		if p := t.node(parent); p.child.Load() == 0 && t.unheld(parent, p) {
			t.uproot(parent, p, t.above(parent, p))
		}
	}
}

// uproot destroys a node without children.
func (t *tree) uproot(id uint32, n *node, parent uint32) {
	switch parent {
	case 0:
		t.delist(id)
	case detachedParent:
		t.detached.remove(n.sequence.Load())
	default:
		t.unlink(parent, id)
	}
	t.destroy(id)
}

// compact moves all nodes together and returns their new numbers by the old ones.
func (t *tree) compact() (moved []uint32) {
	moved = t.space.compact()
	cells := t.siblings.cells
	t.siblings, t.stack = siblings{}, nil
	end := uint32(t.live) + 1
	for id := uint32(1); id < end; id++ {
		t.node(id).child.Store(0)
	}
	for id := uint32(1); id < end; id++ {
		parent := t.node(id).parent
		switch {
		case parent&previousParent != 0:
			parent = id - 1 // nodes that were side by side still are
		case parent == detachedParent:
		case parent&inCell != 0:
			parent = moved[cells[parent&^inCell].parent]
		default:
			parent = moved[parent]
		}
		switch parent {
		case 0:
			t.enlist(id)
		case detachedParent:
		default:
			t.link(parent, t.node(parent), id)
		}
	}
	for id := end - 1; id > 0; id-- {
		if n := t.node(id); n.child.Load()&(severalChildren|nextChild) == nextChild {
			n.child.Store(only(id, id+1, t.runEnd(id+1)))
		}
	}
	t.detached.renumber(moved)
	stranded, at := t.stranded, t.strandedAt
	if stranded != nil {
		t.stranded, t.strandedAt = make(map[holding]struct{}), make(map[uint32]int32)
		for h := range stranded {
			t.stranded[holding{moved[h.node], h.rank}] = struct{}{}
		}
		for id, count := range at {
			t.strandedAt[moved[id]] = count
		}
	}
	t.building = false
	t.publish()
	return moved
}

func (t *tree) bytes() int {
	return t.space.bytes() + t.siblings.bytes() + t.detached.bytes() + cap(t.stack)*4 + cap(t.pieces)*16 + cap(t.sequences)*8 + (len(t.stranded)+len(t.strandedAt))*24
}

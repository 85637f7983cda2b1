package kvindex

// siblings are the children of nodes that have several. Each has a cell, to which its parent field leads, and the cells of one node's
// children are a ring. So any of them leads to all, and nothing has to be searched for: the node's child field has the number of one.
type siblings struct {
	cells  []cell // from 1 on
	vacant uint32 // first of the vacant cells, linked through next
	count  int    // of those in use
}

// cell is one of several children of a node, or a vacant one.
type cell struct{ child, parent, next, previous uint32 }

const (
	// severalChildren marks a child field of a node with several: the other bits are the number of one of them.
	severalChildren = 1 << 31
	// inCell marks a parent field that leads to a cell.
	inCell = 1 << 30
	// detachedParent is the parent of a node that is detached. No cell has the number 0.
	detachedParent = inCell
)

// join puts a child into a ring behind a cell, or into a ring of its own where that is 0, and returns the child's cell.
func (s *siblings) join(child, parent, behind uint32) uint32 {
	at := s.vacant
	if at != 0 {
		s.vacant = s.cells[at].next
	} else {
		if len(s.cells) == 0 {
			s.cells = append(s.cells, cell{})
		}
		at = uint32(len(s.cells))
		s.cells = append(s.cells, cell{})
	}
	s.count++
	c := &s.cells[at]
	*c = cell{child: child, parent: parent, next: at, previous: at}
	if behind != 0 {
		before := &s.cells[behind]
		c.next, c.previous = before.next, behind
		s.cells[c.next].previous, before.next = at, at
	}
	return at
}

// part takes a cell out of its ring and returns one that is still there; 0 if there is none.
func (s *siblings) part(at uint32) uint32 {
	c := s.cells[at]
	s.cells[c.previous].next, s.cells[c.next].previous = c.next, c.previous
	s.cells[at] = cell{next: s.vacant}
	s.vacant = at
	if s.count--; s.count == 0 {
		*s = siblings{}
	}
	if c.next == at {
		return 0
	}
	return c.next
}

// alone reports whether there is only one cell in the ring.
func (s *siblings) alone(at uint32) bool { return s.cells[at].next == at }

func (s *siblings) bytes() int { return cap(s.cells) * 16 }

// link makes a node the child of another. Look-ups must find the children that there were at any time meanwhile.
func (t *tree) link(parent uint32, p *node, id uint32) {
	n := t.node(id)
	first := p.child.Load()
	if first == 0 {
		n.parent = p.below(parent, id)
		putChild(p, only(parent, id, t.runEnd(id)))
		return
	}
	t.enlist(id)
	ring := uint32(0)
	if first&severalChildren != 0 {
		ring = t.node(first&^severalChildren).parent &^ inCell
	} else {
		if first&nextChild != 0 {
			t.endRun(parent)
		}
		first = onlyChild(parent, first)
		t.enlist(first)
		ring = t.siblings.join(first, parent, 0)
		t.node(first).parent = inCell | ring
	}
	n.parent = inCell | t.siblings.join(id, parent, ring)
	putChild(p, severalChildren|id)
}

// unlink parts a node from its parent. Of two children, the one that stays becomes the only one, without a cell.
func (t *tree) unlink(parent, id uint32) {
	p := t.node(parent)
	first := p.child.Load()
	if first&severalChildren == 0 {
		putChild(p, 0)
		return
	}
	ring := t.siblings.part(t.node(id).parent &^ inCell)
	other := t.siblings.cells[ring].child
	if t.siblings.alone(ring) {
		putChild(p, only(parent, other, t.runEnd(other)))
		t.siblings.part(ring)
		t.delist(other)
		t.node(other).parent = p.below(parent, other)
	} else if first == severalChildren|id {
		putChild(p, severalChildren|other)
	}
	t.delist(id)
}

// pushChildren puts the children of a node on the stack.
func (t *tree) pushChildren(id uint32, n *node) {
	first := n.child.Load()
	if first&severalChildren == 0 {
		if first != 0 {
			t.stack = append(t.stack, onlyChild(id, first))
		}
		return
	}
	start := t.node(first&^severalChildren).parent &^ inCell
	for at := start; ; {
		c := &t.siblings.cells[at]
		t.stack = append(t.stack, c.child)
		if at = c.next; at == start {
			return
		}
	}
}

// above returns the number of a node's parent: 0 for the root, detachedParent if the node is detached.
func (t *tree) above(id uint32, n *node) uint32 {
	if n.parent&previousParent != 0 {
		return id - 1
	}
	return t.siblings.parent(n.parent)
}

// parent returns the parent that a parent field tells, which is not the node before.
func (s *siblings) parent(field uint32) uint32 {
	if field&inCell != 0 && field != detachedParent {
		return s.cells[field&^inCell].parent
	}
	return field
}

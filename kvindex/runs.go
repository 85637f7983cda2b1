package kvindex

// A run is a chain of nodes side by side, each of which is the only child of the one before. Search leaps over runs. So that it knows
// how far, the child field of each node says how many follow. That is right where a search gets into a run, which is at its first node,
// or behind a node where prompts branched, and else a guess; and what has been taken from the end of a run is still counted, until a
// search finds out.
const (
	// nextChild marks a child field that has no number: the only child is the next node. The other bits tell how many follow each
	// other like this, or have a part of a shortcut.
	nextChild = 1 << 30
	// previousParent marks a parent field that has no number: the parent is the node before, and this was its only child when it was
	// made. The other bits tell how far back a search would get into the run if prompts had not branched since.
	previousParent = 1 << 31
	// runsTried is how many nodes where prompts branched are passed, at most, on the way from the first node of a run.
	runsTried = 16
)

// onlyChild returns the number of the only child of a node by its child field.
func onlyChild(id, field uint32) uint32 {
	if field&nextChild != 0 {
		return id + 1
	}
	return field
}

// only returns the child field of a node with one child, from which a run ends at another.
func only(id, child, end uint32) uint32 {
	if child == id+1 {
		return nextChild | (end - id)
	}
	return child
}

// runLength returns how many nodes follow a node with the child field, which has nextChild.
func runLength(field uint32) int {
	if field&shortcutMark != 0 {
		return 1 // or more
	}
	return int(field &^ nextChild)
}

// below returns the parent field of an only child.
func (n *node) below(id, child uint32) uint32 {
	switch {
	case child != id+1:
		return id
	case n.parent&previousParent != 0:
		return n.parent + 1
	}
	return previousParent | 1
}

// runEnd returns where the run ends that a node is in.
func (t *tree) runEnd(id uint32) uint32 {
	if field := t.node(id).child.Load(); field&(severalChildren|nextChild) == nextChild {
		return id + uint32(runLength(field))
	}
	return id
}

// endRun makes a node the end of its run, because prompts branch there.
func (t *tree) endRun(id uint32) {
	at := id
	if n := t.node(id); n.parent&previousParent != 0 {
		at -= n.parent &^ previousParent
	}
	for range runsTried {
		if at >= id {
			return
		}
		n := t.node(at)
		field := n.child.Load()
		if field&(severalChildren|nextChild) != nextChild {
			at++ // prompts branch there
			continue
		}
		end := at + uint32(runLength(field))
		if end >= id {
			n.child.CompareAndSwap(field, nextChild|(id-at))
			return
		}
		at = end
	}
}

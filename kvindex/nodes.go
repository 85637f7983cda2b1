package kvindex

import "unsafe"

// What engines store and remove are mostly pieces of prompts that nobody else holds. Their nodes lie side by side, so that they are made
// and given up in one go.

// linksStep leads from the links of a node in a run to those of the next: its parent field counts up, its child field down.
const linksStep = 1<<32 - 1

// writeNodesGeneric is described at writeNodes for amd64. It is what other processors have, and what races are looked for in.
func writeNodesGeneric(at *node, sequences *uint64, n int, set, first, second uint64) {
	nodes := unsafe.Slice(at, n)
	for i, sequence := range unsafe.Slice(sequences, n) {
		nodes[i].sequence.Store(sequence)
		nodes[i].parent = uint32(first >> 32)
		if i < n-1 {
			nodes[i].child.Store(uint32(first))
		} else {
			nodes[i].child.Store(0)
		}
		nodes[i].set.Store(set)
		first, second = second, second+linksStep
	}
}

func emptyNodesGeneric(last *node, n int) {
	nodes := unsafe.Slice((*node)(unsafe.Add(unsafe.Pointer(last), -(n-1)*int(unsafe.Sizeof(node{})))), n)
	for i := n - 1; i >= 0; i-- {
		nodes[i].set.Store(0)
		nodes[i].child.Store(0)
	}
}

// extend makes nodes for the blocks of an event from one on, which are new to the rank and follow a node without children, as many as lie
// side by side in a page and there is room for. The first one's name has been entered already, and its sequence hash is given. It
// returns how many these are, the last one's node, and its sequence hash. The rank holds what is before.
func (s *shard) extend(r *rank, event *Event, from, room int, number *uint32, parent uint32, p *node, sequence uint64) (int, uint32, uint64) {
	d := s.device
	blocks := event.Blocks[from:]
	if d.next == d.end {
		d.pick(parent, len(blocks))
	}
	first := d.next
	*number = first
	blocks = blocks[:min(len(blocks), room, int(d.end-first), int(pageNodes-first%pageNodes))]
	d.sequences = append(d.sequences[:0], sequence)
	for i := 1; i < len(blocks); i++ {
		number := r.blocks.enter(blocks[i].Hash)
		if *number != 0 {
			break
		}
		*number = first + uint32(i)
		sequence = chainHasher.Next(sequence, blocks[i].Local)
		d.sequences = append(d.sequences, sequence)
	}
	n := len(d.sequences)
	if first != parent+1 || len(d.pieces) == 0 {
		d.begins(parent, first, from)
	}
	at := node{parent: p.below(parent, first)}
	links := uint64(at.parent)<<32 | uint64(only(first, first+1, d.end-1))
	second := uint64(at.below(first, first+1))<<32 | uint64(only(first+1, first+2, d.end-1))
	writeNodes(d.node(first), &d.sequences[0], n, uint64(d.sets.with(0, r.id)), links, second)
	// Only now is it to be found.
	putChild(p, only(parent, first, d.end-1))
	d.next += uint32(n)
	d.live += n
	return n, first + uint32(n) - 1, sequence
}

// shed gives up nodes of which the rank is to lose the blocks and that nobody else holds: the first of those that are leaving, as far as
// each lies behind the next one and has no other children than the one before. It leaves the last of them, without children, to be
// released, and returns how many it has given up; 0 if there is nothing to do at once.
func (s *shard) shed(r *rank, leaving []uint32) int {
	d := s.device
	if d.doubled != nil || d.strandedAt != nil || len(leaving) < 2 {
		return 0
	}
	sole := uint64(d.sets.with(0, r.id))
	last := leaving[0]
	n := d.node(last)
	if n.child.Load() != 0 || n.set.Load() != sole {
		return 0
	}
	at := n
	count := 0
	most := min(len(leaving)-1, int(last%pageNodes))
	for count < most && leaving[count+1] == last-uint32(count)-1 && at.parent&previousParent != 0 {
		before := d.node(last - uint32(count) - 1)
		if before.set.Load() != sole || before.child.Load()&(severalChildren|nextChild) != nextChild {
			break
		}
		at = before
		count++
	}
	if count == 0 {
		return 0
	}
	emptyNodes(n, count)
	putChild(at, 0)
	d.live -= count
	d.vacant.giveAll(last-uint32(count)+1, count)
	return count
}

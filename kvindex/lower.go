package kvindex

import "fmt"

// offload is what one rank holds in lower tiers. There a stored event may name a parent that the rank does not hold, or not yet:
// its blocks wait until the parent's place in a prompt is known, from whatever tier.
type offload struct {
	names   [Tiers]names // numbers of records, by the engine's hash
	records []record     // from 1 on
	vacant  uint32       // first of the vacant records, linked through next
	waiting names        // the first record that waits, by the parent's hash
}

// record is one block of a rank in a lower tier.
type record struct {
	hash, parent, local uint64
	node                uint32 // 0 while it waits
	next, previous      uint32 // of those that wait for the same parent
	tier                Tier
	root                bool // it starts a prompt, and has no parent
}

// found is a block whose place in a prompt has become known.
type found struct{ hash, sequence uint64 }

func (o *offload) add(r record) uint32 {
	at := o.vacant
	if at != 0 {
		o.vacant = o.records[at].next
	} else {
		if len(o.records) == 0 {
			o.records = append(o.records, record{})
		}
		at = uint32(len(o.records))
		o.records = append(o.records, record{})
	}
	o.records[at] = r
	o.names[r.tier].insert(r.hash, at)
	return at
}

// wait puts a record among those that wait for its parent.
func (o *offload) wait(at uint32) {
	r := &o.records[at]
	if first, ok := o.waiting.remove(r.parent); ok {
		r.next = first
		o.records[first].previous = at
	}
	o.waiting.insert(r.parent, at)
}

// forget drops a record that does not wait.
func (o *offload) forget(at uint32) {
	o.names[o.records[at].tier].remove(o.records[at].hash)
	o.records[at] = record{next: o.vacant}
	o.vacant = at
}

// giveUp takes a record out of those that wait for its parent.
func (o *offload) giveUp(at uint32) {
	r := &o.records[at]
	if r.next != 0 {
		o.records[r.next].previous = r.previous
	}
	if r.previous != 0 {
		o.records[r.previous].next = r.next
	} else {
		o.waiting.remove(r.parent)
		if r.next != 0 {
			o.waiting.insert(r.parent, r.next)
		}
	}
	r.next, r.previous = 0, 0
}

// count is the number of blocks.
func (o *offload) count() int {
	return o.names[HostPinned].count + o.names[Disk].count + o.names[External].count
}

func (o *offload) bytes() int {
	bytes := cap(o.records)*48 + o.waiting.bytes()
	for tier := range o.names {
		bytes += o.names[tier].bytes()
	}
	return bytes
}

// place returns the sequence hash of a block that the rank holds in any tier, if that is known.
func (s *shard) place(r *rank, hash uint64) (sequence uint64, ok bool) {
	if id, ok := r.blocks.find(hash); ok {
		return s.device.node(id).sequence.Load(), true
	}
	for tier := HostPinned; tier < Tiers; tier++ {
		if at, ok := r.lower.names[tier].find(hash); ok {
			if id := r.lower.records[at].node; id != 0 {
				return s.lower[tier].node(id).sequence.Load(), true
			}
		}
	}
	return 0, false
}

// storeLower adds blocks in a lower tier.
func (s *shard) storeLower(r *rank, event *Event) error {
	if s.lower[event.Tier] == nil {
		s.lower[event.Tier] = newSpace(false)
		s.publish(s.readers.Load().names)
	}
	if r.lower == nil {
		r.lower = &offload{}
	}
	o := r.lower
	var sequence uint64
	root, known, parent := !event.HasParent, false, event.Parent
	room := s.budget.take(len(event.Blocks))
	defer func() { s.budget.give(room) }()
	for i, block := range event.Blocks {
		if at, ok := o.names[event.Tier].find(block.Hash); ok {
			id := o.records[at].node
			if known = id != 0; known {
				sequence = s.lower[event.Tier].node(id).sequence.Load()
			}
			root, parent = false, block.Hash
			continue
		}
		if room == 0 {
			return s.refuse(len(event.Blocks)-i, len(event.Blocks))
		}
		if root {
			sequence, known = block.Local, true
		} else {
			if !known {
				sequence, known = s.place(r, parent)
			}
			sequence = chainHasher.Next(sequence, block.Local)
		}
		if s.lower[event.Tier].full(1) {
			return s.refuse(len(event.Blocks)-i, len(event.Blocks))
		}
		var id uint32
		if known {
			if id = s.holdLower(r, event.Tier, block.Hash, sequence); id == 0 {
				return nil
			}
		}
		room--
		at := o.add(record{hash: block.Hash, parent: parent, local: block.Local, node: id, tier: event.Tier, root: root})
		if known {
			s.settle(r, block.Hash, sequence)
		} else {
			o.wait(at)
		}
		root, parent = false, block.Hash
	}
	return nil
}

// holdLower makes the rank a holder of a block in a lower tier and returns its node; 0 if another name shuts it out.
func (s *shard) holdLower(r *rank, tier Tier, hash, sequence uint64) uint32 {
	space := s.lower[tier]
	id := space.find(sequence)
	if id == 0 {
		var n *node
		id, n = space.create(sequence, space.vacant.at-1, 1)
		n.parent = uint32(hash >> 32)
		n.child.Store(uint32(hash))
		space.enlist(id)
	}
	n := space.node(id)
	if s.options.FirstNameWins && uint64(n.parent)<<32|uint64(n.child.Load()) != hash {
		return 0
	}
	if space.has(n, r.id) {
		space.double(holding{id, int32(r.id)}, 1)
	} else {
		space.add(n, r.id)
	}
	return id
}

// settle finds the places of blocks that wait for one whose own has become known, and of those behind them.
func (s *shard) settle(r *rank, hash, sequence uint64) {
	o := r.lower
	if o.waiting.count == 0 {
		return
	}
	s.pending = append(s.pending[:0], found{hash, sequence})
	for len(s.pending) > 0 {
		parent := s.pending[len(s.pending)-1]
		s.pending = s.pending[:len(s.pending)-1]
		at, _ := o.waiting.remove(parent.hash)
		for at != 0 {
			waiting := &o.records[at]
			next := waiting.next
			waiting.next, waiting.previous = 0, 0
			child := found{waiting.hash, chainHasher.Next(parent.sequence, waiting.local)}
			if waiting.node = s.holdLower(r, waiting.tier, waiting.hash, child.sequence); waiting.node == 0 {
				o.forget(at)
				s.budget.give(1)
			} else {
				s.pending = append(s.pending, child)
			}
			at = next
		}
	}
}

// removeLower drops blocks from a lower tier.
func (s *shard) removeLower(r *rank, event *Event) (err error) {
	for _, hash := range event.Hashes {
		var at uint32
		ok := r.lower != nil
		if ok {
			at, ok = r.lower.names[event.Tier].find(hash)
		}
		if !ok {
			err = fmt.Errorf("block %d: %w", hash, ErrUnknownBlock)
			if s.options.FirstNameWins {
				break
			}
			continue
		}
		if id := r.lower.records[at].node; id != 0 {
			s.releaseLower(r, event.Tier, id)
		} else {
			r.lower.giveUp(at)
		}
		r.lower.forget(at)
		s.budget.give(1)
	}
	if r.lower != nil && r.lower.count() == 0 {
		r.lower = nil
	}
	s.tidyLower()
	return err
}

func (s *shard) releaseLower(r *rank, tier Tier, id uint32) {
	space := s.lower[tier]
	if space.single(holding{id, int32(r.id)}) {
		return
	}
	n := space.node(id)
	if space.drop(n, r.id); n.set.Load() == 0 {
		space.delist(id)
		space.destroy(id)
	}
}

// clearLower drops all that a rank holds in lower tiers.
func (s *shard) clearLower(r *rank) {
	if r.lower == nil {
		return
	}
	for tier := HostPinned; tier < Tiers; tier++ {
		for _, at := range r.lower.names[tier].all {
			if id := r.lower.records[at].node; id != 0 {
				s.releaseLower(r, tier, id)
			}
		}
	}
	s.budget.give(r.lower.count())
	r.lower = nil
}

// tidyLower gives back memory of lower tiers when most of it is vacant.
func (s *shard) tidyLower() {
	for tier := HostPinned; tier < Tiers; tier++ {
		space := s.lower[tier]
		if space == nil || !space.sparse() {
			continue
		}
		if space.live == 0 {
			space.reset()
			continue
		}
		moved := space.compact()
		for id := uint32(1); id <= uint32(space.live); id++ {
			space.enlist(id)
		}
		space.building = false
		space.publish()
		for _, r := range s.ranks {
			if r == nil || r.lower == nil {
				continue
			}
			for _, at := range r.lower.names[tier].all {
				r.lower.records[at].node = moved[r.lower.records[at].node]
			}
		}
	}
}

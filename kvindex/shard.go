package kvindex

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"signalbox/internal/prefetch"
	"signalbox/kvhash"
)

// chainHasher computes public sequence hashes; block size and scope do not enter them.
var chainHasher, _ = kvhash.New(kvhash.Scope{BlockSize: 1})

// shard is the index of some of the workers. Those who change it hold the mutex; look-ups do not.
type shard struct {
	mutex   sync.Mutex
	options Options
	budget  *budget
	refused uint64
	known   uint64 // stored events without anything new

	ranks    []*rank // by number; nil where vacant
	numberOf map[Rank]int
	device   *tree
	lower    [Tiers]*space // nil until there are blocks in the tier
	pending  []found
	leaving  []uint32

	readers atomic.Pointer[readers]
}

// readers is what look-ups start from. It is replaced when one of its parts is.
type readers struct {
	names  []Rank // by number
	device *space
	lower  [Tiers]*space
}

// rank is what one rank holds.
type rank struct {
	name     Rank
	id       int
	blocks   names    // on the device: numbers of nodes
	lower    *offload // nil until there are blocks in lower tiers
	stranded int
}

// budget is how many more blocks an index may hold.
type budget struct {
	limited bool
	room    atomic.Int64
}

// take takes up to n blocks' room and returns how much there was.
func (b *budget) take(n int) int {
	if !b.limited {
		return n
	}
	room := b.room.Add(int64(-n)) + int64(n)
	granted := min(max(int(room), 0), n)
	b.room.Add(int64(n - granted))
	return granted
}

func (b *budget) give(n int) {
	if b.limited {
		b.room.Add(int64(n))
	}
}

func newShard(options Options, budget *budget) *shard {
	s := &shard{options: options, budget: budget, numberOf: make(map[Rank]int), device: newTree(options.Replay)}
	s.publish(nil)
	return s
}

func (s *shard) publish(names []Rank) {
	s.readers.Store(&readers{names: names, device: s.device.space, lower: s.lower})
}

// rank returns a rank that is known, or nil.
func (s *shard) rank(name Rank) *rank {
	if id, ok := s.numberOf[name]; ok {
		return s.ranks[id]
	}
	return nil
}

// join makes a rank known.
func (s *shard) join(name Rank) (*rank, error) {
	id := len(s.ranks)
	for i, r := range s.ranks {
		if r == nil {
			id = i
			break
		}
	}
	if id == maxRanks {
		return nil, fmt.Errorf("rank %d of worker %d: %w of %d ranks", name.DPRank, name.WorkerID, ErrFull, maxRanks)
	}
	r := &rank{name: name, id: id}
	// Look-ups that are under way keep the old list, and start anew when they find that it is no longer the present one.
	labels := make([]Rank, max(len(s.ranks), id+1))
	for i, other := range s.ranks {
		if other != nil {
			labels[i] = other.name
		}
	}
	labels[id] = name
	if id == len(s.ranks) {
		s.ranks = append(s.ranks, r)
	}
	s.ranks[id] = r
	s.numberOf[name] = id
	s.publish(labels)
	return r, nil
}

func (s *shard) apply(event *Event) error {
	r := s.rank(event.Rank)
	switch event.Op {
	case Stored:
		if r == nil {
			var err error
			if r, err = s.join(event.Rank); err != nil {
				return err
			}
		}
		if event.HasParent {
			for i := range event.Blocks {
				if event.Blocks[i].Hash == event.Parent {
					return fmt.Errorf("block %d: %w", event.Parent, ErrSelfParent)
				}
			}
		}
		if event.Tier != Device {
			return s.storeLower(r, event)
		}
		return s.store(r, event)
	case Removed:
		if r == nil {
			if len(event.Hashes) > 0 {
				return fmt.Errorf("block %d: %w", event.Hashes[0], ErrUnknownBlock)
			}
			return nil
		}
		if event.Tier != Device {
			return s.removeLower(r, event)
		}
		return s.remove(r, event)
	case Cleared:
		if r != nil {
			s.clear(r)
		}
		return nil
	}
	return fmt.Errorf("operation %d: %w", event.Op, ErrInvalidEvent)
}

// store adds blocks on the device.
func (s *shard) store(r *rank, event *Event) error {
	d := s.device
	var parent uint32
	var p *node
	var sequence uint64
	reached := true
	if event.HasParent {
		var ok bool
		if parent, ok = r.blocks.find(event.Parent); !ok {
			return fmt.Errorf("parent %d: %w", event.Parent, ErrUnknownParent)
		}
		p = d.node(parent)
		sequence, reached = p.sequence.Load(), d.has(p, r.id)
	}
	if d.full(len(event.Blocks)) {
		return s.refuse(len(event.Blocks), len(event.Blocks))
	}
	room := s.budget.take(len(event.Blocks))
	r.blocks.reserve(room)
	d.pieces = d.pieces[:0]
	for i := range event.Blocks {
		r.blocks.warm(event.Blocks[i].Hash)
	}
	plain := r.lower == nil && !d.keepLocals
	for i := 0; i < len(event.Blocks); i++ {
		block := &event.Blocks[i]
		if room == 0 {
			// Only what is there already can follow.
			id, ok := r.blocks.find(block.Hash)
			if !ok {
				d.settle()
				return s.refuse(len(event.Blocks)-i, len(event.Blocks))
			}
			parent, p = id, d.node(id)
			sequence, reached = p.sequence.Load(), d.has(p, r.id)
			continue
		}
		number := r.blocks.enter(block.Hash)
		if id := *number; id != 0 {
			parent, p = id, d.node(id)
			sequence, reached = p.sequence.Load(), d.has(p, r.id)
			continue
		}
		if p == nil {
			sequence = block.Local
		} else {
			sequence = chainHasher.Next(sequence, block.Local)
		}
		fresh := p != nil && p.child.Load() == 0 && d.detached.count == 0
		if fresh && plain && reached {
			var made int
			made, parent, sequence = s.extend(r, event, i, room, number, parent, p, sequence)
			p = d.node(parent)
			room -= made
			i += made - 1
			continue
		}
		room--
		var id uint32
		var n *node
		if !fresh {
			id, n = d.follow(parent, p, sequence)
		}
		if id != 0 {
			reached = s.share(r, id, n, reached)
		} else {
			id, n = d.grow(parent, p, sequence, len(event.Blocks)-i)
			if id != parent+1 || len(d.pieces) == 0 {
				d.begins(parent, id, i)
			}
			if d.keepLocals {
				*d.local(id) = block.Local
			}
			if reached {
				d.add(n, r.id)
			} else {
				d.strand(id, r)
			}
		}
		*number = id
		if r.lower != nil {
			s.settle(r, block.Hash, sequence)
		}
		parent, p = id, n
	}
	d.settle()
	d.shorten(0, len(d.pieces)-1)
	if room > 0 && room == len(event.Blocks) {
		s.known++
	}
	s.budget.give(room)
	return nil
}

// share makes a rank a holder of a node that is there already, and reports whether the rank holds all before it, too.
func (s *shard) share(r *rank, id uint32, n *node, reached bool) bool {
	d := s.device
	switch {
	case d.has(n, r.id):
		d.double(holding{id, int32(r.id)}, 1)
		return true
	case d.isStranded(id, r):
		d.double(holding{id, int32(r.id)}, 1)
		return false
	case reached:
		d.hold(id, n, r)
	default:
		d.strand(id, r)
	}
	return reached
}

// refuse counts blocks for which there is no room.
func (s *shard) refuse(refused, of int) error {
	s.refused += uint64(refused)
	return fmt.Errorf("%d of %d blocks: %w", refused, of, ErrFull)
}

// remove drops blocks from the device.
func (s *shard) remove(r *rank, event *Event) (err error) {
	// First all names are looked for, then all nodes, and only then anything is changed: so the processor fetches many at a time.
	for _, hash := range event.Hashes {
		r.blocks.warm(hash)
	}
	s.leaving = s.leaving[:0]
	for _, hash := range event.Hashes {
		id, ok := r.blocks.remove(hash)
		if !ok {
			err = fmt.Errorf("block %d: %w", hash, ErrUnknownBlock)
			continue
		}
		s.leaving = append(s.leaving, id)
		prefetch.One(unsafe.Pointer(s.device.node(id)))
	}
	// Blocks go from the end of a prompt, so that none is stranded for a moment.
	if n := len(s.leaving); n > 1 && s.device.above(s.leaving[1], s.device.node(s.leaving[1])) == s.leaving[0] {
		slices.Reverse(s.leaving)
	}
	for at := 0; at < len(s.leaving); at++ {
		at += s.shed(r, s.leaving[at:])
		s.release(r, s.leaving[at])
	}
	s.budget.give(len(s.leaving))
	s.tidy()
	return err
}

// release ends a rank's holding of a node under one name.
func (s *shard) release(r *rank, id uint32) {
	d := s.device
	if d.doubled != nil && d.single(holding{id, int32(r.id)}) {
		return
	}
	n := d.node(id)
	if d.has(n, r.id) {
		d.lose(id, n, r)
	} else {
		d.rescue(id, r)
	}
	if d.unheld(id, n) {
		d.vacate(id, n)
	}
}

// clear drops all that a rank holds.
func (s *shard) clear(r *rank) {
	d := s.device
	for _, id := range r.blocks.all {
		n := d.node(id)
		if d.vacant.has(id) {
			continue // held under another name, too, and gone
		}
		if d.doubled != nil {
			delete(d.doubled, holding{id, int32(r.id)})
		}
		if d.has(n, r.id) {
			d.drop(n, r.id)
		} else if !d.rescue(id, r) {
			continue // likewise
		}
		if d.unheld(id, n) {
			d.vacate(id, n)
		}
	}
	if len(d.doubled) == 0 {
		d.doubled = nil
	}
	s.budget.give(r.blocks.count)
	r.blocks = names{}
	s.clearLower(r)
	s.tidy()
}

// leave forgets a rank.
func (s *shard) leave(r *rank) {
	s.clear(r)
	delete(s.numberOf, r.name)
	s.ranks[r.id] = nil
	labels := s.readers.Load().names
	if len(s.numberOf) == 0 {
		s.ranks, labels = nil, nil
	}
	s.publish(labels)
}

// tidy gives back memory when most of it is vacant.
func (s *shard) tidy() {
	if s.device.sparse() {
		if s.device.live == 0 {
			s.device.reset()
			s.device.pieces, s.device.sequences = nil, nil
		} else {
			moved := s.device.compact()
			for _, r := range s.ranks {
				if r != nil {
					r.blocks.renumber(moved)
				}
			}
		}
	}
	s.tidyLower()
}

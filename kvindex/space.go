package kvindex

import (
	"sync/atomic"
	"unsafe"
)

// A space knows, for each sequence hash of one tier and shard, the ranks that hold that block. One goroutine at a time changes
// it; any number look into it meanwhile without a lock.
//
// Blocks are nodes in pages that never move, numbered from 1. An open-addressing table leads from sequence hashes to numbers.
// What readers share with the writer are single atomic words, and each reading is checked: a node whose sequence hash is the one
// asked for before and after its set was read had that set in between. Should the node have been given to another block, the
// block asked for had gone, and "not there" is a true answer.
type space struct {
	view   atomic.Pointer[view]
	pages  []*page
	table  *table
	sets   setWriter
	vacant uint32 // first of the vacant nodes, linked through child
	next   uint32 // first node that was never used
	live   int
	// doubled counts, for a rank that holds a block under several names, the names beyond the first.
	doubled map[holding]uint32
	// locals are the local block hashes by node, where they are kept.
	locals     []*localPage
	keepLocals bool
}

// holding names a node and a rank.
type holding struct {
	node uint32
	rank int32
}

// view is what readers start from. It is replaced when one of its parts is.
type view struct {
	pages []*page
	table *table
	wides *wides
}

// node is one block. It holds no pointers, so that the garbage collector passes over pages.
type node struct {
	sequence atomic.Uint64
	set      atomic.Uint64

	// The writer's own. On the device: parent is 0 at the start of a prompt, and for a node that nobody holds; child is described
	// at [tree]. In lower tiers the two are the halves of the first rank's name for the block.
	parent, child uint32
}

const pageNodes = 1024

type (
	page      [pageNodes]node
	localPage [pageNodes]uint64
)

// table finds nodes by sequence hash. A bucket is a cache line: seven entries, each with half of the hash and a node's number,
// and a count of the entries that belong here but lie in later buckets.
type table struct {
	buckets []bucket
	count   int
}

type bucket [bucketEntries + 1]atomic.Uint64

const (
	bucketEntries = 7
	// A full table grows by a third, and so is between 0.6 and 0.8 full.
	tableLoadPercent = 80
)

func newSpace(keepLocals bool) *space {
	s := &space{keepLocals: keepLocals}
	s.reset()
	return s
}

// reset makes the space what it was at the start.
func (s *space) reset() {
	s.pages, s.locals, s.table, s.sets = nil, nil, &table{}, setWriter{wides: &wides{}}
	s.vacant, s.next, s.live, s.doubled = 0, 1, 0, nil
	s.publish()
}

func (s *space) publish() { s.view.Store(&view{pages: s.pages, table: s.table, wides: s.sets.wides}) }

// node returns the node with a number that the writer knows to exist.
func (s *space) node(id uint32) *node { return &s.pages[id/pageNodes][id%pageNodes] }

// node returns the node with the number, or nil if there is none in the view.
func (v *view) node(id uint32) *node {
	if page := id / pageNodes; int(page) < len(v.pages) {
		return &v.pages[page][id%pageNodes]
	}
	return nil
}

// probe returns the set of a block and the number of its node; 0 and 0 if nobody holds it. The guess is a number that the node
// could have: blocks that were stored together mostly lie side by side.
func (v *view) probe(sequence uint64, guess uint32) (set, uint32) {
	if s, ok := v.read(guess, sequence); ok && s != 0 { // a vacant node keeps its sequence hash, but has an empty set
		return s, guess
	}
	buckets := v.table.buckets
	if len(buckets) == 0 {
		return 0, 0
	}
	hash := scramble(sequence)
	at := within(hash, len(buckets))
	for range buckets {
		b := &buckets[at]
		for i := range bucketEntries {
			e := b[i].Load()
			if uint32(e>>32) != uint32(hash) || e == 0 {
				continue
			}
			if s, ok := v.read(uint32(e), sequence); ok {
				return s, uint32(e)
			}
		}
		if b[bucketEntries].Load() == 0 {
			break
		}
		if at++; at == len(buckets) {
			at = 0
		}
	}
	return 0, 0
}

// read returns a node's set, if it is the block's.
func (v *view) read(id uint32, sequence uint64) (set, bool) {
	n := v.node(id)
	if n == nil || n.sequence.Load() != sequence {
		return 0, false
	}
	s := set(n.set.Load())
	return s, n.sequence.Load() == sequence
}

// find returns the number of the block's node, or 0.
func (s *space) find(sequence uint64, guess uint32) uint32 {
	// A vacant node keeps its sequence hash, but has an empty set.
	if guess > 0 && guess < s.next {
		if n := s.node(guess); n.sequence.Load() == sequence && n.set.Load() != 0 {
			return guess
		}
	}
	buckets := s.table.buckets
	if len(buckets) == 0 {
		return 0
	}
	hash := scramble(sequence)
	at := within(hash, len(buckets))
	for range buckets {
		b := &buckets[at]
		for i := range bucketEntries {
			if e := b[i].Load(); uint32(e>>32) == uint32(hash) && e != 0 && s.node(uint32(e)).sequence.Load() == sequence {
				return uint32(e)
			}
		}
		if b[bucketEntries].Load() == 0 {
			break
		}
		if at++; at == len(buckets) {
			at = 0
		}
	}
	return 0
}

// vacantParent marks a node that is no block's.
const vacantParent = ^uint32(0)

// create makes a node for a block that has none.
func (s *space) create(sequence uint64) uint32 {
	id := s.vacant
	var n *node
	if id != 0 {
		n = s.node(id)
		s.vacant = n.child
	} else {
		id = s.next
		if int(id/pageNodes) == len(s.pages) {
			// Readers keep the old list; it is as good as the new one for what was there before.
			s.pages = append(s.pages[:len(s.pages):len(s.pages)], new(page))
			if s.keepLocals {
				s.locals = append(s.locals, new(localPage))
			}
			s.publish()
		}
		n = s.node(id)
		s.next++
	}
	n.parent, n.child = 0, 0
	n.sequence.Store(sequence)
	s.live++
	if s.table.count*100 >= len(s.table.buckets)*bucketEntries*tableLoadPercent {
		s.rehash(len(s.table.buckets)*4/3 + 1)
	}
	s.table.insert(scramble(sequence), id)
	return id
}

// full reports whether all numbers of nodes are taken.
func (s *space) full() bool { return s.vacant == 0 && s.next == manyChildren }

// destroy gives up a node whose set is empty.
func (s *space) destroy(id uint32) {
	n := s.node(id)
	s.table.remove(scramble(n.sequence.Load()), id)
	n.parent, n.child = vacantParent, s.vacant
	s.vacant = id
	s.live--
}

func (t *table) insert(hash uint64, id uint32) {
	e := hash<<32 | uint64(id)
	at := within(hash, len(t.buckets))
	t.count++
	for {
		b := &t.buckets[at]
		for i := range bucketEntries {
			if b[i].Load() == 0 {
				b[i].Store(e)
				return
			}
		}
		b[bucketEntries].Store(b[bucketEntries].Load() + 1)
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

func (t *table) remove(hash uint64, id uint32) {
	e := hash<<32 | uint64(id)
	at := within(hash, len(t.buckets))
	t.count--
	for {
		b := &t.buckets[at]
		for i := range bucketEntries {
			if b[i].Load() == e {
				b[i].Store(0)
				return
			}
		}
		b[bucketEntries].Store(b[bucketEntries].Load() - 1)
		if at++; at == len(t.buckets) {
			at = 0
		}
	}
}

// rehash makes a table of so many buckets. Look-ups that are under way keep the old one, which stays as it is.
func (s *space) rehash(buckets int) {
	old := s.table
	s.table = &table{buckets: make([]bucket, buckets)}
	for i := range old.buckets {
		for j := range bucketEntries {
			if e := old.buckets[i][j].Load(); e != 0 {
				id := uint32(e)
				s.table.insert(scramble(s.node(id).sequence.Load()), id)
			}
		}
	}
	s.publish()
}

// local returns the place of a node's local block hash, where those are kept.
func (s *space) local(id uint32) *uint64 { return &s.locals[id/pageNodes][id%pageNodes] }

// double notes that a rank holds a block under so many more names.
func (s *space) double(h holding, count uint32) {
	if s.doubled == nil {
		s.doubled = make(map[holding]uint32)
	}
	s.doubled[h] += count
}

// single drops one name too many, if there is one.
func (s *space) single(h holding) bool {
	count, ok := s.doubled[h]
	if !ok {
		return false
	}
	if count == 1 {
		if delete(s.doubled, h); len(s.doubled) == 0 {
			s.doubled = nil
		}
	} else {
		s.doubled[h] = count - 1
	}
	return true
}

// add and drop change the ranks that hold a node's block.
func (s *space) add(n *node, rank int) {
	before := s.sets.wides
	after := s.sets.with(set(n.set.Load()), rank)
	if s.sets.wides != before {
		s.publish()
	}
	n.set.Store(uint64(after))
}

func (s *space) drop(n *node, rank int) {
	n.set.Store(uint64(s.sets.without(set(n.set.Load()), rank)))
}

func (s *space) has(n *node, rank int) bool { return s.sets.has(set(n.set.Load()), rank) }

// sparse reports whether most of the memory is vacant.
func (s *space) sparse() bool {
	return s.live == 0 && len(s.pages) > 0 || len(s.pages) > 2 && s.live*4 < len(s.pages)*pageNodes
}

// compact moves all nodes together and returns their new numbers by the old ones. Look-ups that are under way keep the old pages,
// which stay as they are.
func (s *space) compact() (moved []uint32) {
	old, oldLocals := s.pages, s.locals
	moved = make([]uint32, s.next)
	s.next = 1
	for i := range s.table.buckets {
		for j := range bucketEntries {
			if e := s.table.buckets[i][j].Load(); e != 0 {
				moved[uint32(e)] = 1
			}
		}
	}
	s.pages, s.locals = make([]*page, s.live/pageNodes+1), nil
	for i := range s.pages {
		s.pages[i] = new(page)
		if s.keepLocals {
			s.locals = append(s.locals, new(localPage))
		}
	}
	for id := range moved {
		if moved[id] == 0 {
			continue
		}
		from, to := &old[id/pageNodes][id%pageNodes], s.node(s.next)
		to.sequence.Store(from.sequence.Load())
		to.set.Store(from.set.Load())
		to.parent, to.child = from.parent, from.child
		if s.keepLocals {
			*s.local(s.next) = oldLocals[id/pageNodes][id%pageNodes]
		}
		moved[id] = s.next
		s.next++
	}
	s.vacant = 0
	table := &table{buckets: make([]bucket, s.live*100/tableLoadPercent/bucketEntries*4/3+1)}
	for id := uint32(1); id < s.next; id++ {
		table.insert(scramble(s.node(id).sequence.Load()), id)
	}
	s.table = table
	s.sets.copyAll()
	doubled := s.doubled
	s.doubled = nil
	for h, count := range doubled {
		s.double(holding{moved[h.node], h.rank}, count)
	}
	s.publish()
	return moved
}

func (s *space) bytes() int {
	return len(s.pages)*int(unsafe.Sizeof(page{})) + len(s.locals)*int(unsafe.Sizeof(localPage{})) + cap(s.pages)*8 + len(s.table.buckets)*int(unsafe.Sizeof(bucket{})) + s.sets.bytes()
}

package kvindex

import (
	"sync/atomic"
	"unsafe"

	"signalbox/internal/prefetch"
)

// space keeps the blocks of one tier and shard: for each, its sequence hash and the ranks that hold it. One goroutine at a time
// changes it; any number look into it meanwhile without a lock.
//
// Blocks are nodes in pages that never move, numbered from 1. What readers share with the writer are single atomic words, and each
// reading is checked: a node whose sequence hash was the one asked for before and after its set was read had that set in between.
// Should the node have been given to another block, the block asked for had gone, and "nobody holds it" is a true answer.
type space struct {
	view   atomic.Pointer[view]
	pages  []*page
	table  *table
	sets   setWriter
	vacant vacancies
	live   int
	// From next to end are nodes that have been picked, and are not used yet.
	next, end uint32
	// doubled counts, for a rank that holds a block under several names, the names beyond the first.
	doubled map[holding]uint32
	// locals are the local block hashes by node, where they are kept.
	locals     []*localPage
	keepLocals bool
	building   bool // nothing is to be published
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
	// On the device these two are described at [tree]. In lower tiers they are the halves of the first rank's name for the block.
	child  atomic.Uint32
	parent uint32 // the writer's own
}

const (
	pageNodes = 1024
	// A page is added early where fewer than goodExtent vacant nodes lie side by side, unless one in slackShare is vacant.
	goodExtent = 16
	slackShare = 16
	// maxNodes leaves room for two marks in a node's number.
	maxNodes = 1 << 30
)

type (
	page      [pageNodes]node
	localPage [pageNodes]uint64
)

func newSpace(keepLocals bool) *space {
	s := &space{keepLocals: keepLocals}
	s.reset()
	return s
}

// reset makes the space what it was at the start.
func (s *space) reset() {
	s.pages, s.locals, s.table, s.sets = nil, nil, &table{}, setWriter{wides: &wides{}}
	s.vacant, s.next, s.end, s.live, s.doubled = vacancies{}, 0, 0, 0, nil
	s.publish()
}

// publish makes the present parts those that look-ups start from.
func (s *space) publish() {
	if !s.building {
		s.view.Store(&view{pages: s.pages, table: s.table, wides: s.sets.wides})
	}
}

// node returns the node with a number that the writer knows to exist.
func (s *space) node(id uint32) *node { return &s.pages[id/pageNodes][id%pageNodes] }

// node returns the node with the number, or nil if there is none in the view.
func (v *view) node(id uint32) *node {
	if page := id / pageNodes; int(page) < len(v.pages) {
		return &v.pages[page][id%pageNodes]
	}
	return nil
}

// ask begins to bring a node into the processor's cache. It may be in two lines.
func (v *view) ask(id uint32) {
	if n := v.node(id); n != nil {
		prefetch.Both(unsafe.Pointer(n), unsafe.Pointer(&n.parent))
	}
}

// askBegin begins to bring a node and the two behind it into the processor's cache, as far as they are in its page.
func (v *view) askBegin(id uint32) {
	if page := id / pageNodes; int(page) < len(v.pages) {
		at := v.pages[page]
		prefetch.Both(unsafe.Pointer(&at[id%pageNodes]), unsafe.Pointer(&at[min(id%pageNodes+2, pageNodes-1)].parent))
	}
}

// read returns the ranks that hold a block, and whether the node is the block's. A vacant node keeps its sequence hash, but has an
// empty set, and is nobody's.
func (v *view) read(id uint32, sequence uint64) (set, bool) {
	n := v.node(id)
	if n == nil || n.sequence.Load() != sequence {
		return 0, false
	}
	s := set(n.set.Load())
	return s, s != 0 && n.sequence.Load() == sequence
}

// probe finds a block by the table, and returns the ranks that hold it and the number of its node; 0 and 0 if it is not there.
func (v *view) probe(sequence uint64) (held set, at uint32) {
	v.table.candidates(scramble(sequence), func(id uint32) bool {
		s, ok := v.read(id, sequence)
		if ok {
			held, at = s, id
		}
		return !ok
	})
	return held, at
}

// find returns the number of a block's node in the table, or 0.
func (s *space) find(sequence uint64) (found uint32) {
	s.table.candidates(scramble(sequence), func(id uint32) bool {
		if s.node(id).sequence.Load() == sequence {
			found = id
		}
		return found == 0
	})
	return found
}

// full reports whether n more nodes could be too many.
func (s *space) full(n int) bool { return s.live+n >= maxNodes }

// create makes a node for a block that has none. Those that are made one after the other lie side by side, as many as wanted if
// possible, behind a node if possible. Whoever does not make that many in the end calls [space.settle].
func (s *space) create(sequence uint64, behind uint32, want int) (uint32, *node) {
	if s.next == s.end {
		s.pick(behind, want)
	}
	id := s.next
	s.next++
	s.live++
	n := s.node(id)
	n.sequence.Store(sequence)
	return id, n
}

// pick takes vacant nodes side by side.
func (s *space) pick(behind uint32, want int) {
	var first uint32
	var length int
	if s.vacant.has(behind + 1) {
		first, length = s.vacant.extent(behind+1, want)
	} else {
		if first, length = s.vacant.pick(want); length < min(want, goodExtent) && s.mayGrow() || length == 0 {
			s.addPage()
			first, length = s.vacant.pick(want)
		}
	}
	length = min(length, want)
	s.vacant.take(first, length)
	s.next, s.end = first, first+uint32(length)
}

// mayGrow reports whether there may be more vacant nodes, so that more lie side by side.
func (s *space) mayGrow() bool {
	return s.vacant.count+pageNodes < s.live/slackShare && len(s.pages)*pageNodes < maxNodes
}

// settle gives back nodes that were picked and are not needed.
func (s *space) settle() {
	for ; s.next < s.end; s.end-- {
		s.vacant.give(s.end - 1)
	}
}

func (s *space) addPage() {
	// Look-ups that are under way keep the old list; it is as good as the new one for what was there before.
	s.pages = append(s.pages[:len(s.pages):len(s.pages)], new(page))
	s.vacant.grow(pageNodes)
	if s.keepLocals {
		s.locals = append(s.locals, new(localPage))
	}
	s.publish()
}

// destroy gives up a node that has no ranks and no child, and is not in the table.
func (s *space) destroy(id uint32) {
	s.live--
	s.vacant.give(id)
}

// enlist adds a node to the table.
func (s *space) enlist(id uint32) {
	if s.table.full() {
		// Look-ups that are under way keep the old table, which stays as it is.
		old := s.table
		s.table = &table{buckets: make([]tableBucket, len(old.buckets)*4/3+1)}
		for other := range old.all {
			s.table.insert(scramble(s.node(other).sequence.Load()), other)
		}
		s.publish()
	}
	s.table.insert(scramble(s.node(id).sequence.Load()), id)
}

// delist removes a node from the table.
func (s *space) delist(id uint32) { s.table.remove(scramble(s.node(id).sequence.Load()), id) }

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
	putSet(n, uint64(after))
}

func (s *space) drop(n *node, rank int) {
	putSet(n, uint64(s.sets.without(set(n.set.Load()), rank)))
}

func (s *space) has(n *node, rank int) bool { return s.sets.has(set(n.set.Load()), rank) }

// sparse reports whether most of the memory is vacant.
func (s *space) sparse() bool {
	return s.live == 0 && len(s.pages) > 0 || len(s.pages) > 2 && s.live*4 < len(s.pages)*pageNodes
}

// compact moves all nodes together and returns their new numbers by the old ones; a number that is no node's becomes 0. The table
// is empty afterwards. Look-ups keep the old pages and the old table, which stay as they are, until the caller has filled the new
// table, ends the building and publishes.
func (s *space) compact() (moved []uint32) {
	s.building = true
	old, oldLocals := s.pages, s.locals
	was := s.vacant
	end := uint32(len(old) * pageNodes)
	moved = make([]uint32, end)
	s.vacant = vacancies{}
	s.pages, s.locals, s.table = nil, nil, &table{}
	for range s.live/pageNodes + 1 {
		s.addPage()
	}
	s.vacant.at = 0
	next := uint32(1)
	for id := uint32(1); id < end; id++ {
		if was.has(id) {
			continue
		}
		from := &old[id/pageNodes][id%pageNodes]
		to := s.node(next)
		to.sequence.Store(from.sequence.Load())
		to.set.Store(from.set.Load())
		to.child.Store(from.child.Load())
		to.parent = from.parent
		if s.keepLocals {
			*s.local(next) = oldLocals[id/pageNodes][id%pageNodes]
		}
		moved[id] = next
		next++
	}
	s.vacant.take(1, int(next-1))
	s.sets.copyAll()
	doubled := s.doubled
	s.doubled = nil
	for h, count := range doubled {
		s.double(holding{moved[h.node], h.rank}, count)
	}
	return moved
}

func (s *space) bytes() int {
	return len(s.pages)*int(unsafe.Sizeof(page{})) + len(s.locals)*int(unsafe.Sizeof(localPage{})) + cap(s.pages)*8 + s.vacant.bytes() +
		s.table.bytes() + s.sets.bytes() + len(s.doubled)*24
}

package kvindex

import (
	"unsafe"

	"signalbox/internal/prefetch"
)

// search is a look-up in the device tier of one shard. It follows the prompt as far as any rank holds it.
//
// A look-up costs what it waits for memory, and it waits less for words that it asks for at once than for words of which each tells
// where the next one is. So it goes in rounds. In a round every search, and every [gap], gets one step further: it looks at what it
// asked for in the round before, which is there by now, and asks for what to look at next.
//
// Of blocks that lie side by side, a search looks at the last one only: its sequence hash proves those before, and its ranks hold them,
// too. Where the last one is, the first one's node tells. It may be wrong, if what was there has gone or if the prompt is another from
// somewhere in between on; then the search looks there.
type search struct {
	readers  *readers
	view     *view
	sequence []uint64
	few      bool // ranks, so that a set is a word

	stage  stage
	point         // the last block that has been found; its position is -1 before there is one
	held   set    // the ranks that hold it and all before
	child  uint32 // what its node said of its children
	id     uint32 // the node that has been asked for, of the next block
	near   int    // how many nodes behind the point have been asked for
	hash   uint64 // of the block that the table has been asked for
	bucket *tableBucket
	soon   int // the position of another block that the table has been asked for, in case it is next

	from  point // where a leap begins
	size  int   // how far it goes, or what is left of that: so far on from the point, a node is not the prompt's
	again bool  // what is left has been divided before
	asked int   // how many nodes in between have been asked for
	looks [asksAtOnce]int

	ahead  point // where a shortcut leads to; its position is negative before that has been looked at, and 0 without
	around set   // the ranks that hold that
	place  place

	ends  []ending
	stops []stop // all points, with many ranks
}

// point is a block of the prompt: its position and its node.
type point struct {
	at   int
	node uint32
}

// stop is a point, and the ranks that hold it.
type stop struct {
	point
	held set
}

// ending tells which ranks hold exactly so many blocks, in a shard of few.
type ending struct {
	ranks  set
	blocks int
}

// stage tells what a search has asked for.
type stage uint8

const (
	closed    stage = iota // nothing: the end has been found
	inTable                // where the table has the next block
	inNode                 // the node that it has
	inChild                // the only child
	inRun                  // the last one of those that lie side by side
	inBetween              // several before that
)

const (
	// asksAtOnce is how many nodes are asked for at once where any of them may be the one.
	asksAtOnce = 5
	// sideBySide nodes are in so few lines that there is no need to ask first.
	sideBySide = 4
	// beginNodes is how many nodes are asked for besides one that may be the first of several side by side.
	beginNodes = 2
	// Most prompts that leave a run leave it near its end: distances from there grow by this factor.
	asksGrow = 3
)

// start begins a search.
func (s *search) start(in *shard, sequence []uint64) {
	r := in.readers.Load()
	s.readers, s.view, s.sequence, s.few = r, r.device.view.Load(), sequence, len(r.names) <= narrowRanks
	s.point, s.held, s.child, s.soon = point{at: -1}, 0, 0, 0
	s.ahead, s.place = point{}, place{}
	s.ends, s.stops = s.ends[:0], s.stops[:0]
	s.stage = closed
	if len(sequence) > 0 && len(s.view.table.buckets) > 0 {
		s.askTable()
	}
}

// end forgets what belongs to the index and to the caller.
func (s *search) end() { s.readers, s.view, s.sequence, s.bucket = nil, nil, nil, nil }

// run finishes searches.
func (m *Matches) run(searches []search) {
	m.gaps, m.rounds = m.gaps[:0], 0
	for busy := true; busy; m.rounds++ {
		busy = false
		for i := range searches {
			if s := &searches[i]; s.stage != closed {
				s.advance(m)
				busy = true
			}
		}
		for i := 0; i < len(m.gaps); i++ {
			if m.gaps[i].high != 0 {
				m.gaps[i].advance(m)
				busy = true
			}
		}
	}
}

// advance gets a search one step further.
func (s *search) advance(m *Matches) {
	switch s.stage {
	case inTable:
		if s.id = s.view.table.likely(s.bucket, s.hash); s.id == 0 {
			s.miss(m)
			return
		}
		s.stage = inNode
		s.askBegin()
		s.askSoon(s.at + 2)
	case inNode:
		sequence := s.sequence[s.at+1]
		held, ok := s.view.read(s.id, sequence)
		if !ok {
			held, s.id = s.view.probe(sequence)
			ok = s.id != 0
		}
		if ok {
			s.arrive(m, point{s.at + 1, s.id}, held)
		} else {
			s.miss(m)
		}
	case inChild:
		if held, ok := s.view.read(s.id, s.sequence[s.at+1]); ok {
			s.arrive(m, point{s.at + 1, s.id}, held)
		} else {
			s.close()
		}
	case inRun:
		if s.ahead.at < 0 {
			if s.follow(); s.jump() {
				s.onward(m)
				return
			}
		}
		next := s.on(s.size)
		if held, ok := s.view.read(next.node, s.sequence[next.at]); ok {
			s.arrive(m, next, held)
			return
		}
		// Prompts often differ in their last block only, and the node before is in the same line, or the next.
		s.from, s.again = s.point, false
		if s.size > 1 {
			s.try(m, s.size-1)
		}
		s.narrow(m)
	case inBetween:
		for i := range s.asked {
			if s.try(m, s.looks[i]) {
				break
			}
		}
		s.narrow(m)
	}
}

// on returns where a block further on is, if all in between lie side by side.
func (s *search) on(offset int) point { return point{s.at + offset, s.node + uint32(offset)} }

// arrive takes down that a block has been found, and asks for what is behind it.
func (s *search) arrive(m *Matches, next point, held set) {
	s.reach(m, next, held)
	s.jump()
	s.onward(m)
}

// reach takes down that a block has been found. It is the next one, or those in between lie side by side.
func (s *search) reach(m *Matches, next point, held set) {
	switch {
	case !s.few:
		s.stops = append(s.stops, stop{next, held})
	case s.at < 0:
		s.held = held
	default:
		if held &= s.held; held != s.held {
			m.between(s, s.point, next.at, s.held, held)
			s.held, s.place = held, place{}
		}
	}
	s.point = next
}

// onward asks for the next block, or the last of those that lie side by side.
func (s *search) onward(m *Matches) {
	if s.at == len(s.sequence)-1 || s.few && s.held == 0 {
		s.close()
		return
	}
	s.child = s.view.node(s.node).child.Load()
	switch {
	case s.child == 0:
		s.close()
	case s.child&severalChildren != 0:
		s.askTable()
		if s.soon == s.at+1 {
			s.advance(m)
		}
	case s.child&nextChild != 0:
		s.stage, s.size = inRun, min(runLength(s.child), len(s.sequence)-1-s.at)
		s.view.ask(s.node + uint32(s.size))
		s.askSoon(s.at + s.size + 1)
		if s.few {
			s.seek()
		}
		near := s.near - s.size
		s.near = max(near, 0)
		if near >= 0 && s.ahead.at >= 0 {
			s.advance(m) // it is there
		}
	default:
		s.stage, s.id = inChild, s.child
		s.askBegin()
	}
}

// askBegin asks for the node with the number id. Those behind it tell of a shortcut, or are next.
func (s *search) askBegin() {
	s.near = beginNodes
	s.view.askBegin(s.id)
}

// askTable asks where the table has the next block.
func (s *search) askTable() {
	s.stage, s.hash = inTable, scramble(s.sequence[s.at+1])
	s.bucket = s.view.table.home(s.hash)
	prefetch.One(unsafe.Pointer(s.bucket))
}

// askSoon asks where the table has a block further on: if prompts branch before it, as they do at the ends of runs, it is next.
func (s *search) askSoon(at int) {
	if s.soon = at; at < len(s.sequence) {
		prefetch.One(unsafe.Pointer(s.view.table.home(scramble(s.sequence[at]))))
	}
}

// miss ends the search where the table does not have the next block. It may have left the table when it became the only child.
func (s *search) miss(m *Matches) {
	if s.at >= 0 && s.view.node(s.node).child.Load() != s.child {
		s.onward(m)
	} else {
		s.close()
	}
}

// try looks whether a node that many blocks on is the prompt's.
func (s *search) try(m *Matches, offset int) bool {
	next := s.on(offset)
	held, ok := s.view.read(next.node, s.sequence[next.at])
	if ok {
		s.reach(m, next, held)
		s.size -= offset
	} else {
		s.size = offset
	}
	return ok
}

// narrow looks for the last block in a run that is the prompt's.
func (s *search) narrow(m *Matches) {
	for s.size > 1 {
		if s.size > sideBySide {
			s.stage = inBetween
			s.look()
			for i := range s.asked {
				s.view.ask(s.node + uint32(s.looks[i]))
			}
			return
		}
		s.try(m, s.size/2)
	}
	if s.jump() {
		s.onward(m)
		return
	}
	// The next node is another block's. Is there a child elsewhere?
	if child := s.view.node(s.node).child.Load(); child&(severalChildren|nextChild) == nextChild {
		s.close()
		return
	}
	if s.at > s.from.at {
		// All leaps from there shall end here.
		s.view.node(s.from.node).child.CompareAndSwap(s.child, nextChild|uint32(s.at-s.from.at))
	}
	s.onward(m)
}

// look decides where in a run to look, the furthest first: near its end, and then at even distances.
func (s *search) look() {
	s.asked = 0
	if s.again {
		for ; s.asked < asksAtOnce; s.asked++ {
			s.looks[s.asked] = (asksAtOnce - s.asked) * s.size / (asksAtOnce + 1)
		}
		return
	}
	s.again = true
	for back := sideBySide; s.asked < asksAtOnce && back < s.size; back *= asksGrow {
		s.looks[s.asked] = s.size - back
		s.asked++
	}
}

// close ends the search.
func (s *search) close() {
	s.stage = closed
	if s.few && s.held != 0 {
		s.leave()
		s.ends = append(s.ends, ending{s.held, s.at + 1})
	}
}

// behind returns the ranks that hold the block behind a point, and its node; 0 and 0 if nobody does.
func (s *search) behind(p point) (held set, node uint32) {
	sequence := s.sequence[p.at+1]
	n := s.view.node(p.node)
	for {
		child := n.child.Load()
		if child&severalChildren == 0 {
			if child = onlyChild(p.node, child); child == 0 {
				return 0, 0
			}
			if held, ok := s.view.read(child, sequence); ok {
				return held, child
			}
			return 0, 0
		}
		if held, node = s.view.probe(sequence); node != 0 || n.child.Load() == child {
			return held, node
		}
	}
}

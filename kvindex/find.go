package kvindex

import (
	"math/bits"
	"slices"
)

// Query is a prompt to look up.
type Query struct {
	// Locals are the local block hashes of the prompt's complete blocks, from its start.
	Locals []uint64
	// Sequence are the public sequence hashes of the same blocks, if the caller has them already: it saves computing them. It is
	// used only if it is as long as Locals.
	Sequence []uint64
	// DeviceOnly leaves the lower tiers out.
	DeviceOnly bool
}

// Match is what one rank holds of a prompt.
type Match struct {
	Rank Rank
	// Blocks counts, by tier. Device counts the leading blocks of the prompt that the rank holds without a gap. Each lower
	// tier, in order, counts the blocks with which it continues where the tiers before it ended.
	Blocks [Tiers]uint32
}

// Total is the number of leading blocks held in any tier.
func (m Match) Total() uint32 {
	return m.Blocks[Device] + m.Blocks[HostPinned] + m.Blocks[Disk] + m.Blocks[External]
}

// Matches is the answer to a query. Reuse one for many queries: [Index.Find] allocates only while it grows.
type Matches struct {
	// Ranks lists the ranks that hold at least one block of the prompt, each once, in no particular order.
	Ranks []Match

	sequence []uint64 // the query's
	ids      []int    // numbers in their shard of the ranks listed
	held     []uint64 // ranks that hold all so far, as bits
	other    []uint64
	places   map[Rank]int // in Ranks
}

// Of returns what the rank holds.
func (m *Matches) Of(rank Rank) Match {
	for _, match := range m.Ranks {
		if match.Rank == rank {
			return match
		}
	}
	return Match{Rank: rank}
}

// MaxDevice raises what ranks hold on their devices to what another answer to the same query says, if that is more. Lower tiers stay
// as they are.
func (m *Matches) MaxDevice(side *Matches) {
	if len(side.Ranks) == 0 {
		return
	}
	if m.places == nil {
		m.places = make(map[Rank]int)
	}
	clear(m.places)
	for i := range m.Ranks {
		m.places[m.Ranks[i].Rank] = i
	}
	for _, other := range side.Ranks {
		at, ok := m.places[other.Rank]
		if !ok {
			at = len(m.Ranks)
			m.Ranks = append(m.Ranks, Match{Rank: other.Rank})
		}
		m.Ranks[at].Blocks[Device] = max(m.Ranks[at].Blocks[Device], other.Blocks[Device])
	}
	m.Ranks = slices.DeleteFunc(m.Ranks, func(match Match) bool { return match.Total() == 0 })
}

// prepare empties the matches and returns the query's sequence hashes.
func (m *Matches) prepare(query *Query) []uint64 {
	m.Ranks, m.ids = m.Ranks[:0], m.ids[:0]
	if len(query.Sequence) == len(query.Locals) {
		return query.Sequence
	}
	m.sequence = chainHasher.AppendSequence(m.sequence[:0], query.Locals)
	return m.sequence
}

// find adds what the shard's ranks hold.
func (s *shard) find(m *Matches, sequence []uint64, deviceOnly bool) {
	for {
		first := len(m.Ranks)
		r := s.readers.Load()
		search := search{view: r.device.view.Load(), names: r.names, sequence: sequence}
		device := search.view
		if len(r.names) <= narrowRanks {
			search.narrow(m)
		} else {
			search.broad(m)
		}
		current := device.current(r.device)
		for tier := HostPinned; tier < Tiers && !deviceOnly; tier++ {
			if r.lower[tier] != nil {
				search.view = r.lower[tier].view.Load()
				search.lower(m, first, tier)
				current = current && search.view.current(r.lower[tier])
			}
		}
		if current && s.readers.Load() == r {
			return
		}
		m.Ranks, m.ids = m.Ranks[:first], m.ids[:first]
	}
}

// current reports whether the view is good for what was read with it: numbers of wide sets mean something else, and a table no
// longer has all that is there, once they have been replaced. The same goes for numbers of ranks. It is rare.
func (v *view) current(s *space) bool {
	now := s.view.Load()
	return now == v || now.table == v.table && now.wides == v.wides
}

// search is a look-up in one space.
type search struct {
	view     *view
	names    []Rank
	sequence []uint64
}

// point is a block of the prompt that has been found: its position and the number of its node.
type point struct {
	at int
	id uint32
}

// behind returns the ranks that hold the block behind a point, and their number.
func (s *search) behind(p point) (held set, id uint32) {
	sequence := s.sequence[p.at+1]
	n := s.view.node(p.id)
	for {
		child := n.child.Load()
		if child&severalChildren == 0 {
			if held, ok := s.view.read(child, sequence); ok {
				return held, child
			}
			return 0, 0
		}
		if held, id = s.view.probe(sequence); id != 0 || n.child.Load() == child {
			return held, id
		}
	}
}

// leap returns the ranks that hold a block further on, and whether it is where it would be if all in between had been stored
// together.
func (s *search) leap(p point, at int) (held set, id uint32, ok bool) {
	id = p.id + uint32(at-p.at)
	held, ok = s.view.read(id, s.sequence[at])
	return held, id, ok
}

// reach returns the ranks that hold a block further on, by a leap or steps; 0 and 0 if it has gone.
func (s *search) reach(p point, at int) (held set, id uint32) {
	if held, id, ok := s.leap(p, at); ok {
		return held, id
	}
	for ; p.at < at; p.at++ {
		if held, id = s.behind(p); id == 0 {
			return 0, 0
		}
		p.id = id
	}
	return held, id
}

// walk follows the prompt from a point, as far as someone holds it. Where blocks lie side by side, it looks only at ever further
// ones: step is told the next point and the ranks that hold it, and whether to go on is its answer.
func (s *search) walk(p point, step func(next point, held set) bool) {
	last := len(s.sequence) - 1
	for p.at < last {
		if child := s.view.node(p.id).child.Load(); child&severalChildren == 0 && child != p.id+1 {
			// The next block lies elsewhere, or there is none: the link tells, and a leap would read in vain.
			held, id := s.behind(p)
			if id == 0 {
				return
			}
			if p = (point{p.at + 1, id}); !step(p, held) {
				return
			}
			continue
		}
		// Leaps double until one fails, and halve from there on.
		start := p
		failed := false
		for size := 1; size > 0 && p.at < last; {
			next := min(p.at+size, last)
			held, id, ok := s.leap(start, next)
			switch {
			case !ok:
				failed = true
				size /= 2
			default:
				if p = (point{next, id}); !step(p, held) {
					return
				}
				if failed {
					size /= 2
				} else {
					size *= 2
				}
			}
		}
		if p.at == last {
			return
		}
		held, id := s.behind(p)
		if id == 0 {
			return
		}
		if p = (point{p.at + 1, id}); !step(p, held) {
			return
		}
	}
}

// list adds a rank.
func (s *search) list(m *Matches, id int, tier Tier, blocks int) {
	if id >= len(s.names) {
		return // it came just now, and the look-up will be repeated
	}
	match := Match{Rank: s.names[id]}
	match.Blocks[tier] = uint32(blocks)
	m.Ranks, m.ids = append(m.Ranks, match), append(m.ids, id)
}

// narrow finds how long the prefix is that each rank holds, in a shard of few ranks. Sets only shrink along a prompt: where the set
// is the same at two points, it is so in between.
func (s *search) narrow(m *Matches) {
	if len(s.sequence) == 0 {
		return
	}
	held, id := s.view.probe(s.sequence[0])
	if held == 0 {
		return
	}
	before := point{0, id}
	s.walk(before, func(next point, still set) bool {
		if still &= held; still != held {
			s.split(m, before, next.at, held, still)
		}
		before, held = next, still
		return held != 0
	})
	s.drop(m, held, before.at+1)
}

// split finds where each rank drops out that holds all blocks up to low, but not up to high.
func (s *search) split(m *Matches, low point, high int, atLow, atHigh set) {
	for high-low.at > 1 {
		middle := int(uint(low.at+high) / 2)
		held, id := s.reach(low, middle)
		held = held&atLow | atHigh
		switch {
		case held == atHigh:
			high = middle
			continue
		case held != atLow:
			s.split(m, low, middle, atLow, held)
		}
		low, atLow = point{middle, id}, held
	}
	s.drop(m, atLow&^atHigh, high)
}

func (s *search) drop(m *Matches, ranks set, blocks int) {
	for rest := uint64(ranks); rest != 0; rest &= rest - 1 {
		s.list(m, bits.TrailingZeros64(rest), Device, blocks)
	}
}

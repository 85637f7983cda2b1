package kvindex

import "math/bits"

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
	known    []uint64 // and that of the query before, from which equal beginnings are taken
	ids      []int    // numbers in their shard of the ranks listed
	held     []uint64 // ranks that hold all so far, as bits
	other    []uint64
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
		device := r.device.view.Load()
		search := search{view: device, names: r.names, sequence: sequence}
		if len(r.names) <= narrowRanks {
			search.narrow(m)
		} else {
			search.broad(m)
		}
		settled := true
		for tier := HostPinned; tier < Tiers && !deviceOnly; tier++ {
			if r.lower[tier] != nil {
				search.view = r.lower[tier].view.Load()
				search.lower(m, first, tier)
				settled = settled && search.view.wides == r.lower[tier].view.Load().wides
			}
		}
		// Numbers of ranks and of wide sets mean something else once their lists have been replaced, which is rare.
		if settled && s.readers.Load() == r && r.device.view.Load().wides == device.wides {
			return
		}
		m.Ranks, m.ids = m.Ranks[:first], m.ids[:first]
	}
}

// search is a look-up in one space.
type search struct {
	view     *view
	names    []Rank
	sequence []uint64
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

// narrow finds how long the prefix is that each rank holds, in a shard of few ranks. Sets only shrink along a prompt: it looks at
// ever further blocks, and goes back to those in between only where ranks have dropped out.
func (s *search) narrow(m *Matches) {
	last := len(s.sequence) - 1
	if last < 0 {
		return
	}
	held, node := s.view.probe(s.sequence[0], 0)
	at := 0
	for step := 1; held != 0 && at < last; step *= 2 {
		next := min(at+step, last)
		still, nextNode := s.view.probe(s.sequence[next], node+uint32(next-at))
		if still &= held; still != held {
			s.split(m, at, next, held, still, node)
		}
		held, at, node = still, next, nextNode
	}
	s.drop(m, held, last+1)
}

// split finds where each rank drops out that holds all blocks up to low, but not up to high.
func (s *search) split(m *Matches, low, high int, atLow, atHigh set, node uint32) {
	for high-low > 1 {
		middle := int(uint(low+high) / 2)
		held, middleNode := s.view.probe(s.sequence[middle], node+uint32(middle-low))
		held = held&atLow | atHigh
		switch {
		case held == atHigh:
			high = middle
		case held == atLow:
			low, node = middle, middleNode
		default:
			s.split(m, low, middle, atLow, held, node)
			low, atLow, node = middle, held, middleNode
		}
	}
	s.drop(m, atLow&^atHigh, high)
}

func (s *search) drop(m *Matches, ranks set, blocks int) {
	for rest := uint64(ranks); rest != 0; rest &= rest - 1 {
		s.list(m, bits.TrailingZeros64(rest), Device, blocks)
	}
}

// broad does the same in a shard of many ranks.
func (s *search) broad(m *Matches) {
	words := (len(s.names) + 63) / 64
	words = max(words, s.view.wides.stride)
	m.held, m.other = grow(m.held, words), grow(m.other, words)
	if len(s.sequence) == 0 || !s.load(m.held, s.sequence[0], 0) {
		return
	}
	at := 0
	for {
		// Everyone in held holds all blocks up to at. Where does the first drop out?
		low, high := at, len(s.sequence)
		for step := 1; low < high-1; step *= 2 {
			next := min(low+step, high-1)
			if !s.allHold(m, next) {
				high = next
				break
			}
			low = next
		}
		for high-low > 1 {
			if middle := int(uint(low+high) / 2); s.allHold(m, middle) {
				low = middle
			} else {
				high = middle
			}
		}
		at = high
		if at == len(s.sequence) {
			clear(m.other)
		} else {
			s.load(m.other, s.sequence[at], 0)
		}
		rest := uint64(0)
		for i := range m.held {
			for out := m.held[i] &^ m.other[i]; out != 0; out &= out - 1 {
				s.list(m, i*64+bits.TrailingZeros64(out), Device, at)
			}
			m.held[i] &= m.other[i]
			rest |= m.held[i]
		}
		if rest == 0 {
			return
		}
	}
}

// load writes the ranks that hold a block as bits, and reports whether there are any.
func (s *search) load(bitmap []uint64, sequence uint64, guess uint32) bool {
	ranks, id := s.view.probe(sequence, guess)
	if ranks == 0 {
		clear(bitmap)
		return false
	}
	ok := s.view.wides.copyTo(bitmap, ranks)
	// A wide set's number may have been given to another block meanwhile.
	if again, same := s.view.read(id, sequence); !ok || !same || again != ranks {
		if n := s.view.node(id); ranks.form() == formWide && (n == nil || again.form() != formWide || again != ranks) {
			return s.load(bitmap, sequence, guess)
		}
	}
	return true
}

// allHold reports whether all ranks in held hold the block.
func (s *search) allHold(m *Matches, at int) bool {
	s.load(m.other, s.sequence[at], 0)
	for i := range m.held {
		if m.held[i]&^m.other[i] != 0 {
			return false
		}
	}
	return true
}

// lower continues in a lower tier where each rank's blocks in the tiers before it end.
func (s *search) lower(m *Matches, first int, tier Tier) {
	if len(s.sequence) == 0 {
		return
	}
	listed := len(m.Ranks)
	for i := first; i < listed; i++ {
		match := &m.Ranks[i]
		match.Blocks[tier] = uint32(s.run(int(match.Total()), m.ids[i]))
	}
	// Ranks that hold nothing in the tiers before start here.
	words := max((len(s.names)+63)/64, s.view.wides.stride, 1)
	m.held = grow(m.held, words)
	if !s.load(m.held, s.sequence[0], 0) {
		return
	}
	for _, id := range m.ids[first:listed] {
		if id/64 < len(m.held) {
			m.held[id/64] &^= 1 << (id % 64)
		}
	}
	for i := range m.held {
		for rest := m.held[i]; rest != 0; rest &= rest - 1 {
			id := i*64 + bits.TrailingZeros64(rest)
			if blocks := s.run(0, id); blocks > 0 {
				s.list(m, id, tier, blocks)
			}
		}
	}
}

// run counts the blocks that a rank holds without a gap from a position on.
func (s *search) run(from, rank int) int {
	node := uint32(0)
	at := from
	for ; at < len(s.sequence); at++ {
		var ranks set
		if ranks, node = s.view.probe(s.sequence[at], node+1); ranks == 0 || !s.view.wides.has(ranks, rank) {
			break
		}
	}
	return at - from
}

func grow(bitmap []uint64, words int) []uint64 {
	if cap(bitmap) < words {
		return make([]uint64, words)
	}
	return bitmap[:words]
}

package kvindex

import "math/bits"

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
	held, id := s.view.probe(s.sequence[0])
	if held == 0 {
		return
	}
	m.held = resized(m.held, max((len(s.readers.names)+63)/64, s.view.wides.stride, 1))
	s.bitmap(m.held, point{0, id}, held)
	for _, id := range m.ids[first:listed] {
		if id/64 < len(m.held) {
			m.held[id/64] &^= 1 << (id % 64)
		}
	}
	for i := range m.held {
		for rest := m.held[i]; rest != 0; rest &= rest - 1 {
			id := i*64 + bits.TrailingZeros64(rest)
			if blocks := s.run(0, id); blocks > 0 {
				s.add(m, id, tier, blocks)
			}
		}
	}
}

// run counts the blocks that a rank holds without a gap from a position on.
func (s *search) run(from, rank int) int {
	node := uint32(0)
	at := from
	for ; at < len(s.sequence); at++ {
		held, ok := s.view.read(node+1, s.sequence[at])
		if node++; !ok {
			held, node = s.view.probe(s.sequence[at])
		}
		if held == 0 || !s.view.wides.has(held, rank) {
			break
		}
	}
	return at - from
}

package kvindex

import "math/bits"

// broad finds how long the prefix is that each rank holds, in a shard of many ranks, whose sets are bitmaps. The ranks that hold all
// blocks so far are in m.held.
func (s *search) broad(m *Matches) {
	if len(s.sequence) == 0 {
		return
	}
	held, id := s.view.probe(s.sequence[0])
	if held == 0 {
		return
	}
	words := max((len(s.names)+63)/64, s.view.wides.stride)
	m.held, m.other = resized(m.held, words), resized(m.other, words)
	before := point{0, id}
	s.bitmap(m.held, before, held)
	s.walk(before, func(next point, still set) bool {
		if s.bitmap(m.other, next, still); m.lost() {
			s.splitBroad(m, before, next, still)
		}
		before = next
		return m.anyHeld()
	})
	clear(m.other)
	s.dropBroad(m, before.at+1)
}

// splitBroad finds where each of the ranks in m.held drops out that is not in the set at high; all of them are in that at low.
func (s *search) splitBroad(m *Matches, low, high point, atHigh set) {
	for m.lost() {
		// Where does the first one drop out?
		for end := high.at; ; {
			middle := int(uint(low.at+end) / 2)
			if middle == low.at {
				held, id := s.reach(low, end)
				low = point{end, id}
				s.bitmap(m.other, low, held)
				break
			}
			held, id := s.reach(low, middle)
			if s.bitmap(m.other, point{middle, id}, held); m.lost() {
				end = middle
			} else {
				low = point{middle, id}
			}
		}
		s.dropBroad(m, low.at)
		if low.id == 0 || low.at >= high.at {
			return
		}
		s.bitmap(m.other, high, atHigh)
	}
}

// bitmap writes the ranks that hold a block as bits.
func (s *search) bitmap(bitmap []uint64, p point, held set) {
	for p.id != 0 {
		if !s.view.wides.copyTo(bitmap, held) || held.form() != formWide {
			return
		}
		// The words of a wide set may have been given to another block meanwhile.
		again, ok := s.view.read(p.id, s.sequence[p.at])
		if !ok {
			break
		}
		if again == held {
			return
		}
		held = again
	}
	clear(bitmap)
}

// dropBroad lists the ranks in held that are not in other, and drops them from held.
func (s *search) dropBroad(m *Matches, blocks int) {
	for i := range m.held {
		for out := m.held[i] &^ m.other[i]; out != 0; out &= out - 1 {
			s.list(m, i*64+bits.TrailingZeros64(out), Device, blocks)
		}
		m.held[i] &= m.other[i]
	}
}

// lost reports whether a rank is in held and not in other.
func (m *Matches) lost() bool {
	for i := range m.held {
		if m.held[i]&^m.other[i] != 0 {
			return true
		}
	}
	return false
}

func (m *Matches) anyHeld() bool {
	for _, word := range m.held {
		if word != 0 {
			return true
		}
	}
	return false
}

func resized(bitmap []uint64, words int) []uint64 {
	if cap(bitmap) < words {
		return make([]uint64, words)
	}
	return bitmap[:words]
}

package kvindex

import "math/bits"

// broad finds how long the prefix is that each rank holds, in a shard of many ranks, whose sets are bitmaps. The ranks that hold all
// blocks so far are in m.held.
func (s *search) broad(m *Matches) {
	if len(s.stops) == 0 {
		return
	}
	words := max((len(s.readers.names)+63)/64, s.view.wides.stride)
	m.held, m.other = resized(m.held, words), resized(m.other, words)
	low := s.stops[0].point
	s.bitmap(m.held, low, s.stops[0].held)
	for _, next := range s.stops[1:] {
		if s.part(m, low, next.point, next.held); !m.anyHeld() {
			return
		}
		low = next.point
	}
	clear(m.other)
	s.dropBroad(m, low.at+1)
}

// part lists the ranks in m.held that drop out between two points, and drops them from m.held. All of them hold the block at low;
// those that hold that at high are told.
func (s *search) part(m *Matches, low, high point, atHigh set) {
	for {
		if s.bitmap(m.other, high, atHigh); !m.lost() {
			return
		}
		// Where does the first one drop out?
		end, atEnd := high, atHigh
		for end.at-low.at > 1 {
			offset := (end.at - low.at) / 2
			middle := point{low.at + offset, low.node + uint32(offset)}
			held, ok := s.view.read(middle.node, s.sequence[middle.at])
			if !ok {
				// They do not lie side by side any more.
				middle.at = low.at + 1
				held, middle.node = s.behind(low)
			}
			if s.bitmap(m.other, middle, held); m.lost() {
				end, atEnd = middle, held
			} else {
				low = middle
			}
		}
		s.bitmap(m.other, end, atEnd)
		s.dropBroad(m, end.at)
		if end.at == high.at || !m.anyHeld() {
			return
		}
		low = end
	}
}

// bitmap writes the ranks that hold a block as bits.
func (s *search) bitmap(bitmap []uint64, p point, held set) {
	for p.node != 0 {
		if !s.view.wides.copyTo(bitmap, held) || held.form() != formWide {
			return
		}
		// The words of a wide set may have been given to another block meanwhile.
		again, ok := s.view.read(p.node, s.sequence[p.at])
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
			s.add(m, i*64+bits.TrailingZeros64(out), Device, blocks)
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

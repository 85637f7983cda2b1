package kvindex

// gap is a part of a prompt in which ranks of a shard of few drop out: all of atLow hold the block at low, and of them only those of
// atHigh hold that at high. Sets only shrink along a prompt: where the set is the same at two points, it is so in between.
type gap struct {
	search        *search
	low           point
	high          int // 0 if there is no gap any more
	atLow, atHigh set
	asked         int
}

// between takes down that ranks drop out.
func (m *Matches) between(s *search, low point, high int, atLow, atHigh set) {
	if high-low.at == 1 {
		s.ends = append(s.ends, ending{atLow &^ atHigh, high})
		return
	}
	m.gaps = append(m.gaps, gap{search: s, low: low, high: high, atLow: atLow, atHigh: atHigh})
	m.gaps[len(m.gaps)-1].ask()
}

// ask asks for nodes in between.
func (g *gap) ask() {
	size := g.high - g.low.at
	g.asked = min(size-1, asksAtOnce)
	for i := 1; i <= g.asked; i++ {
		g.search.view.ask(g.low.node + uint32(i*size/(g.asked+1)))
	}
}

// advance looks at what has been asked for, and divides the gap.
func (g *gap) advance(m *Matches) {
	s, from, low, size, asked, atLow, atHigh := g.search, g.low, g.low, g.high-g.low.at, g.asked, g.atLow, g.atHigh
	high := g.high
	g.high = 0 // other gaps may move this one
	for i := 1; i <= asked; i++ {
		offset := i * size / (asked + 1)
		at, node := from.at+offset, from.node+uint32(offset)
		held, ok := s.view.read(node, s.sequence[at])
		if !ok {
			continue
		}
		if held = held&atLow | atHigh; held != atLow {
			m.between(s, low, at, atLow, held)
			if held == atHigh {
				return
			}
			atLow = held
		}
		low = point{at, node}
	}
	if low == from {
		// They do not lie side by side any more.
		held, node := s.behind(low)
		held = held&atLow | atHigh
		next := point{low.at + 1, node}
		if held != atLow {
			m.between(s, low, next.at, atLow, held)
		}
		low, atLow = next, held
	}
	if atLow != atHigh {
		m.between(s, low, high, atLow, atHigh)
	}
}

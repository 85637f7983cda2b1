package tokenizer

import "slices"

// none is the rank of a pair that is not merged; it is higher than all others.
const none = 1<<rankBits - 1

// merges maps pairs of token ids to the rank of their merge, and ranks to the merged token. A slot holds left, right and rank in one
// word, so that a look-up costs one cache line.
type merges struct {
	slots []uint64
	shift uint
	into  []uint32 // by rank
	pairs []pair   // by rank, until the model is made
}

const emptySlot = ^uint64(0)

func newMerges(n int) *merges {
	m := &merges{slots: make([]uint64, tableSize(n)), into: make([]uint32, 0, n), pairs: make([]pair, 0, n), shift: 64}
	for i := range m.slots {
		m.slots[i] = emptySlot
	}
	for size := len(m.slots); size > 1; size >>= 1 {
		m.shift--
	}
	return m
}

func pairKey(left, right uint32) uint64 { return uint64(left)<<idBits | uint64(right) }

func (m *merges) start(key uint64) uint64 { return (key * 0x9E3779B97F4A7C15) >> m.shift }

// add appends a merge, the next in rank. A pair that is there already gets the new rank.
func (m *merges) add(left, right, into uint32) {
	if 4*(len(m.into)+1) > 3*len(m.slots) {
		larger := newMerges(2 * len(m.into))
		for rank, p := range m.pairs {
			larger.add(p.left, p.right, m.into[rank])
		}
		*m = *larger
	}
	key, rank := pairKey(left, right), uint64(len(m.into))
	m.into = append(m.into, into)
	m.pairs = append(m.pairs, pair{left, right})
	for i := m.start(key); ; i = (i + 1) & uint64(len(m.slots)-1) {
		if slot := m.slots[i]; slot == emptySlot || slot>>rankBits == key {
			m.slots[i] = key<<rankBits | rank
			return
		}
	}
}

// rank returns the rank of a pair, or none.
func (m *merges) rank(left, right uint32) uint32 {
	key := pairKey(left, right)
	mask := uint64(len(m.slots) - 1)
	for i := m.start(key) & mask; ; i = (i + 1) & mask {
		slot := m.slots[i]
		if slot>>rankBits == key {
			return uint32(slot) & none
		}
		if slot == emptySlot {
			return none
		}
	}
}

// short is the number of symbols up to which looking through all pairs is faster than a heap.
const short = 48

// apply merges neighbours of symbols, the pair of lowest rank first and the leftmost of equals, until no pair is left. It works in
// place and returns what is left.
func (m *merges) apply(symbols []uint32, scratch *mergeScratch) []uint32 {
	switch {
	case len(symbols) < 2:
		return symbols
	case len(symbols) > short:
		return m.applyHeap(symbols, scratch)
	}
	var ranks [short]uint32
	n := len(symbols)
	for i := 0; i+1 < n; i++ {
		ranks[i] = m.rank(symbols[i], symbols[i+1])
	}
	ranks[n-1] = none
	for n > 1 {
		best, at := uint32(none), 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == none {
			break
		}
		symbols[at] = m.into[best]
		n--
		copy(symbols[at+1:n], symbols[at+2:])
		copy(ranks[at+1:n], ranks[at+2:n+1])
		if at+1 < n {
			ranks[at] = m.rank(symbols[at], symbols[at+1])
		} else {
			ranks[at] = none
		}
		if at > 0 {
			ranks[at-1] = m.rank(symbols[at-1], symbols[at])
		}
	}
	return symbols[:n]
}

// mergeScratch is working memory of applyHeap.
type mergeScratch struct {
	heap           []uint64 // rank<<32 | position
	next, previous []int32
	ranks          []uint32 // by position: of the pair that begins there
}

// applyHeap is apply in n log n: neighbours are linked, pairs wait in a heap, and one that is out of date when it comes up is dropped.
func (m *merges) applyHeap(symbols []uint32, s *mergeScratch) []uint32 {
	n := len(symbols)
	s.heap = s.heap[:0]
	s.next = slices.Grow(s.next[:0], n)[:n]
	s.previous = slices.Grow(s.previous[:0], n)[:n]
	s.ranks = slices.Grow(s.ranks[:0], n)[:n]
	for i := range symbols {
		s.next[i], s.previous[i] = int32(i+1), int32(i-1)
		s.ranks[i] = none
		if i+1 < n {
			s.ranks[i] = m.rank(symbols[i], symbols[i+1])
		}
		if s.ranks[i] != none {
			s.heap = append(s.heap, uint64(s.ranks[i])<<32|uint64(i))
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	for len(s.heap) > 0 {
		top := s.heap[0]
		last := len(s.heap) - 1
		s.heap[0] = s.heap[last]
		s.heap = s.heap[:last]
		s.down(0)
		at, rank := int32(uint32(top)), uint32(top>>32)
		if s.ranks[at] != rank {
			continue
		}
		right := s.next[at]
		symbols[at] = m.into[rank]
		s.next[at] = s.next[right]
		s.ranks[right] = none
		if after := s.next[at]; int(after) < n {
			s.previous[after] = at
			s.consider(m, at, symbols[at], symbols[after])
		} else {
			s.ranks[at] = none
		}
		if before := s.previous[at]; before >= 0 {
			s.consider(m, before, symbols[before], symbols[at])
		}
	}
	out := symbols[:0]
	for i := 0; i < n; i = int(s.next[i]) {
		out = append(out, symbols[i])
	}
	return out
}

func (s *mergeScratch) consider(m *merges, at int32, left, right uint32) {
	rank := m.rank(left, right)
	s.ranks[at] = rank
	if rank == none {
		return
	}
	s.heap = append(s.heap, uint64(rank)<<32|uint64(at))
	for i := len(s.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if s.heap[parent] <= s.heap[i] {
			return
		}
		s.heap[parent], s.heap[i] = s.heap[i], s.heap[parent]
		i = parent
	}
}

func (s *mergeScratch) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(s.heap) {
			return
		}
		if child+1 < len(s.heap) && s.heap[child+1] < s.heap[child] {
			child++
		}
		if s.heap[i] <= s.heap[child] {
			return
		}
		s.heap[i], s.heap[child] = s.heap[child], s.heap[i]
		i = child
	}
}

package tokenizer

import (
	"math/bits"
	"slices"
)

// none is the rank of a pair that is not merged; it is higher than all others.
const none = 1<<rankBits - 1

// merges maps pairs of token ids to the rank of their merge, and ranks to the merged token. A slot holds left, right and rank in one
// word, so that a look-up costs one cache line.
type merges struct {
	slots []uint64
	shift uint
	into  []uint32 // by rank
	pairs []pair   // by rank, until the model is made

	// likely has a bit for each pair that is merged, at a place that is computed from the pair. Most pairs that are asked for are not
	// merged, and most of these have no bit, so that the table, which is large and far, need not be asked.
	likely      []uint64
	likelyShift uint
	// bytes holds the ranks of pairs of bytes, where merging begins with bytes.
	bytes []uint32
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

// seal prepares for look-ups; no merge can be added after it.
func (m *merges) seal(bytes *[256]uint32) {
	size := max(bits.Len(uint(len(m.pairs)))+2, 6) // one bit of about six is set
	m.likelyShift = uint(64 - size)
	m.likely = make([]uint64, 1<<size/64)
	for _, p := range m.pairs {
		at := pairKey(p.left, p.right) * likelyFactor >> m.likelyShift
		m.likely[at/64] |= 1 << (at % 64)
	}
	if bytes == nil {
		return
	}
	m.bytes = make([]uint32, 1<<16)
	for i := range m.bytes {
		m.bytes[i] = none
		if left, right := bytes[i>>8], bytes[i&0xFF]; left > 0 && right > 0 {
			m.bytes[i] = m.rank(left-1, right-1)
		}
	}
}

const likelyFactor = 0xD1B54A32D192ED03

// rank returns the rank of a pair, or none.
func (m *merges) rank(left, right uint32) uint32 {
	key := pairKey(left, right)
	if at := key * likelyFactor >> m.likelyShift; m.likely[at/64]&(1<<(at%64)) == 0 {
		return none
	}
	return m.look(key)
}

func (m *merges) look(key uint64) uint32 {
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
	return m.applyShort(symbols, &ranks)
}

// applyBytes appends what is left of the bytes of a short piece, given the id+1 of each byte; all have one.
func (m *merges) applyBytes(dst []uint32, piece string, bytes *[256]uint32) []uint32 {
	var ranks [short]uint32
	var symbols [short]uint32
	n := len(piece)
	symbols[0] = bytes[piece[0]] - 1
	for i := 1; i < n; i++ {
		symbols[i] = bytes[piece[i]] - 1
		ranks[i-1] = m.bytes[int(piece[i-1])<<8|int(piece[i])]
	}
	return append(dst, m.applyShort(symbols[:n], &ranks)...)
}

// applyShort is apply for up to short symbols, given the ranks of their pairs. It leaves merged symbols where they are and links those
// that count; the lowest rank is found without branches, which no processor could foresee. What a pair becomes is read along with its rank,
// long before it is needed.
func (m *merges) applyShort(symbols []uint32, ranks *[short]uint32) []uint32 {
	n := len(symbols)
	var next, previous [short + 2]uint8
	var into [short]uint32
	for i := range n {
		next[i], previous[i+1] = uint8(i+1), uint8(i)
	}
	ranks[n-1] = none
	for i, r := range ranks[:n] {
		if r != none {
			into[i] = m.into[r]
		}
	}
	for {
		best := uint32(none)<<indexBits | (1<<indexBits - 1)
		for i, r := range ranks[:n] {
			best = min(best, r<<indexBits|uint32(i))
		}
		rank, at := best>>indexBits, best&(1<<indexBits-1)
		if rank == none {
			break
		}
		right := next[at]
		after := next[right]
		token := into[at]
		symbols[at] = token
		ranks[right] = none
		next[at], previous[after] = after, uint8(at)
		ranks[at] = none
		if int(after) < n {
			if r := m.rank(token, symbols[after]); r != none {
				ranks[at], into[at] = r, m.into[r]
			}
		}
		if at > 0 {
			before := previous[at]
			r := m.rank(symbols[before], token)
			if ranks[before] = r; r != none {
				into[before] = m.into[r]
			}
		}
	}
	out := symbols[:0]
	for i := 0; i < n; i = int(next[i]) {
		out = append(out, symbols[i])
	}
	return out
}

// indexBits holds a position below short beside a rank in 32 bits.
const indexBits = 6

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

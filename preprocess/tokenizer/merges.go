package tokenizer

import (
	"math/bits"
	"slices"
)

// none is the rank of a pair that is not merged; it is higher than all others.
const none = 1<<rankBits - 1

// merges maps pairs of token ids to the rank of their merge and to what they become.
//
// What a look-up costs is mostly waiting for memory that is far, so that all that may have to be read of a pair is in one cache line: a
// bucket of eight pairs. A pair is hashed to a number of as many bits as it has itself, so that different pairs have different ones. The
// upper bits of that say in which bucket the pair is, so that only the others have to be in it: its tag. How many bits ids and ranks have
// depends on the model, which is why all of this fits into 64.
type merges struct {
	buckets []bucket // behind those that pairs belong to are some for what the last ones have no room for
	// filter tells of most pairs that are not merged that they are not, where less memory has to be read: by bucket, which lower bits the right
	// parts of the pairs have that belong there.
	filter []uint32

	factor    uint64 // makes the hash of a pair, with room for a distance below it
	hashMask  uint64 // the bits of hash and distance
	homeShift uint64 // what is above are the bits of the bucket
	tagMask   uint64 // what is below
	idBits    uint64
	payload   uint64 // bits of an entry below the tag
	rankMask  uint64
	// nobody is in place of a symbol where a word begins and ends. No token has that id.
	nobody uint32

	// bytes holds, where merging begins with bytes, for all pairs of them where in bytePairs is what is known of them.
	bytes     []uint16
	bytePairs []bytePair

	// By rank, until the model is made.
	pairs []pair
	into  []uint32
}

// bucket holds entries for pairs. From the top: tag, distance, rank, id of what the pair becomes, and a bit that counts in the last one of the
// bucket only. A pair is in the bucket that it belongs to or, if that is full, in one behind it. The distance is how far behind.
type bucket [bucketPairs]uint64

const (
	bucketPairs  = 8
	pairFactor   = 0x9E3779B97F4A7C15
	distanceBits = 3
	beyond       = 1                  // the bit for: pairs that belong to this bucket or to one before are in the next
	vacant       = 1<<64 - 1 - beyond // an entry that is free; its tag is none that a pair has
	fewestIDBits = 8
)

func newMerges(n int) *merges {
	return &merges{into: make([]uint32, 0, n), pairs: make([]pair, 0, n)}
}

// add appends a merge, the next in rank. A pair that is there already gets the new rank.
func (m *merges) add(left, right, into uint32) {
	m.into = append(m.into, into)
	m.pairs = append(m.pairs, pair{left, right})
}

// seal prepares for look-ups of pairs of as many tokens; no merge can be added after it.
func (m *merges) seal(tokens int) {
	m.idBits = uint64(max(bits.Len(uint(tokens)), fewestIDBits))
	m.nobody = 1<<m.idBits - 1
	rankBits := uint64(bits.Len(uint(len(m.pairs))))
	m.rankMask = 1<<rankBits - 1
	m.payload = rankBits + m.idBits + 1
	hashBits := 2*m.idBits + distanceBits
	m.hashMask = 1<<hashBits - 1
	m.factor = uint64(pairFactor)
	m.factor <<= distanceBits
	homeBits := uint64(max(bits.Len(uint(len(m.pairs)/5)), 11))
	if all := hashBits + m.payload; all-homeBits > 63 {
		homeBits = all - 63
	}
	for !m.fill(homeBits, hashBits-homeBits) {
		homeBits++
	}
}

// fill puts all pairs into buckets. It fails if one comes to lie too far behind the bucket that it belongs to, or might be looked for there.
func (m *merges) fill(homeBits, homeShift uint64) bool {
	m.homeShift, m.tagMask = homeShift, 1<<homeShift-1
	m.buckets = make([]bucket, 1<<homeBits+1<<distanceBits)
	m.filter = make([]uint32, 1<<homeBits)
	for i := range m.buckets {
		for j := range bucketPairs {
			m.buckets[i][j] = vacant
		}
	}
	for rank, p := range m.pairs {
		home, tag := m.place(p.left, p.right)
		m.filter[home] |= 1 << (p.right % 32)
		entry := uint64(rank)<<(m.idBits+1) | uint64(m.into[rank])<<1
		for distance := uint64(0); !m.buckets[home+distance].put(tag+distance, entry, m.payload); distance++ {
			if distance+1 >= 1<<distanceBits {
				return false
			}
		}
	}
	full := 0 // in a row
	for i := range m.buckets {
		if full++; m.buckets[i][bucketPairs-1]&beyond == 0 {
			full = 0
		}
		if full >= 1<<distanceBits {
			return false
		}
	}
	return true
}

// put stores an entry, unless the bucket is full.
func (b *bucket) put(tag, entry, payload uint64) bool {
	for i := range b {
		if free := b[i]|beyond == vacant|beyond; free || b[i]>>payload == tag {
			b[i] = tag<<payload | entry | b[i]&beyond
			return true
		}
	}
	b[bucketPairs-1] |= beyond
	return false
}

// place returns the bucket that a pair belongs to and its tag there, above a distance of zero.
func (m *merges) place(left, right uint32) (home, tag uint64) {
	hash := (uint64(left)<<m.idBits | uint64(right)) * m.factor & m.hashMask
	return hash >> m.homeShift, hash & m.tagMask
}

// find returns the rank of a pair, given its place, and what it becomes; none if it is not merged.
func (m *merges) find(home, tag uint64) (rank, id uint32) {
	for ; ; home, tag = home+1, tag+1 {
		b := &m.buckets[home]
		for _, entry := range b {
			if entry>>m.payload == tag {
				return uint32(entry >> (m.idBits + 1) & m.rankMask), uint32(entry>>1) & m.nobody
			}
		}
		if b[bucketPairs-1]&beyond == 0 {
			return none, 0
		}
	}
}

// rank returns the rank of a pair and what it becomes; none if it is not merged.
func (m *merges) rank(left, right uint32) (rank, id uint32) {
	home, tag := m.place(left, right)
	if m.filter[home]>>(right%32)&1 == 0 {
		return none, 0
	}
	return m.find(home, tag)
}

// apply merges neighbours of symbols, the pair of lowest rank first and the leftmost of equals, until no pair is left. It works in
// place and returns what is left.
func (m *merges) apply(symbols []uint32, scratch *mergeScratch) []uint32 {
	if len(symbols) > laneSymbols {
		return m.applyHeap(symbols, scratch)
	}
	scratch.lanes.begin(m, 0, symbols)
	return scratch.lanes.run(m, 0, symbols[:0])
}

// mergeScratch is working memory of apply.
type mergeScratch struct {
	lanes          lanes // of which the first one is in use
	runs           []symbolRun
	heap           []uint64 // rank<<32 | position
	next, previous []int32
	ranks, ids     []uint32 // by position: of the pair that begins there, and what it becomes
}

// applyHeap is apply in n log n: neighbours are linked, pairs wait in a heap, and one that is out of date when it comes up is dropped.
func (m *merges) applyHeap(symbols []uint32, s *mergeScratch) []uint32 {
	n := len(symbols)
	s.heap = s.heap[:0]
	s.next = slices.Grow(s.next[:0], n)[:n]
	s.previous = slices.Grow(s.previous[:0], n)[:n]
	s.ranks = slices.Grow(s.ranks[:0], n)[:n]
	s.ids = slices.Grow(s.ids[:0], n)[:n]
	for i := range symbols {
		s.next[i], s.previous[i] = int32(i+1), int32(i-1)
		s.ranks[i] = none
		if i+1 < n {
			s.ranks[i], s.ids[i] = m.rank(symbols[i], symbols[i+1])
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
		symbols[at] = s.ids[at]
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
	rank, id := m.rank(left, right)
	s.ranks[at], s.ids[at] = rank, id
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

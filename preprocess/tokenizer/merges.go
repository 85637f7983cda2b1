package tokenizer

import (
	"math/bits"
	"slices"
)

// none is the rank of a pair that is not merged; it is higher than all others.
const none = 1<<rankBits - 1

// merges maps pairs of token ids to the rank of their merge, and ranks to the merged token.
//
// What a look-up costs is mostly waiting for memory that is far, so that all that may have to be read of a pair is in one cache line, and
// is read only if the pair is likely to be merged. Eight pairs fill a bucket. In place of a pair there is a part of its hash, which has as
// many bits as a pair; the rest of it is known from where the bucket is.
type merges struct {
	// buckets hold pairs from the one of their hash on. The first bucket stays empty, those that pairs belong to come behind it, and at the
	// end there are some for what the last ones have no room for.
	buckets []bucket
	homes   uint64 // how many buckets pairs belong to

	// likely has a bit for each pair that is merged, at a place that is computed from the pair. Most pairs that are asked for are not
	// merged, and most of these have no bit.
	likely      []uint64
	likelyShift uint64

	into []uint32 // by rank
	// bytes holds the ranks of pairs of bytes, where merging begins with bytes.
	bytes []uint32

	pairs []pair // by rank, until the model is made
}

// bucket holds pairs: the lower halves of their hashes, and their ranks. Free places have the rank none.
type bucket struct {
	tags  [bucketPairs]uint32
	ranks [bucketPairs]uint32 // the last one with the bit beyond if pairs that belong here are in the next bucket
}

const (
	bucketPairs = 8
	beyond      = 1 << 31

	// pairFactor makes hashes of pairs: the upper 2*idBits bits of the product, which are different for different pairs.
	pairFactor = 0x9E3779B97F400000
	tagShift   = 64 - 2*idBits
)

func newMerges(n int) *merges {
	return &merges{into: make([]uint32, 0, n), pairs: make([]pair, 0, n)}
}

// pairHash mixes a pair; the uppermost bits are mixed best.
func pairHash(left, right uint32) uint64 { return (uint64(left)<<idBits | uint64(right)) * pairFactor }

// add appends a merge, the next in rank. A pair that is there already gets the new rank.
func (m *merges) add(left, right, into uint32) {
	m.into = append(m.into, into)
	m.pairs = append(m.pairs, pair{left, right})
}

// seal prepares for look-ups; no merge can be added after it.
func (m *merges) seal() {
	homes := max(len(m.pairs)/5, 1<<11)
	for !m.fill(homes) {
		homes += homes / 4
	}
	size := max(bits.Len(uint(len(m.pairs)))+2, 6) // one bit of about six is set
	m.likelyShift = uint64(64 - size)
	m.likely = make([]uint64, 1<<size/64)
	for _, p := range m.pairs {
		at := pairHash(p.left, p.right) >> m.likelyShift
		m.likely[at/64] |= 1 << (at % 64)
	}
}

// fill puts all pairs into buckets. It fails if a pair comes to lie so far behind the bucket of its hash that a part of another pair's hash
// might be taken for its own: those of pairs that are less than 1<<32 apart are different.
func (m *merges) fill(homes int) bool {
	farthest := min(homes>>11, 16)
	m.homes = uint64(homes)
	m.buckets = make([]bucket, 1+homes+farthest)
	for i := range m.buckets {
		for j := range bucketPairs {
			m.buckets[i].ranks[j] = none
		}
	}
	for rank, p := range m.pairs {
		hash := pairHash(p.left, p.right)
		home := m.home(hash)
		for at := home; !m.buckets[at].put(uint32(hash>>tagShift), uint32(rank)); at++ {
			if at-home+1 >= uint64(farthest) {
				return false
			}
		}
	}
	return true
}

func (m *merges) home(hash uint64) uint64 {
	home, _ := bits.Mul64(hash, m.homes)
	return 1 + home
}

// put stores a rank, unless the bucket is full.
func (b *bucket) put(tag, rank uint32) bool {
	for i := range b.ranks {
		if free := b.ranks[i] == none; free || b.tags[i] == tag {
			b.tags[i] = tag
			b.ranks[i] = b.ranks[i]&beyond | rank
			return true
		}
	}
	b.ranks[bucketPairs-1] |= beyond
	return false
}

// joinBytes finds out the ranks of pairs of bytes, given the id+1 of each that merging may begin with.
func (m *merges) joinBytes(bytes *[256]uint32) {
	m.bytes = make([]uint32, 1<<16)
	for i := range m.bytes {
		m.bytes[i] = none
		if left, right := bytes[i>>8], bytes[i&0xFF]; left > 0 && right > 0 {
			m.bytes[i] = m.rank(left-1, right-1)
		}
	}
}

// rank returns the rank of a pair, or none.
func (m *merges) rank(left, right uint32) uint32 {
	hash := pairHash(left, right)
	if m.isLikely(hash) == 0 {
		return none
	}
	return m.find(m.home(hash), uint32(hash>>tagShift))
}

// isLikely is 1 if a pair with the hash may be merged, and 0 if it is not.
func (m *merges) isLikely(hash uint64) uint64 {
	at := hash >> m.likelyShift
	return m.likely[at/64] >> (at % 64) & 1
}

// find returns the rank of a pair, given the bucket it belongs to and its tag there.
func (m *merges) find(bucket uint64, tag uint32) uint32 {
	for ; ; bucket++ {
		b := &m.buckets[bucket]
		for i, t := range &b.tags {
			if t == tag {
				return b.ranks[i] & none
			}
		}
		if b.ranks[bucketPairs-1]&beyond == 0 {
			return none
		}
	}
}

// apply merges neighbours of symbols, the pair of lowest rank first and the leftmost of equals, until no pair is left. It works in
// place and returns what is left.
func (m *merges) apply(symbols []uint32, scratch *mergeScratch) []uint32 {
	if len(symbols) > laneSymbols {
		return m.applyHeap(symbols, scratch)
	}
	scratch.lane.begin(m, symbols)
	return scratch.lane.run(m, symbols[:0])
}

// mergeScratch is working memory of applyHeap.
type mergeScratch struct {
	lane           lane
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

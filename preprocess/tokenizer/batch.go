package tokenizer

import (
	"math"
	"math/bits"
)

// batch is a number of pieces that go through the steps of [wordEncoder.encode] together.
type batch struct {
	// bounds is where the first piece begins, and where each ends. There is room for what a scanner writes more than it needs.
	bounds  [batchPieces + 1 + windowSize]int32
	keys    [batchPieces]wordKey
	hashes  [batchPieces]uint64
	ids     [batchPieces]uint32   // of each piece, or where in spill its ids are
	missed  pieceBits             // which pieces are not recent
	several pieceBits             // which pieces are recent and have several ids
	kinds   [3][batchPieces]uint8 // of the missed ones: which are short, long and longer
	sizes   [3]uint32             // how many there are of each kind
	longs   [batchPieces]longKey  // of those that are too long for a key
	n       int
}

const batchPieces = 128

// pieceBits has a bit for each piece of a batch.
type pieceBits [batchPieces / 64]uint64

func (set *pieceBits) add(i int) { set[i/64] |= 1 << (i % 64) }

func (set *pieceBits) count() (n int) {
	for _, part := range set {
		n += bits.OnesCount64(part)
	}
	return n
}

// The kinds of pieces: those that a [wordKey] has room for, those that a [longKey] has room for, and longer ones.
const (
	shortPieces = iota
	longPieces
	longerPieces
)

// of returns the pieces of a kind that are not recent.
func (b *batch) of(kind int) []uint8 { return b.kinds[kind][:b.sizes[kind]] }

// insert adds the n pieces of which the bounds are behind those of the batch, with cuts among them, as far as there is room. It returns the cuts that
// are left.
func (b *batch) insert(n int, cuts []int32) []int32 {
	var scanned [batchPieces]int32
	copy(scanned[:n], b.bounds[b.n+1:])
	for i := 0; i < n && b.n < batchPieces; {
		next := int32(math.MaxInt32)
		if len(cuts) > 0 {
			next = cuts[0]
		}
		for i < n && b.n < batchPieces && scanned[i] <= next {
			b.n++
			b.bounds[b.n] = scanned[i]
			i++
		}
		if i == n || b.n == batchPieces {
			break
		}
		b.n++
		if b.bounds[b.n-1] < next {
			b.bounds[b.n] = next
			continue
		}
		b.bounds[b.n] = cuts[1]
		for i < n && scanned[i] <= cuts[1] {
			i++
		}
		cuts = cuts[2:]
	}
	return cuts
}

// findGeneric is find, from a piece on, without instructions of a particular processor. Nothing is in b.missed and b.several of these pieces.
func (r *recentWords) findGeneric(b *batch, s string, from int) {
	for i := from; i < b.n; i++ {
		key := makeWordKey(s, int(b.bounds[i]), int(b.bounds[i+1]-b.bounds[i]))
		b.keys[i], b.hashes[i] = key, key.hash()
		slot := r.slot(b.hashes[i])
		b.ids[i] = uint32(slot.high >> keyBits)
		if slot.differs(key) != 0 {
			b.missed.add(i)
		} else if slot.high&severalIDs != 0 {
			b.several.add(i)
		}
	}
}

// byLengthGeneric is byLength without instructions of a particular processor.
func (b *batch) byLengthGeneric() {
	var shorts, longs, longers uint32
	for part, missed := range b.missed {
		for ; missed != 0; missed &= missed - 1 {
			i := uint8(64*part + bits.TrailingZeros64(missed))
			size := uint32(b.bounds[int(i)+1] - b.bounds[i])
			isShort, isLonger := (size-shortWord-1)>>31, (cachedWord-size)>>31 // 1 or 0: no branch that nothing could foresee
			b.kinds[shortPieces][shorts%batchPieces], b.kinds[longPieces][longs%batchPieces], b.kinds[longerPieces][longers%batchPieces] = i, i, i
			shorts += isShort
			longers += isLonger
			longs += 1 - isShort - isLonger
		}
	}
	b.sizes = [3]uint32{shorts, longs, longers}
}

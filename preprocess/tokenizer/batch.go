package tokenizer

import (
	"math"
	"unsafe"

	"signalbox/internal/prefetch"
)

// batch is a number of pieces that go through the steps of [wordEncoder.encode] together.
type batch struct {
	bounds  [batchPieces + 1]int32 // where the first piece begins, and where each ends
	keys    [batchPieces]wordKey
	hashes  [batchPieces]uint64
	ids     [batchPieces]uint32   // of each piece, or where in spill its ids are
	missed  [batchPieces]uint8    // which pieces are not recent
	several [batchPieces]uint8    // which pieces are recent and have several ids
	kinds   [3][batchPieces]uint8 // of the missed ones: which are short, long and longer
	sizes   [3]uint32             // how many there are of each kind
	longs   [batchPieces]longKey  // of those that are too long for a key
	n       int
}

const batchPieces = 128

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

// prepare computes the keys and hashes of the pieces and asks for their places among the recent words.
func (r *recentWords) prepare(b *batch, s string) {
	r.prepareGeneric(b, s, b.prepareFast(r, s))
}

// prepareGeneric is prepare, from a piece on, without instructions of a particular processor.
func (r *recentWords) prepareGeneric(b *batch, s string, from int) {
	for i := from; i < b.n; i++ {
		at, end := int(b.bounds[i]), int(b.bounds[i+1])
		key := longPieceKey
		if size := end - at; size <= shortWord {
			key = makeWordKey(s, at, size)
		}
		b.keys[i], b.hashes[i] = key, key.hash()
		prefetch.One(unsafe.Pointer(r.slot(b.hashes[i])))
	}
}

// compareGeneric is compare without instructions of a particular processor.
func (r *recentWords) compareGeneric(b *batch) (misses, splits uint64) {
	for i := range b.n {
		key := b.keys[i]
		slot := r.slot(b.hashes[i])
		b.ids[i] = uint32(slot.high >> keyBits)
		b.missed[misses%batchPieces], b.several[splits%batchPieces] = uint8(i), uint8(i)
		difference := slot.differs(key)
		miss := (difference | -difference) >> 63 // 0 or 1, without a branch
		misses += miss
		splits += slot.high >> 63 &^ miss
	}
	return misses, splits
}

// byLength tells which pieces are of which kind.
func (b *batch) byLength(pieces []uint8) {
	var shorts, longs, longers uint32
	for _, i := range pieces {
		size := uint32(b.bounds[int(i)+1] - b.bounds[i])
		isShort, isLonger := (size-shortWord-1)>>31, (cachedWord-size)>>31 // 1 or 0: no branch that nothing could foresee
		b.kinds[shortPieces][shorts%batchPieces], b.kinds[longPieces][longs%batchPieces], b.kinds[longerPieces][longers%batchPieces] = i, i, i
		shorts += isShort
		longers += isLonger
		longs += 1 - isShort - isLonger
	}
	b.sizes = [3]uint32{shorts, longs, longers}
}

package tokenizer

import "unsafe"

// prepareFast does what prepare does for those pieces of which 16 bytes can be read. It returns how many these are.
func (b *batch) prepareFast(r *recentWords, s string) int {
	n := b.n
	for n > 0 && int(b.bounds[n-1])+16 > len(s) {
		n--
	}
	prepareAMD64(b, &r.slots[0], unsafe.StringData(s), n)
	return n
}

// compare writes the ids of those pieces that are recent words of one id, and returns which pieces are not among the recent words, and which are
// and have several ids.
func (r *recentWords) compare(b *batch) (missed, several []uint8) {
	misses, splits := compareAMD64(b, &r.slots[0], b.n)
	return b.missed[:misses], b.several[:splits]
}

// findWhole writes the ids of those of the short pieces that are one token and makes them recent words. The others stay in b.
func (w *wholeWords) findWhole(r *recentWords, b *batch) {
	if hasAVX2 {
		b.sizes[shortPieces] = findWholeAVX2(b, &r.slots[0], &w.lines[0], uint64(w.shift), b.sizes[shortPieces])
		return
	}
	b.sizes[shortPieces] = w.findWholeGeneric(r, b)
}

// writeFew writes the ids of the pieces from i on into room, up to one that has more than recentIDs of them. It returns the place of that
// one, and how many it has written. Room is for recentIDs more than these.
func (r *recentWords) writeFew(i int, room []uint32) (next, written int) {
	return writeFewAMD64(&r.ids, i, r.count, unsafe.SliceData(r.spill), &room[0])
}

// writeFewAMD64 is writeFewGeneric without branches that nothing could foresee: of each piece as many ids are copied as most have at most.
//
//go:noescape
func writeFewAMD64(ids *[windowPieces]uint32, i, n int, spill, room *uint32) (next, written int)

//go:noescape
func prepareAMD64(b *batch, slots *wordKey, text *byte, n int)

//go:noescape
func compareAMD64(b *batch, slots *wordKey, n int) (misses, splits uint64)

//go:noescape
func findWholeAVX2(b *batch, slots *wordKey, lines *wholeLine, shift uint64, n uint32) (others uint32)

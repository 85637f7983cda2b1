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

// compare writes the ids of those pieces that are recent words of one id, and finds out which pieces are not among the recent words, and which are
// and have several ids.
func (r *recentWords) compare(b *batch) {
	b.missed, b.several = pieceBits{}, pieceBits{}
	compareAMD64(b, &r.slots[0], b.n)
	// Bits come from above, so that those of the last part are not where they belong if there are few.
	last, few := b.n/64, b.n%64
	if few > 0 {
		b.missed[last] >>= 64 - few
		b.several[last] >>= 64 - few
	}
	for i := range b.several {
		b.several[i] &^= b.missed[i]
	}
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

// compareAMD64 does most of compare: pieces in b.several may be missed.
//
//go:noescape
func compareAMD64(b *batch, slots *wordKey, n int)

//go:noescape
func findWholeAVX2(b *batch, slots *wordKey, lines *wholeLine, shift uint64, n uint32) (others uint32)

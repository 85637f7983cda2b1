package tokenizer

import "unsafe"

// findWhole writes the ids of those of the short pieces that are one token and makes them recent words. The others stay in b.
func (w *wholeWords) findWhole(r *recentWords, b *batch) {
	if hasAVX2 {
		b.sizes[shortPieces] = findWholeAVX2(b, &r.slots[0], &w.lines[0], uint64(w.shift), b.sizes[shortPieces])
		return
	}
	b.sizes[shortPieces] = w.findWholeGeneric(r, b)
}

// writeFew writes the ids of the pieces from i on into room, up to one that has more than recentIDs of them. It returns the place of that
// one, and how many it has written. Room is for idRoom more than these.
func (r *recentWords) writeFew(i int, room []uint32) (next, written int) {
	if hasVAES {
		return writeFewAVX512(&r.ids, i, r.count, unsafe.SliceData(r.spill), &room[0])
	}
	return writeFewAMD64(&r.ids, i, r.count, unsafe.SliceData(r.spill), &room[0])
}

// writeFewAVX512 is writeFewGeneric by runs of pieces that have one id.
//
//go:noescape
func writeFewAVX512(ids *[windowPieces + idRoom]uint32, i, n int, spill, room *uint32) (next, written int)

// writeFewAMD64 is writeFewGeneric without branches that nothing could foresee: of each piece as many ids are copied as most have at most.
//
//go:noescape
func writeFewAMD64(ids *[windowPieces + idRoom]uint32, i, n int, spill, room *uint32) (next, written int)

// prepareAMD64 computes the keys and hashes of n pieces, of which 16 bytes can be read.
//
//go:noescape
func prepareAMD64(b *batch, slots *wordKey, text *byte, n int)

// compareAMD64 looks for n pieces among the recent words. Pieces in b.several may be missed.
//
//go:noescape
func compareAMD64(b *batch, slots *wordKey, n int)

//go:noescape
func findWholeAVX2(b *batch, slots *wordKey, lines *wholeLine, shift uint64, n uint32) (others uint32)

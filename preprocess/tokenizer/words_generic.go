//go:build !amd64

package tokenizer

// prepareFast does what prepare does for as many pieces as there is a faster way for. It returns how many these are.
func (b *batch) prepareFast(r *recentWords, s string) int { return 0 }

// compare writes the ids of those pieces that are recent words of one id, and finds out which pieces are not among the recent words, and which are
// and have several ids.
func (r *recentWords) compare(b *batch) { r.compareGeneric(b) }

// findWhole writes the ids of those of the short pieces that are one token and makes them recent words. The others stay in b.
func (w *wholeWords) findWhole(r *recentWords, b *batch) {
	b.sizes[shortPieces] = w.findWholeGeneric(r, b)
}

// writeFew writes the ids of the pieces from i on into room, up to one that has more than recentIDs of them. It returns the place of that
// one, and how many it has written. Room is for recentIDs more than these.
func (r *recentWords) writeFew(i int, room []uint32) (next, written int) {
	return r.writeFewGeneric(i, room)
}

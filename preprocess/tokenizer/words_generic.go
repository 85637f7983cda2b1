//go:build !amd64

package tokenizer

// hash returns what tables know the word by.
func (k wordKey) hash() uint64 { return k.product() }

// hash returns what tables know the word by.
func (key *longKey) hash() uint64 { return key.product() }

// find computes the keys and hashes of the pieces, writes the ids of those that are recent words of one id, and finds out which pieces are not
// among the recent words, and which are and have several ids.
func (r *recentWords) find(b *batch, s string) {
	b.missed, b.several = pieceBits{}, pieceBits{}
	r.findGeneric(b, s, 0)
}

// findWhole writes the ids of those of the short pieces that are one token and makes them recent words. The others stay in b.
func (w *wholeWords) findWhole(r *recentWords, b *batch) {
	b.sizes[shortPieces] = w.findWholeGeneric(r, b)
}

// writeFew writes the ids of the pieces from i on into room, up to one that has more than recentIDs of them. It returns the place of that
// one, and how many it has written. Room is for idRoom more than these.
func (r *recentWords) writeFew(i int, room []uint32) (next, written int) {
	return r.writeFewGeneric(i, room)
}

// byLength tells of which kind the missed pieces are.
func (b *batch) byLength() { b.byLengthGeneric() }

// askShort asks for what the short pieces may be in.
func (w *wordEncoder) askShort(b *batch) { w.askShortGeneric(b) }

// askLong asks for what the long pieces may be in.
func (w *wordEncoder) askLong(b *batch, s string) { w.askLongGeneric(b, s, 0) }

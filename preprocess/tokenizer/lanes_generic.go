//go:build !amd64

package tokenizer

// step takes a step in each of the lanes that order names, at least one: it notes what came of the pairs that are looked up, and merges the
// next pair. It returns a bit for each place in order whose lane has no pair left.
func (m *merges) step(g *lanes, order []uint8) (done uint64) { return m.stepGeneric(g, order) }

// joinFirst puts the bytes of a piece into the lane, merges the pairs that are merged whatever else is, and begins to look up those that these
// make with their neighbours.
func (l *lane) joinFirst(m *merges, wanted *wantedPairs, piece string, bytes *[256]uint32) {
	l.joinFirstGeneric(m, wanted, piece, bytes)
}

// put puts symbols into the lane and begins to look up the pairs of neighbours.
func (l *lane) put(m *merges, wanted *wantedPairs, symbols []uint32) {
	l.putGeneric(m, wanted, symbols)
}

// askPairs does nothing.
func (m *merges) askPairs(piece string) {}

// unlink takes all pairs out of the lane and links all of its places.
func (l *lane) unlink() { l.unlinkGeneric() }

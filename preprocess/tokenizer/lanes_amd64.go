package tokenizer

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasBMI2 = cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// step takes a step in each of the lanes that order names, at least one: it notes what came of the pairs that are looked up, and merges the
// next pair. It returns a bit for each place in order whose lane has no pair left.
func (m *merges) step(g *lanes, order []uint8) (done uint64) {
	if hasAVX2 && hasBMI2 {
		return stepAVX2(g, &order[0], len(order), m)
	}
	return m.stepGeneric(g, order)
}

// joinFirst puts the bytes of a piece into the lane, merges the pairs that are merged whatever else is, and begins to look up those that these
// make with their neighbours.
func (l *lane) joinFirst(m *merges, wanted *wantedPairs, piece string, bytes *[256]uint32) {
	if hasBMI2 {
		joinFirstBMI2(l, m, wanted, unsafe.StringData(piece), len(piece), bytes)
		return
	}
	l.joinFirstGeneric(m, wanted, piece, bytes)
}

// stepAVX2 is stepGeneric with instructions that compare several numbers at once.
//
//go:noescape
func stepAVX2(all *lanes, order *uint8, n int, m *merges) (done uint64)

// joinFirstBMI2 is joinFirstGeneric without branches that nothing could foresee.
//
//go:noescape
func joinFirstBMI2(l *lane, m *merges, wanted *wantedPairs, text *byte, n int, bytes *[256]uint32)

// askPairs asks for what is to be known of the pairs of bytes of a piece.
func (m *merges) askPairs(piece string) {
	askPairsAMD64(m, unsafe.StringData(piece), len(piece))
}

//go:noescape
func askPairsAMD64(m *merges, text *byte, n int)

// put puts symbols into the lane and begins to look up the pairs of neighbours.
func (l *lane) put(m *merges, wanted *wantedPairs, symbols []uint32) {
	if hasBMI2 {
		putBMI2(l, m, wanted, &symbols[0], len(symbols))
		return
	}
	l.putGeneric(m, wanted, symbols)
}

//go:noescape
func putBMI2(l *lane, m *merges, wanted *wantedPairs, symbols *uint32, n int)

// unlink takes all pairs out of the lane and links all of its places, or the narrow ones if it is not wide.
func (l *lane) unlink() {
	if hasAVX2 {
		unlinkAVX2(l, &unmerged)
		return
	}
	l.unlinkGeneric()
}

//go:noescape
func unlinkAVX2(l, unmerged *lane)

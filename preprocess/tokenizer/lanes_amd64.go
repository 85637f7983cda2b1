package tokenizer

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasBMI2 = cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// step takes a step in each of the lanes that order names, at least one: it notes what came of the pairs that are looked up, and merges the
// next pair. It returns a bit for each place in order whose lane has no pair left.
func (m *merges) step(lanes []lane, order []uint8) (done uint64) {
	if hasAVX2 && hasBMI2 {
		return stepAVX2(&lanes[0], &order[0], len(order), m)
	}
	return m.stepGeneric(lanes, order)
}

// joinFirst puts the bytes of a piece into the lane, merges the pairs that are merged whatever else is, and begins to look up those that these
// make with their neighbours.
func (l *lane) joinFirst(m *merges, piece string, bytes *[256]uint32) {
	if hasBMI2 {
		joinFirstBMI2(l, m, unsafe.StringData(piece), len(piece), bytes)
		return
	}
	l.joinFirstGeneric(m, piece, bytes)
}

// stepAVX2 is stepGeneric with instructions that compare several numbers at once.
//
//go:noescape
func stepAVX2(lanes *lane, order *uint8, n int, m *merges) (done uint64)

// joinFirstBMI2 is joinFirstGeneric without branches that nothing could foresee.
//
//go:noescape
func joinFirstBMI2(l *lane, m *merges, text *byte, n int, bytes *[256]uint32)

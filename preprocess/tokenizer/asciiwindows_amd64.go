package tokenizer

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var hasBitCounts = cpu.X86.HasLZCNT && cpu.X86.HasPOPCNT

// cut is for [quickCutter].
func (r *asciiRules) cut(text string, i int, ends []int32) (next, n int) {
	if !hasWindowCuts() || i+windowSize > len(text) || cap(ends)-len(ends) < windowSize {
		return i, 0
	}
	next, n = cutASCII(r, unsafe.StringData(text), i, len(text)-windowSize, &ends[0], len(ends))
	return next, min(n, len(ends))
}

// hasWindowCuts tells of all instructions that quickCutters use.
func hasWindowCuts() bool { return hasVBMI2 && hasBMI2 && hasBitCounts }

// cutASCII does what [window.starts] does, and [windowed] with it, for windows from the place from up to last, until it has written n ends or more. There
// has to be room for windowSize more. It ends early where there is what it does not know: bytes beyond ASCII, what may be a contraction, and windows
// without a place that is certain.
//
//go:noescape
func cutASCII(rules *asciiRules, text *byte, from, last int, ends *int32, n int) (next, written int)

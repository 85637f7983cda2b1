package tokenizer

import "golang.org/x/sys/cpu"

var (
	hasAVX2  = cpu.X86.HasAVX2
	hasVBMI2 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI2
)

// classify tells the classes of the bytes.
func (w *window) classify(b *[windowSize]byte) {
	switch {
	case hasVBMI2:
		classifyAVX512(w, b)
	case hasAVX2:
		classifyAVX2(w, b)
	default:
		w.classifyGeneric(b)
	}
}

// classifyAVX512 is classifyGeneric with instructions that work on 64 bytes at once.
//
//go:noescape
func classifyAVX512(w *window, b *[windowSize]byte)

// classifyAVX2 is classifyGeneric with instructions that work on 32 bytes at once.
//
//go:noescape
func classifyAVX2(w *window, b *[windowSize]byte)

// gather tells by the class of each byte which bytes are of a class.
func (c *wideClasses) gather(kinds *[windowSize]wideClass) {
	if hasAVX2 {
		gatherAVX2(c, kinds)
	} else {
		c.gatherGeneric(kinds)
	}
}

// gatherAVX2 is gatherGeneric with instructions that work on 32 bytes at once.
//
//go:noescape
func gatherAVX2(c *wideClasses, kinds *[windowSize]wideClass)

// equal tells which bytes are c, one of ASCII.
func equal(b *[windowSize]byte, c byte) uint64 {
	if hasAVX2 {
		return equalAVX2(b, c)
	}
	return equalGeneric(b, c)
}

// equalAVX2 is equalGeneric with instructions that work on 32 bytes at once.
//
//go:noescape
func equalAVX2(b *[windowSize]byte, c byte) uint64

// leads tells which bytes begin a character beyond ASCII.
func leads(b *[windowSize]byte) uint64 {
	if hasAVX2 {
		return leadsAVX2(b)
	}
	return leadsGeneric(b)
}

// leadsAVX2 is leadsGeneric with instructions that work on 32 bytes at once.
//
//go:noescape
func leadsAVX2(b *[windowSize]byte) uint64

// listPlaces writes the places that have a bit, with base added to each, as far as there is room, and returns how many these are. What is in the
// capacity of room behind its length is changed, too.
func listPlaces(room []int32, base int32, places uint64) int {
	if hasVBMI2 && cap(room) >= windowSize {
		return min(listPlacesVBMI2(&room[0], base, places), len(room))
	}
	return listPlacesGeneric(room, base, places)
}

// listPlacesVBMI2 is listPlacesGeneric for room of windowSize, with an instruction that moves what has a bit to the front.
//
//go:noescape
func listPlacesVBMI2(room *int32, base int32, places uint64) int

// upTo64 are the numbers below 64.
var upTo64 = func() (numbers [64]uint8) {
	for i := range numbers {
		numbers[i] = uint8(i)
	}
	return numbers
}()

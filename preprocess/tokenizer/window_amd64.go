package tokenizer

import "golang.org/x/sys/cpu"

var hasAVX2 = cpu.X86.HasAVX2

// classify tells the classes of the bytes.
func (w *window) classify(b *[windowSize]byte) {
	if hasAVX2 {
		classifyAVX2(w, b)
	} else {
		w.classifyGeneric(b)
	}
}

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

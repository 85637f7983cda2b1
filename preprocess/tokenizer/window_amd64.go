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

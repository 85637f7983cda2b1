//go:build !amd64

package tokenizer

// classify tells the classes of the bytes.
func (w *window) classify(b *[windowSize]byte) { w.classifyGeneric(b) }

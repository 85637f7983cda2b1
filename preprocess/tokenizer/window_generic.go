//go:build !amd64

package tokenizer

// classify tells the classes of the bytes.
func (w *window) classify(b *[windowSize]byte) { w.classifyGeneric(b) }

// gather tells by the class of each byte which bytes are of a class.
func (c *wideClasses) gather(kinds *[windowSize]wideClass) { c.gatherGeneric(kinds) }

// leads tells which bytes begin a character beyond ASCII.
func leads(b *[windowSize]byte) uint64 { return leadsGeneric(b) }

//go:build !amd64

package tokenizer

// classify tells the classes of the bytes.
func (w *window) classify(b *[windowSize]byte) { w.classifyGeneric(b) }

// gather tells by the class of each byte which bytes are of a class.
func (c *wideClasses) gather(kinds *[windowSize]wideClass) { c.gatherGeneric(kinds) }

// equal tells which bytes are c, one of ASCII.
func equal(b *[windowSize]byte, c byte) uint64 { return equalGeneric(b, c) }

// leads tells which bytes begin a character beyond ASCII.
func leads(b *[windowSize]byte) uint64 { return leadsGeneric(b) }

// listPlaces writes the places that have a bit, with base added to each, as far as there is room, and returns how many these are.
func listPlaces(room []int32, base int32, places uint64) int {
	return listPlacesGeneric(room, base, places)
}

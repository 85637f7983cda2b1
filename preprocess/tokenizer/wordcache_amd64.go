//go:build !race

package tokenizer

// An atomic store of Go is an exchange on this processor, which waits until all stores before it have come to the cache. Readers of a word
// only need its parts in order, and so plain stores do, but not such as the compiler may change.

// write writes the word, which readers do not take for whole before high is there.
func (slot *shortSlot) write(low, ids, otherIDs, high uint64) {
	writeShort(slot, low, ids, otherIDs, high)
}

// write writes the word, which readers do not take for whole before state is there.
func (c *longSlot) write(text *[cachedWord / 8]uint64, ids *[longIDs / 3]uint64, state uint64) {
	writeLong(c, text, ids, state)
}

//go:noescape
func writeShort(slot *shortSlot, low, ids, otherIDs, high uint64)

//go:noescape
func writeLong(slot *longSlot, text *[cachedWord / 8]uint64, ids *[longIDs / 3]uint64, state uint64)

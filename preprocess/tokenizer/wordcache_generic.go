//go:build !amd64 || race

package tokenizer

// write writes the word, which readers do not take for whole before high is there.
func (slot *shortSlot) write(low, ids, otherIDs, high uint64) {
	slot.low.Store(low)
	slot.ids[0].Store(ids)
	slot.ids[1].Store(otherIDs)
	slot.high.Store(high)
}

// write writes the word, which readers do not take for whole before state is there.
func (c *longSlot) write(text *[cachedWord / 8]uint64, ids *[longIDs / 3]uint64, state uint64) {
	for i := range text {
		c.word[i].Store(text[i])
	}
	for i := range ids {
		c.ids[i].Store(ids[i])
	}
	c.state.Store(state)
}

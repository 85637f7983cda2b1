package tokenizer

// idSet is a set of token ids: a bit for each.
type idSet []uint64

func (s *idSet) add(id uint32) {
	for int(id/64) >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[id/64] |= 1 << (id % 64)
}

func (s idSet) has(id uint32) bool {
	return int(id/64) < len(s) && s[id/64]>>(id%64)&1 != 0
}

package tokenizer

// greedy encodes without merging: it goes through the text and takes the longest token that may follow the one before, where may means
// that merging the two texts together gives just these two tokens. A sequence of tokens of which all neighbours may be such is what
// merging makes of the whole text, since there is only one. Where no token may follow it goes back by one.
type greedy struct {
	merges  *merges
	origins *origins
	tokens  *trie
	vocab   *vocabulary
}

// newGreedy returns nil where the way is not open: too large a vocabulary.
func newGreedy(b *bpe) *greedy {
	v := b.vocab
	var byLength [][]uint32
	edges := 0
	for id, known := range b.origins.known {
		if !known {
			continue
		}
		size := len(v.token(uint32(id)))
		for size >= len(byLength) {
			byLength = append(byLength, nil)
		}
		byLength[size] = append(byLength[size], uint32(id))
		edges++
	}
	t := newTrie(len(v.spans), 3*edges)
	// Tokens become nodes before what they are the beginning of: a node's number has to be the token's id.
	for _, ids := range byLength {
		for _, id := range ids {
			if known, ok := v.idOf(v.token(id)); ok && known == id && !t.add(v.token(id), id) {
				return nil
			}
		}
	}
	return &greedy{merges: b.merges, origins: b.origins, tokens: t, vocab: v}
}

func (g *greedy) size(id uint32) int {
	s := g.vocab.spans[id]
	return int(s.end - s.start)
}

const anyLength = 1 << 30

// encode appends the ids of text; false if some of it is no token at all, dst is then as it was.
func (g *greedy) encode(dst []uint32, text string) ([]uint32, bool) {
	start := len(dst)
	var dead map[int]bool // places from which there is no way on; there are few if any
	at := 0
	limit := anyLength
	for at < len(text) {
		id, size := g.tokens.longest(text, at, limit)
		if size == 0 {
			if len(dst) == start {
				return dst, false
			}
			if dead == nil {
				dead = make(map[int]bool)
			}
			dead[at] = true
			last := dst[len(dst)-1]
			dst = dst[:len(dst)-1]
			limit = g.size(last) - 1
			at -= g.size(last)
			continue
		}
		if dead[at+size] || len(dst) > start && !g.origins.meet(g.merges, dst[len(dst)-1], id, none) {
			limit = size - 1
			continue
		}
		dst = append(dst, id)
		at += size
		limit = anyLength
	}
	return dst, true
}

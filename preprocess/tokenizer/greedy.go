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

// encode appends the ids of text. It returns false, and dst as it was, if some of the text is no token at all, or if it is of the rare
// kind, such as long runs of one character, in which nearly no token may follow another one, so that merging is faster.
func (g *greedy) encode(dst []uint32, text string) ([]uint32, bool) {
	start := len(dst)
	var dead []uint64 // bits of places from which there is no way on; most texts have none
	at := 0
	tries := 32 + len(text)/2
	for at < len(text) {
		id := g.tokens.longest(text, at)
		for {
			if id == noShorter { // go back and take a shorter token there
				if len(dst) == start {
					return dst, false
				}
				if dead == nil {
					dead = make([]uint64, len(text)/64+1)
				}
				dead[at/64] |= 1 << (at % 64)
				id = dst[len(dst)-1]
				dst = dst[:len(dst)-1]
				at -= g.size(id)
				id = g.tokens.shorter[id]
				continue
			}
			end := at + g.size(id)
			if (dead == nil || dead[end/64]&(1<<(end%64)) == 0) && (len(dst) == start || g.origins.meet(g.merges, dst[len(dst)-1], id, none)) {
				dst = append(dst, id)
				at = end
				break
			}
			id = g.tokens.shorter[id]
			if tries--; tries < 0 {
				return dst[:start], false
			}
		}
	}
	return dst, true
}

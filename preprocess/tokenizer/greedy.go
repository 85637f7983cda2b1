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

func newGreedy(b *bpe) *greedy {
	v := b.vocab
	var ids []uint32
	for id, known := range b.origins.known {
		if !known || len(v.token(uint32(id))) == 0 {
			continue
		}
		if v.owns(uint32(id)) {
			ids = append(ids, uint32(id))
		}
	}
	return &greedy{merges: b.merges, origins: b.origins, tokens: newTrie(v, ids), vocab: v}
}

func (g *greedy) size(id uint32) int {
	s := g.vocab.spans[id]
	return int(s.end - s.start)
}

// encode appends the ids of text. It returns false, and dst as it was, if some of the text is no token at all, or if it is of the rare
// kind, such as long runs of one character, in which nearly no token may follow another one, so that merging is faster.
func (g *greedy) encode(dst []uint32, text string) ([]uint32, bool) {
	if len(text) > 32 && text[:16] == text[1:17] {
		return dst, false // a run
	}
	start := len(dst)
	var dead []uint64 // bits of places from which there is no way on; most texts have none
	at := 0
	tries := 16 + len(text)/4
	for at < len(text) {
		id := g.tokens.longest(text, at)
		for {
			if id == noToken32 { // go back and take a shorter token there
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

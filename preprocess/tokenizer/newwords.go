package tokenizer

import (
	"math/bits"
	"slices"
	"strings"
)

// freshWord is a piece that no table has.
type freshWord struct {
	hash       uint64
	key        wordKey
	piece      uint16 // its place in recentWords.ids
	start, end int32
}

// addFresh notes that no table has a piece of a batch, whose first piece comes behind those that are in r.ids.
func (r *recentWords) addFresh(b *batch, i uint8) {
	r.fresh = append(r.fresh, freshWord{b.hashes[i], b.keys[i], uint16(r.count + int(i)), b.bounds[i], b.bounds[int(i)+1]})
}

// merge encodes the pieces that no table has.
func (w *wordEncoder) merge(r *recentWords, s string) {
	words := r.unlike(s)
	var order [laneCount]uint8 // the lanes that are in use come first
	active, at := 0, 0
	for active < laneCount {
		if at = w.take(r, s, words, at, uint8(active)); at == 0 {
			break
		}
		order[active] = uint8(active)
		active++
	}
	for active > 0 {
		done := w.bpe.merges.step(&r.lanes, order[:active])
		for done != 0 {
			place := bits.Len64(done) - 1
			done &^= 1 << place
			l := &r.lanes.all[order[place]]
			start := len(r.spill)
			r.spill = l.out(append(r.spill, 0))
			w.merged(r, &words[l.word], s, start)
			if at > 0 {
				at = w.take(r, s, words, at, order[place])
			}
			if at == 0 {
				active--
				order[place], order[active] = order[active], order[place]
			}
		}
	}
	r.repeat()
	r.fresh = r.fresh[:0]
}

// merged notes the ids of a word, which are in the spill from start on.
func (w *wordEncoder) merged(r *recentWords, word *freshWord, s string, start int) {
	r.ids[word.piece] = r.spillFrom(start)
	r.spill = slices.Grow(r.spill, longIDs) // so that tables may read more than there are
	w.remember(r, word, s[word.start:word.end], r.spill[start+1:])
}

// repeat is a piece that equals an earlier one.
type repeat struct{ piece, first uint16 }

// unlike returns those of the fresh words that are the first of their kind; a few of the others may be among them. All that it leaves out are
// in r.repeats.
func (r *recentWords) unlike(s string) []freshWord {
	r.repeats = r.repeats[:0]
	if len(r.fresh) == 0 {
		return nil
	}
	var firsts [256]uint16 // by hash: a place in unlike, +1
	unlike := r.fresh[:0]
	for _, word := range r.fresh {
		first := &firsts[word.hash%uint64(len(firsts))]
		if *first > 0 {
			if same := &unlike[*first-1]; same.hash == word.hash && s[same.start:same.end] == s[word.start:word.end] {
				r.repeats = append(r.repeats, repeat{word.piece, same.piece})
				continue
			}
		}
		unlike = append(unlike, word)
		*first = uint16(len(unlike))
	}
	return unlike
}

// repeat notes the ids of the pieces that equal earlier ones.
func (r *recentWords) repeat() {
	for _, again := range r.repeats {
		r.ids[again.piece] = r.ids[again.first]
		r.repeated += int(r.spill[r.ids[again.first]&^spilled])
	}
}

// take puts the first of the words from at on into a lane and returns the place behind it; 0 if there is none. Those that need no merging, or do
// not fit into a lane, are encoded at once.
func (w *wordEncoder) take(r *recentWords, s string, words []freshWord, at int, lane uint8) int {
	for ; at < len(words); at++ {
		word := &words[at]
		text := s[word.start:word.end]
		start := len(r.spill)
		if len(text) > cachedWord { // shorter ones are in the tables of whole words
			if id, ok := w.longest[text]; ok {
				r.spill = append(r.spill, 0, id)
				w.merged(r, word, s, start)
				continue
			}
		}
		r.lanes.all[lane].word = uint32(at)
		if w.mark == "" && w.bpe.fill(&r.lanes, lane, text) || w.mark != "" && w.bpe.fillMarked(&r.lanes, lane, text) {
			if at+1 < len(words) && w.mark == "" {
				next := &words[at+1]
				w.bpe.merges.askPairs(s[next.start:next.end])
			}
			return at + 1
		}
		r.spill = w.encodeAlone(append(r.spill, 0), w.marked(text))
		w.merged(r, word, s, start)
	}
	return 0
}

// marked returns a piece as the model writes it.
func (w *wordEncoder) marked(piece string) string {
	if w.mark == "" {
		return piece
	}
	return strings.ReplaceAll(piece, " ", w.mark)
}

// encodeLong encodes a piece on its own, whether it is a word or not.
func (w *wordEncoder) encodeLong(dst []uint32, piece string) []uint32 {
	if id, ok := w.longest[piece]; ok {
		return append(dst, id)
	}
	return w.encodeAlone(dst, w.marked(piece))
}

// encodeAlone encodes a piece that is not one token, given as the model writes it.
func (w *wordEncoder) encodeAlone(dst []uint32, marked string) []uint32 {
	if w.mark != "" {
		return w.bpe.encodeMarked(dst, marked)
	}
	return w.bpe.mergeAll(dst, marked)
}

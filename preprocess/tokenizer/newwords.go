package tokenizer

import (
	"math/bits"
	"strings"
)

// merge encodes the pieces of a batch that no table has. They are words, of at most cachedWord bytes.
func (w *wordEncoder) merge(s string, r *recentWords, pieces []uint8) {
	var order [laneCount]uint8 // the lanes that are in use come first
	active := 0
	for active < laneCount {
		if pieces = w.take(s, r, pieces, &r.lanes[active]); pieces == nil {
			break
		}
		order[active] = uint8(active)
		active++
	}
	for active > 0 {
		done := w.bpe.merges.step(r.lanes[:], order[:active])
		for done != 0 {
			at := bits.Len64(done) - 1
			done &^= 1 << at
			l := &r.lanes[order[at]]
			start := len(r.spill)
			r.spill = l.out(append(r.spill, 0))
			w.remember(s, r, l.word, start)
			if pieces = w.take(s, r, pieces, l); pieces == nil {
				active--
				order[at], order[active] = order[active], order[at]
			}
		}
	}
}

// repeat is a piece that equals an earlier one of the batch.
type repeat struct{ piece, first uint8 }

// unlike returns those of the pieces that are the first of their kind; a few of the others may be among them. All that it leaves out are
// in r.repeats.
func (r *recentWords) unlike(pieces []uint8) []uint8 {
	r.repeats = r.repeats[:0]
	var firsts [64]uint8 // by hash: a place in unlike, +1
	unlike := pieces[:0]
	for _, i := range pieces {
		first := &firsts[r.hashes[i]%uint64(len(firsts))]
		if *first > 0 {
			if j := unlike[*first-1]; r.equal(i, j) {
				r.repeats = append(r.repeats, repeat{i, j})
				continue
			}
		}
		unlike = append(unlike, i)
		*first = uint8(len(unlike))
	}
	return unlike
}

// equal tells whether two pieces are; of pieces that are too long for a key it does not know.
func (r *recentWords) equal(i, j uint8) bool {
	if r.keys[i] != longPieceKey {
		return r.keys[i] == r.keys[j]
	}
	return r.keys[j] == longPieceKey && r.bounds[int(i)+1]-r.bounds[i] <= cachedWord && r.longs[i] == r.longs[j]
}

// repeat notes the ids of the pieces that equal earlier ones.
func (r *recentWords) repeat() {
	for _, again := range r.repeats {
		r.ids[again.piece] = r.ids[again.first]
		r.repeated += int(r.spill[r.ids[again.first]&^spilled])
	}
}

// take puts the first of the pieces into a lane and returns the others; nil if there is none. Those that need no merging, or do not fit into a
// lane, are encoded at once.
func (w *wordEncoder) take(s string, r *recentWords, pieces []uint8, l *lane) []uint8 {
	for i, piece := range pieces {
		text := s[r.bounds[piece]:r.bounds[int(piece)+1]]
		start := len(r.spill)
		if len(text) > cachedWord { // shorter ones are in the tables of whole words
			if id, ok := w.longWhole(w.marked(text)); ok {
				r.spill = append(r.spill, 0, id)
				w.remember(s, r, int(piece), start)
				continue
			}
		}
		l.word = int(piece)
		if w.mark == "" && w.bpe.fill(l, text) || w.mark != "" && w.bpe.fillMarked(l, text) {
			return pieces[i+1:]
		}
		r.spill = w.encodeAlone(append(r.spill, 0), w.marked(text))
		w.remember(s, r, int(piece), start)
	}
	return nil
}

// longWhole returns the id of a piece that is one token and longer than shortWord, given as the model writes it.
func (w *wordEncoder) longWhole(marked string) (uint32, bool) {
	id, ok := w.bpe.vocab.id(marked)
	return id, ok && w.bpe.isWhole(id)
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
	piece = w.marked(piece)
	if id, ok := w.longWhole(piece); ok {
		return append(dst, id)
	}
	return w.encodeAlone(dst, piece)
}

// encodeAlone encodes a piece that is not one token, given as the model writes it.
func (w *wordEncoder) encodeAlone(dst []uint32, marked string) []uint32 {
	if w.mark != "" {
		return w.bpe.encodeMarked(dst, marked)
	}
	return w.bpe.mergeAll(dst, marked)
}

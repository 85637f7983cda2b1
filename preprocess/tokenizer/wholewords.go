package tokenizer

import (
	"bytes"
	"math/bits"
)

// wholeWords is a table of all tokens up to shortWord bytes that their own text is encoded to. It never changes once it is made. A token is
// in the line of its hash or, if that is full, in the next one that is not.
type wholeWords struct {
	lines []wholeLine
	shift uint
}

// wholeLine fills a cache line with words, and their ids above the bits of their keys. Keys of zeros are free, and behind the others. The
// highest bit of the last one tells that words of the line's hash are in the next one, too.
type wholeLine [4]wordKey

const crowded = 1 << 63

// eachWhole calls do for each token of so many bytes that its own text is encoded to. Marks for spaces become spaces again.
func (b *bpe) eachWhole(mark string, shortest, longest int, do func(id uint32, token []byte)) {
	for id := range uint32(len(b.vocab.spans)) {
		token := b.vocab.token(id)
		if len(token) < shortest || mark == "" && len(token) > longest || !b.vocab.owns(id) || !b.isWhole(id) {
			continue // another id has the text, or it is encoded to others
		}
		if mark != "" {
			token = bytes.ReplaceAll(token, []byte(mark), []byte(" "))
		}
		if len(token) >= shortest && len(token) <= longest {
			do(id, token)
		}
	}
}

// newWholeWords makes the table.
func newWholeWords(b *bpe, mark string) *wholeWords {
	n := 0
	b.eachWhole(mark, 1, shortWord, func(uint32, []byte) { n++ })
	size := tableSize(n) / len(wholeLine{})
	w := &wholeWords{lines: make([]wholeLine, size), shift: uint(64 - bits.Len(uint(size-1)))}
	b.eachWhole(mark, 1, shortWord, func(id uint32, token []byte) {
		key := makeWordKey(string(token), 0, len(token))
		entry := wordKey{key.low, key.high | uint64(id)<<keyBits}
		for i := key.hash() >> w.shift; !w.lines[i].put(entry); {
			i = (i + 1) & uint64(size-1)
		}
	})
	return w
}

// line returns where words of a hash are.
func (w *wholeWords) line(hash uint64) *wholeLine { return &w.lines[hash>>w.shift] }

// put stores a word, unless the line is full.
func (l *wholeLine) put(entry wordKey) bool {
	for i := range l {
		if l[i] == (wordKey{}) {
			l[i] = entry
			return true
		}
	}
	l[len(l)-1].high |= crowded
	return false
}

// findWholeGeneric is [wholeWords.findWhole] without instructions of a particular processor.
func (w *wholeWords) findWholeGeneric(r *recentWords, b *batch) (others uint32) {
	short := b.of(shortPieces)
	for _, i := range short {
		word := w.line(b.hashes[i]).find(b.keys[i])
		b.ids[i] = uint32(word.high >> keyBits)
		if word.high != 0 {
			*r.slot(b.hashes[i]) = word
			continue
		}
		short[others] = i
		others++
	}
	return others
}

// find returns the entry of a word, or zeros.
func (l *wholeLine) find(key wordKey) (word wordKey) {
	for i := range l {
		if l[i].differs(key) == 0 {
			word.high = l[i].high &^ crowded
		}
	}
	word.low = key.low
	return word
}

// findBehind finds a word that is not in the line of its hash.
func (w *wholeWords) findBehind(key wordKey, hash uint64) (uint32, bool) {
	for i := hash >> w.shift; w.lines[i][len(wholeLine{})-1].high&crowded != 0; {
		i = (i + 1) & uint64(len(w.lines)-1)
		if word := w.lines[i].find(key); word.high != 0 {
			return uint32(word.high >> keyBits), true
		}
	}
	return 0, false
}

package tokenizer

import (
	"math"
	"math/bits"
	"slices"
)

// longWholes is what [wholeWords] is for tokens of more than shortWord bytes, up to cachedWord. It only has a part of each one's hash, so that
// what it finds has to be compared.
type longWholes struct {
	lines []longLine
	shift uint
}

// longLine fills a cache line with entries: the lower bits of a hash, above an id+1. A token is in the line of its hash or, if that is full,
// in the next one that is not. Entries of zero are free, and behind the others.
type longLine [8]uint64

// newLongestWholes returns the tokens that are longer than these. There are few.
func newLongestWholes(b *bpe, mark string) map[string]uint32 {
	longest := make(map[string]uint32)
	b.eachWhole(mark, cachedWord+1, math.MaxInt, func(id uint32, token []byte) { longest[string(token)] = id })
	return longest
}

func newLongWholes(b *bpe, mark string) *longWholes {
	n := 0
	b.eachWhole(mark, shortWord+1, cachedWord, func(uint32, []byte) { n++ })
	size := tableSize(n) / len(longLine{})
	w := &longWholes{lines: make([]longLine, size), shift: uint(64 - bits.Len(uint(size-1)))}
	b.eachWhole(mark, shortWord+1, cachedWord, func(id uint32, token []byte) {
		key := makeLongKey(string(token), 0, len(token))
		hash := key.hash()
		for i := hash >> w.shift; !w.lines[i].put(hash<<idBits | uint64(id+1)); {
			i = (i + 1) & uint64(size-1)
		}
	})
	return w
}

// put stores an entry, unless the line is full.
func (l *longLine) put(entry uint64) bool {
	i := slices.Index(l[:], 0)
	if i >= 0 {
		l[i] = entry
	}
	return i >= 0
}

// line returns where words of a hash are.
func (w *longWholes) line(hash uint64) *longLine { return &w.lines[hash>>w.shift] }

// find returns the id of the word with a hash that equals what is given an id.
func (w *longWholes) find(hash uint64, equals func(id uint32) bool) (id uint32, ok bool) {
	for i := hash >> w.shift; ; i = (i + 1) & uint64(len(w.lines)-1) {
		l := &w.lines[i]
		for _, entry := range l {
			if entry&maxID != 0 && (entry^hash<<idBits)>>idBits == 0 && equals(uint32(entry&maxID)-1) {
				return uint32(entry&maxID) - 1, true
			}
		}
		if l[len(l)-1] == 0 {
			return 0, false
		}
	}
}

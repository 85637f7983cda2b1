package tokenizer

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// wordEncoder is the fast way for texts that a known scanner cuts and byte-level BPE encodes. Each encoding goroutine borrows a small
// table of the words that it met last, which stays in the nearest memory; behind it are a table of all words that are one token and
// a cache of other words, which all share; only what none of them has is encoded.
type wordEncoder struct {
	scan  scanner
	bpe   *bpe
	whole *wholeWords
	cache *wordCache
	// mark is what the model writes for a space; "" if it leaves spaces.
	mark    string
	prepend bool // a space comes in front of all text
	runs    [1 << 10]atomic.Pointer[longPiece]
	recent  sync.Pool // *recentWords
}

func newWordEncoder(scan scanner, b *bpe, mark string) *wordEncoder {
	return &wordEncoder{scan: scan, bpe: b, mark: mark, whole: newWholeWords(b, mark), cache: newWordCache()}
}

func (w *wordEncoder) encode(dst []uint32, s string) []uint32 {
	recent, ok := w.recent.Get().(*recentWords)
	if !ok {
		recent = new(recentWords)
	}
	if w.prepend {
		s = " " + s
	}
	dst = slices.Grow(dst, len(s)/4+16)
	var ends [128]int32
	for at := 0; at < len(s); {
		n := w.scan(s, at, ends[:])
		for _, end := range ends[:n] {
			if size := int(end) - at; size <= shortWord {
				key := shortKey(s, at, size)
				set := &recent.single[key.hash()>>(64-singleBits)]
				if first := &set[0]; first.low == key.low && (first.high^key.high)<<(64-keyBits) == 0 {
					dst = append(dst, uint32(first.high>>keyBits))
					at = int(end)
					continue
				}
				if id, ok := set.find(key); ok {
					dst = append(dst, id)
					at = int(end)
					continue
				}
			}
			dst = w.other(dst, s, at, int(end), recent)
			at = int(end)
		}
	}
	w.recent.Put(recent)
	return dst
}

// other encodes a piece that is not a recent word of one token.
func (w *wordEncoder) other(dst []uint32, s string, at, end int, recent *recentWords) []uint32 {
	size := end - at
	if size > recentWord {
		return w.shared(dst, s, at, end)
	}
	key := makeWordKey(s, at, size)
	slot := &recent.several[key.hash()>>(64-severalBits)]
	if slot.low == key.low && (slot.high^key.high)<<countBits == 0 {
		return slot.get(dst)
	}
	start := len(dst)
	dst = w.shared(dst, s, at, end)
	if len(dst) == start+1 && size <= shortWord {
		short := shortKey(s, at, size)
		recent.single[short.hash()>>(64-singleBits)].put(short, dst[start])
	} else {
		slot.put(key, dst[start:])
	}
	return dst
}

// shared encodes a piece with what all goroutines share.
func (w *wordEncoder) shared(dst []uint32, s string, at, end int) []uint32 {
	piece := s[at:end]
	if len(piece) <= shortWord {
		if id, ok := w.whole.find(shortKey(s, at, len(piece))); ok {
			return append(dst, id)
		}
	}
	if len(piece) > cachedWord {
		return w.long(dst, piece)
	}
	key := makeLongKey(s, at, len(piece))
	ways := w.cache.ways(&key)
	if found, ok := ways.get(dst, &key); ok {
		return found
	}
	start := len(dst)
	dst = w.fresh(dst, piece)
	ways.put(&key, dst[start:])
	return dst
}

// fresh encodes a piece that no table has.
func (w *wordEncoder) fresh(dst []uint32, piece string) []uint32 {
	if w.mark != "" {
		piece = strings.ReplaceAll(piece, " ", w.mark)
	}
	if len(piece) > shortWord { // shorter ones are in the table of whole words
		if id, ok := w.bpe.vocab.id(piece); ok && w.bpe.isWhole(id) {
			return append(dst, id)
		}
	}
	if w.mark != "" {
		return w.bpe.encodeMarked(dst, piece)
	}
	return w.bpe.mergeAll(dst, piece)
}

// long encodes a piece that is too long for the cache of words. Runs of white space and rules of dashes come again and again, and take
// the longest to encode.
func (w *wordEncoder) long(dst []uint32, piece string) []uint32 {
	const longest = 256
	if len(piece) > longest {
		return w.fresh(dst, piece)
	}
	slot := &w.runs[maphash.String(w.bpe.vocab.seed, piece)%uint64(len(w.runs))]
	if known := slot.Load(); known != nil && known.text == piece {
		return append(dst, known.ids...)
	}
	start := len(dst)
	dst = w.fresh(dst, piece)
	slot.Store(&longPiece{strings.Clone(piece), slices.Clone(dst[start:])})
	return dst
}

type longPiece struct {
	text string
	ids  []uint32
}

// recentWords holds words that one goroutine met last, in less than half a megabyte, so that they stay in the processor's own memory.
type recentWords struct {
	single  [1 << singleBits]recentSet
	several [1 << severalBits]recentSlot
}

const (
	singleBits  = 12
	severalBits = 12
	recentWord  = 15 // bytes of words in several
	recentIDs   = 6
	countBits   = 4 // of wordKey.high that hold the number of ids in a recentSlot
)

// recentSet holds four words of one token, in one cache line, those that come often in front.
type recentSet [4]wordKey

func (r *recentSet) find(key wordKey) (uint32, bool) {
	for i := 1; i < len(r); i++ {
		if r[i].low == key.low && (r[i].high^key.high)<<(64-keyBits) == 0 {
			r[i-1], r[i] = r[i], r[i-1]
			return uint32(r[i-1].high >> keyBits), true
		}
	}
	return 0, false
}

func (r *recentSet) put(key wordKey, id uint32) {
	key.high |= uint64(id) << keyBits
	last := len(r) - 1
	for i := range r {
		if r[i].high == 0 {
			last = i
			break
		}
	}
	r[last] = key
}

// recentSlot is a word of some tokens, with the number of its ids above the key, and the ids, three to a word.
type recentSlot struct {
	wordKey
	ids [2]uint64
}

func (s *recentSlot) put(key wordKey, ids []uint32) {
	if len(ids) > recentIDs {
		return
	}
	s.wordKey = key
	s.high |= uint64(len(ids)) << (64 - countBits)
	s.ids = [2]uint64{}
	for i, id := range ids {
		s.ids[i/3] |= uint64(id) << (i % 3 * idBits)
	}
}

func (s *recentSlot) get(dst []uint32) []uint32 {
	count := int(s.high >> (64 - countBits))
	for i := range count {
		dst = append(dst, uint32(s.ids[i/3]>>(i%3*idBits))&maxID)
	}
	return dst
}

// makeWordKey makes the key of up to recentWord bytes: their text and, above it, how many.
func makeWordKey(s string, at, n int) wordKey {
	if at+16 <= len(s) {
		mask := &keyMasks[n&15]
		return wordKey{eight(s, at) & mask.low, eight(s, at+8)&mask.high | uint64(n)<<56}
	}
	var b [16]byte
	copy(b[:], s[at:at+n])
	return wordKey{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<56}
}

// shortWord is the length in bytes of words that, with their length and a token id, fill two machine words.
const shortWord = 12

// wordKey is the text of a short word: eight bytes, then four, and above them its length.
type wordKey struct{ low, high uint64 }

// keyBits is how many bits of wordKey.high are in use; the id is above them.
const keyBits = 36

var keyMasks = func() (masks [16]wordKey) {
	for n := range masks {
		masks[n] = wordKey{1<<(8*min(n, 8)) - 1, 1<<(8*max(n-8, 0)) - 1}
		if n >= 8 {
			masks[n].low = ^uint64(0)
		}
	}
	return masks
}()

// shortKey makes the key of the n bytes at at.
func shortKey(s string, at, n int) wordKey {
	if at+16 <= len(s) {
		mask := &keyMasks[n&15]
		return wordKey{eight(s, at) & mask.low, eight(s, at+8)&mask.high | uint64(n)<<32}
	}
	var b [16]byte
	copy(b[:], s[at:at+n])
	return wordKey{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<32}
}

func (k wordKey) hash() uint64 {
	high, low := bits.Mul64(k.low^0x9E3779B97F4A7C15, k.high^0xD1B54A32D192ED03)
	return high ^ low
}

// wholeWords is a table of all tokens up to shortWord bytes that their own text is encoded to. It never changes once it is made. Four
// entries fill a cache line.
type wholeWords struct {
	slots []wordKey // with the id above the key's bits; a key of zeros is free
	shift uint
}

// newWholeWords makes the table. Marks for spaces become spaces again.
func newWholeWords(b *bpe, mark string) *wholeWords {
	n := 0
	each := func(do func(id uint32, token []byte)) {
		for id := range uint32(len(b.vocab.spans)) {
			token := b.vocab.token(id)
			if !b.vocab.owns(id) || !b.isWhole(id) {
				continue // another id has the text, or it is encoded to others
			}
			if mark != "" {
				token = bytes.ReplaceAll(token, []byte(mark), []byte(" "))
			}
			if len(token) > 0 && len(token) <= shortWord {
				do(id, token)
			}
		}
	}
	each(func(uint32, []byte) { n++ })
	size := tableSize(n)
	w := &wholeWords{slots: make([]wordKey, size), shift: uint(64 - bits.Len(uint(size-1)))}
	each(func(id uint32, token []byte) {
		key := shortKey(string(token), 0, len(token))
		i := key.hash() >> w.shift
		for w.slots[i] != (wordKey{}) {
			i = (i + 1) & uint64(size-1)
		}
		key.high |= uint64(id) << keyBits
		w.slots[i] = key
	})
	return w
}

func (w *wholeWords) find(key wordKey) (uint32, bool) {
	mask := uint64(len(w.slots) - 1)
	for i := key.hash() >> w.shift; ; i++ {
		slot := &w.slots[i&mask]
		if slot.low == key.low && (slot.high^key.high)<<(64-keyBits) == 0 {
			return uint32(slot.high >> keyBits), true
		}
		if slot.high == 0 {
			return 0, false
		}
	}
}

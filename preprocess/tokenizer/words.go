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
	for at := 0; at < len(s); {
		n := w.scan(s, at, recent.ends[:])
		dst = w.batch(dst, s, at, recent, n)
		at = int(recent.ends[n-1])
	}
	w.recent.Put(recent)
	return dst
}

// batch encodes n pieces, which begin at at. It first goes through all to read the places of the table where they may be: these reads do
// not wait for one another, so that the processor does many at once, where it would wait for each if the pieces were done one by one.
func (w *wordEncoder) batch(dst []uint32, s string, at int, recent *recentWords, n int) []uint32 {
	from := at
	recent.look(s, at, n)
	misses := 0
	for i := range n {
		recent.missed[misses] = uint8(i)
		set := &recent.sets[recent.hashes[i]>>(64-recentBits)]
		if set[0].differs(recent.keys[i]) != 0 && set[1].differs(recent.keys[i]) != 0 {
			misses++
		}
	}
	w.touch(recent, recent.missed[:misses])
	at = from
	dst = slices.Grow(dst, recentIDs*n)
	for i, end := range recent.ends[:n] {
		key, hash := recent.keys[i], recent.hashes[i]
		set := &recent.sets[hash>>(64-recentBits)]
		way := 0
		if set[0].differs(key) != 0 {
			way = 1
		}
		if slot := &set[way]; slot.differs(key) == 0 {
			// Three ids are written whether there are as many or not: that is faster than to find out.
			k := len(dst)
			out := (*[recentIDs]uint32)(dst[k : k+recentIDs])
			first := slot.ids[0]
			out[0], out[1], out[2] = uint32(first)&maxID, uint32(first>>idBits)&maxID, uint32(first>>(2*idBits))
			count := int(slot.high >> (64 - countBits))
			if count > 3 {
				second := slot.ids[1]
				out[3], out[4], out[5] = uint32(second)&maxID, uint32(second>>idBits)&maxID, uint32(second>>(2*idBits))
			}
			dst = dst[:k+count]
		} else {
			start := len(dst)
			dst = w.shared(dst, s, at, int(end), key, hash)
			if key != longPieceKey {
				set.put(key, dst[start:])
			}
			dst = slices.Grow(dst, recentIDs*(n-i))
		}
		at = int(end)
	}
	return dst
}

// touch reads where the table of whole words and the cache may have the pieces of a batch that are not recent. As in look, what counts is
// that all of it is read before any of it is needed.
func (w *wordEncoder) touch(recent *recentWords, missed []uint8) {
	touched := uint64(0)
	for _, i := range missed {
		hash := recent.hashes[i%batchPieces]
		touched |= w.whole.slots[hash>>w.whole.shift].low | w.cache.at(hash)[0].state.Load()
	}
	recent.touched = touched
}

// look makes the keys of n pieces, which begin at at, and reads the places where the recent words may have them.
func (r *recentWords) look(s string, at, n int) {
	touched := uint64(0)
	for i, end := range r.ends[:n] {
		key := longPieceKey
		switch size := int(end) - at; {
		case size > recentWord:
		case at+16 <= len(s):
			mask := &keyMasks[size&15]
			key = wordKey{eight(s, at) & mask.low, eight(s, at+8)&mask.high | uint64(size)<<56}
		default:
			key = makeWordKey(s, at, size)
		}
		hash := key.hash()
		r.keys[i], r.hashes[i] = key, hash
		touched |= r.sets[hash>>(64-recentBits)][0].low
		at = int(end)
	}
	r.touched = touched
}

// shared encodes a piece with what all goroutines share, given its key and that one's hash.
func (w *wordEncoder) shared(dst []uint32, s string, at, end int, short wordKey, hash uint64) []uint32 {
	piece := s[at:end]
	if len(piece) <= shortWord {
		if id, ok := w.whole.find(short, hash, len(piece)); ok {
			return append(dst, id)
		}
	}
	if len(piece) > cachedWord {
		return w.long(dst, piece)
	}
	key := makeLongKey(s, at, len(piece))
	if len(piece) > recentWord {
		hash = key.hash()
	}
	ways := w.cache.at(hash)
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

// recentWords holds words that one goroutine met last, in about half a megabyte, so that they stay in the processor's own memory, and
// what is known of the pieces that are being encoded.
type recentWords struct {
	sets    [1 << recentBits]recentSet
	keys    [batchPieces]wordKey
	hashes  [batchPieces]uint64
	ends    [batchPieces]int32
	missed  [batchPieces]uint8 // of a batch: which of its pieces are not recent
	touched uint64
}

const (
	recentBits  = 13
	recentWord  = 15 // bytes
	recentIDs   = 6
	countBits   = 4 // of wordKey.high that hold the number of ids in a recentSlot
	batchPieces = 128
)

// recentSet holds two words, in one cache line, the later one in front.
type recentSet [2]recentSlot

// recentSlot is a word, with the number of its ids above the key, and the ids, three to a machine word.
type recentSlot struct {
	wordKey
	ids [2]uint64
}

// longPieceKey stands for all pieces that are too long for a key. No slot has it.
var longPieceKey = wordKey{low: ^uint64(0)}

// differs is zero if the slot holds the word.
func (s *recentSlot) differs(key wordKey) uint64 {
	return s.low ^ key.low | (s.high^key.high)<<countBits
}

// put stores a word, if it is not too long in tokens, in the place of that which came before the last one.
func (r *recentSet) put(key wordKey, ids []uint32) {
	if len(ids) > recentIDs {
		return
	}
	r[1] = r[0]
	s := &r[0]
	s.wordKey = key
	s.high |= uint64(len(ids)) << (64 - countBits)
	s.ids = [2]uint64{}
	for i, id := range ids {
		s.ids[i/3] |= uint64(id) << (i % 3 * idBits)
	}
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

// wordKey is the text of a word of up to recentWord bytes: eight bytes, then seven, and above them its length. The length of the packed key of
// a word of up to shortWord bytes is right above four of them.
type wordKey struct{ low, high uint64 }

// keyBits is how many bits of a packed key's high are in use; the id is above them.
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

// packed is the key of a word of up to shortWord bytes with room for an id above it.
func (k wordKey) packed(size int) wordKey {
	return wordKey{k.low, k.high&(1<<32-1) | uint64(size)<<32}
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
		key := makeWordKey(string(token), 0, len(token))
		i := key.hash() >> w.shift
		key = key.packed(len(token))
		for w.slots[i] != (wordKey{}) {
			i = (i + 1) & uint64(size-1)
		}
		key.high |= uint64(id) << keyBits
		w.slots[i] = key
	})
	return w
}

func (w *wholeWords) find(key wordKey, hash uint64, size int) (uint32, bool) {
	key = key.packed(size)
	mask := uint64(len(w.slots) - 1)
	for i := hash >> w.shift; ; i++ {
		slot := &w.slots[i&mask]
		if slot.low == key.low && (slot.high^key.high)<<(64-keyBits) == 0 {
			return uint32(slot.high >> keyBits), true
		}
		if slot.high == 0 {
			return 0, false
		}
	}
}
